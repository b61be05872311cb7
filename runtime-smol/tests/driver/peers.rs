//! The other side: clients over blocking sockets, and a running machine to talk to.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use relay_core::journal::Seq;
use relay_core::machine::ConnId;
use relay_smol::{Events, Handle, Listener, Options};

use crate::machine::{Answer, Ask, Heard, Puppet};

/// After this long a test has failed.
pub(crate) const LONG: Duration = Duration::from_secs(20);

pub(crate) struct Running {
    pub(crate) handle: Handle<Puppet>,
    pub(crate) events: Events<Heard>,
    pub(crate) address: SocketAddr,
}

/// Runs a machine that listens on TCP.
pub(crate) fn start(machine: Puppet, options: Options) -> Running {
    let listener = Listener::tcp(([127, 0, 0, 1], 0).into()).unwrap();
    let address = listener.tcp_address().unwrap();
    let (handle, events) = relay_smol::start(machine, Seq::NONE, vec![listener], options).unwrap();
    Running { handle, events, address }
}

pub(crate) fn start_plain() -> Running {
    start(Puppet::default(), Options::default())
}

/// A path for a unix socket that no other test has.
pub(crate) fn socket_path() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("relay-smol-{}-{number}.sock", std::process::id()))
}

impl Running {
    pub(crate) fn client(&self) -> Client<TcpStream> {
        Client::tcp(self.address)
    }

    pub(crate) fn ask(&self, ask: Ask) -> Answer {
        self.handle.call(ask, LONG).expect("the machine answers")
    }

    pub(crate) fn dial(&self, target: relay_core::machine::Target) -> ConnId {
        match self.ask(Ask::Dial(target)) {
            Answer::Conn(conn) => conn,
            Answer::Done | Answer::Number(_) => panic!("a dial is answered with its id"),
        }
    }

    pub(crate) fn event(&self) -> Heard {
        self.events.recv_timeout(LONG).expect("there is an event")
    }

    /// The next event for which `found` gives something; those before it are passed over.
    pub(crate) fn find<T>(&self, mut found: impl FnMut(&Heard) -> Option<T>) -> T {
        loop {
            if let Some(it) = found(&self.event()) {
                return it;
            }
        }
    }

    /// Ends it at once, and says whether it ended in order.
    pub(crate) fn stop(self) -> bool {
        self.handle.shutdown(Duration::ZERO);
        self.handle.join()
    }
}

/// A peer that waits for what it reads, but not for ever.
pub(crate) struct Client<S: Read> {
    pub(crate) stream: S,
    reader: BufReader<S>,
}

impl Client<TcpStream> {
    pub(crate) fn tcp(address: SocketAddr) -> Self {
        Self::over(TcpStream::connect(address).unwrap())
    }

    pub(crate) fn over(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream.set_write_timeout(Some(LONG)).unwrap();
        let reader = BufReader::new(stream.try_clone().unwrap());
        Self { stream, reader }
    }
}

impl Client<UnixStream> {
    pub(crate) fn unix(path: &std::path::Path) -> Self {
        let stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        let reader = BufReader::new(stream.try_clone().unwrap());
        Self { stream, reader }
    }
}

impl<S: Read + Write> Client<S> {
    pub(crate) fn say(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).unwrap();
    }

    /// One line, without its end; empty at the end of the stream.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.reader.read_line(&mut line).unwrap();
        line.truncate(line.trim_end_matches('\n').len());
        line
    }

    /// All that comes until the end of the stream.
    pub(crate) fn rest(&mut self) -> String {
        let mut rest = String::new();
        self.reader.read_to_string(&mut rest).unwrap();
        rest
    }

    pub(crate) fn read_error(&mut self) -> std::io::ErrorKind {
        self.reader.read(&mut [0; 64]).unwrap_err().kind()
    }
}
