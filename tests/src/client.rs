//! A plain blocking client, over either kind of socket.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::rig::{PATIENCE, Place};

/// A client. Each of its reads and writes waits for [`PATIENCE`] at most.
pub struct Client {
    stream: Stream,
    /// What was read and not asked for yet.
    ahead: Vec<u8>,
}

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Client {
    /// Connects.
    ///
    /// # Panics
    /// Where nobody listens.
    #[must_use]
    pub fn connect(place: &Place) -> Self {
        Self::try_connect(place).expect("the driver listens")
    }

    /// Connects.
    ///
    /// # Errors
    /// As the system says.
    pub fn try_connect(place: &Place) -> io::Result<Self> {
        let stream = match place {
            Place::Tcp(address) => {
                let stream = TcpStream::connect(address)?;
                stream.set_nodelay(true)?;
                Stream::Tcp(stream)
            }
            Place::Unix(path) => Stream::Unix(UnixStream::connect(path)?),
        };
        let client = Self { stream, ahead: Vec::new() };
        client.patience(PATIENCE);
        Ok(client)
    }

    /// Sets how long reads and writes wait.
    ///
    /// # Panics
    /// For no time at all.
    pub fn patience(&self, patience: Duration) {
        let patience = Some(patience);
        let set = match &self.stream {
            Stream::Tcp(stream) => {
                stream.set_read_timeout(patience).and_then(|()| stream.set_write_timeout(patience))
            }
            Stream::Unix(stream) => {
                stream.set_read_timeout(patience).and_then(|()| stream.set_write_timeout(patience))
            }
        };
        set.expect("a patience is longer than nothing");
    }

    /// Sends all of it.
    ///
    /// # Panics
    /// Where it does not go.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.try_send(bytes.as_ref()).expect("the driver reads");
    }

    /// Sends all of it.
    ///
    /// # Errors
    /// As the socket says.
    pub fn try_send(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.stream {
            Stream::Tcp(stream) => stream.write_all(bytes),
            Stream::Unix(stream) => stream.write_all(bytes),
        }
    }

    /// Sends until nothing more goes for as long as the patience lasts; how much went.
    ///
    /// # Panics
    /// Where the connection fails.
    pub fn send_until_full(&mut self, bytes: &[u8]) -> usize {
        let mut sent = 0;
        while sent < bytes.len() {
            let wrote = match &mut self.stream {
                Stream::Tcp(stream) => stream.write(&bytes[sent..]),
                Stream::Unix(stream) => stream.write(&bytes[sent..]),
            };
            match wrote {
                Ok(count) => sent += count,
                Err(error) if is_over(&error) => return sent,
                Err(error) => panic!("{error}"),
            }
        }
        sent
    }

    /// The next line, without its end.
    ///
    /// # Panics
    /// Where the stream ends first.
    pub fn line(&mut self) -> String {
        self.try_line().expect("the stream goes on").expect("a line comes before the end")
    }

    /// The next line, or nothing where the stream ends in order.
    ///
    /// # Errors
    /// As the socket says; [`ErrorKind::WouldBlock`] where nothing comes.
    pub fn try_line(&mut self) -> io::Result<Option<String>> {
        let mut looked = 0;
        loop {
            if let Some(end) = self.ahead[looked..].iter().position(|byte| *byte == b'\n') {
                let rest = self.ahead.split_off(looked + end + 1);
                let mut line = std::mem::replace(&mut self.ahead, rest);
                line.pop();
                return Ok(Some(String::from_utf8_lossy(&line).into_owned()));
            }
            looked = self.ahead.len();
            if self.fill()? == 0 {
                return Ok(None);
            }
        }
    }

    /// Sends a line and reads the next one.
    pub fn ask(&mut self, line: &str) -> String {
        self.send(format!("{line}\n"));
        self.line()
    }

    /// All up to the end of the stream.
    ///
    /// # Errors
    /// As the socket says: a reset, for one.
    pub fn rest(&mut self) -> io::Result<Vec<u8>> {
        while self.fill()? > 0 {}
        Ok(std::mem::take(&mut self.ahead))
    }

    /// Reads until the driver has closed, in order or not.
    ///
    /// # Panics
    /// Where it does not close.
    pub fn until_closed(&mut self) {
        if let Err(error) = self.rest() {
            assert!(!is_over(&error), "the driver does not close: {error}");
        }
    }

    /// Half-closes.
    pub fn finish(&self) {
        let _ = match &self.stream {
            Stream::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Stream::Unix(stream) => stream.shutdown(Shutdown::Write),
        };
    }

    /// Resets. A unix socket has no reset: it is closed.
    pub fn reset(self) {
        if let Stream::Tcp(stream) = &self.stream {
            let _ = rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO));
        }
    }

    /// The port that it connects from, over TCP.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        match &self.stream {
            Stream::Tcp(stream) => stream.local_addr().ok().map(|address| address.port()),
            Stream::Unix(_) => None,
        }
    }

    /// A second hand on the same socket, which has read nothing ahead.
    ///
    /// # Panics
    /// Where the system has no descriptor left.
    #[must_use]
    pub fn twin(&self) -> Self {
        let stream = match &self.stream {
            Stream::Tcp(stream) => stream.try_clone().map(Stream::Tcp),
            Stream::Unix(stream) => stream.try_clone().map(Stream::Unix),
        };
        Self { stream: stream.expect("there is a descriptor left"), ahead: Vec::new() }
    }

    fn fill(&mut self) -> io::Result<usize> {
        let mut chunk = [0; 16 << 10];
        let count = match &mut self.stream {
            Stream::Tcp(stream) => stream.read(&mut chunk)?,
            Stream::Unix(stream) => stream.read(&mut chunk)?,
        };
        self.ahead.extend_from_slice(&chunk[..count]);
        Ok(count)
    }
}

/// Whether a socket's error says that the patience is over.
#[must_use]
pub fn is_over(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}
