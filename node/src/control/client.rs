//! A command's end of the control socket.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde_json::value::RawValue;

use super::wire::{Back, Outgoing};
use super::{Place, VERSION};
use crate::failure::Failure;
use crate::home::Home;
use crate::service::Request;

/// Longest answer that is read, in bytes.
const MAX_ANSWER: u64 = 64 << 20;
/// The longest wait for an answer: the node gives every one of its own accord before.
const PATIENCE: Duration = Duration::from_secs(2 * 3600);

/// A connection to the node that runs in a home.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<UnixStream>,
    asked: u64,
}

/// Everything that a node tells, as JSON objects.
#[derive(Debug)]
pub struct Watch {
    stream: BufReader<UnixStream>,
}

impl Client {
    /// Connects to the node that runs in a home; `None` where none does.
    ///
    /// # Errors
    /// There is a socket that cannot be used.
    pub fn find(home: &Home) -> Result<Option<Self>, Failure> {
        let Some(socket) = Place::find(home)? else { return Ok(None) };
        match UnixStream::connect(&socket) {
            Ok(stream) => Ok(Some(Self { stream: BufReader::new(stream), asked: 0 })),
            // None there, or one that a process left behind.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused | io::ErrorKind::NotADirectory
                ) =>
            {
                Ok(None)
            }
            Err(error) => Err(Failure::io("connect to", &socket, &error)),
        }
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// What the node refused, or that it went away.
    pub fn ask(&mut self, request: &Request) -> Result<Box<RawValue>, Failure> {
        self.asked += 1;
        let mut line = serde_json::to_vec(&Outgoing { v: VERSION, id: self.asked, request })
            .map_err(|error| Failure::refused(format!("the request is no JSON: {error}"), ""))?;
        line.push(b'\n');
        // A claim may wait for as long as it was told to.
        let endless = matches!(request, Request::LeaseClaim { wait: true, .. });
        let patience = (!endless).then_some(PATIENCE);
        self.stream.get_ref().set_read_timeout(patience).map_err(|error| went_away(&error))?;
        self.exchange(&line)
    }

    /// The connection, for another thread to close while an answer is waited for: the request is taken back then.
    ///
    /// # Errors
    /// There is no descriptor left.
    pub fn line(&self) -> io::Result<UnixStream> {
        self.stream.get_ref().try_clone()
    }

    /// Listens to all that the node tells from now on.
    ///
    /// # Errors
    /// As for [`ask`](Self::ask).
    pub fn watch(mut self) -> Result<Watch, Failure> {
        let line = format!("{{\"v\":{VERSION},\"id\":1,\"cmd\":\"watch\"}}\n");
        self.exchange(line.as_bytes())?;
        Ok(Watch { stream: self.stream })
    }

    /// Says a line and reads the answer to it. A node that refuses a client says why before it is asked, and closes.
    fn exchange(&mut self, line: &[u8]) -> Result<Box<RawValue>, Failure> {
        let said = self.stream.get_mut().write_all(line);
        let back =
            next(&mut self.stream).map_err(|error| went_away(said.as_ref().err().unwrap_or(&error)))?;
        answer(back)
    }
}

impl Watch {
    /// The next thing, or `None` where nothing came in time.
    ///
    /// # Errors
    /// The node went away.
    pub fn next_within(&mut self, time: Duration) -> Result<Option<Box<RawValue>>, Failure> {
        let set = self.stream.get_ref().set_read_timeout(Some(time));
        set.map_err(|error| went_away(&error))?;
        // A line that has begun comes whole: the node writes it at once.
        match self.stream.fill_buf() {
            Ok(_) => {}
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                return Ok(None);
            }
            Err(error) => return Err(went_away(&error)),
        }
        let whole = self.stream.get_ref().set_read_timeout(Some(PATIENCE));
        let back = whole.and_then(|()| next(&mut self.stream)).map_err(|error| went_away(&error))?;
        Ok(back.event)
    }
}

fn next(stream: &mut BufReader<UnixStream>) -> io::Result<Back> {
    let mut line = Vec::new();
    stream.take(MAX_ANSWER).read_until(b'\n', &mut line)?;
    if line.last() != Some(&b'\n') {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    serde_json::from_slice(&line).map_err(|_| io::ErrorKind::InvalidData.into())
}

fn answer(back: Back) -> Result<Box<RawValue>, Failure> {
    if let Some(refusal) = back.error {
        return Err(refusal.into());
    }
    back.answer.ok_or_else(|| went_away(&io::ErrorKind::InvalidData.into()))
}

fn went_away(error: &io::Error) -> Failure {
    let why =
        if error.kind() == io::ErrorKind::UnexpectedEof { "it ended".to_owned() } else { error.to_string() };
    Failure::unreachable(
        format!("the relay serve that runs here did not answer: {why}"),
        "See what it says; start it again if it has ended: relay serve.",
    )
}
