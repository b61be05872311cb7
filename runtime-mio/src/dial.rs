//! Dials under way: when each is given up, and those that must be begun again.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use mio::net::{TcpStream, UnixStream};
use relay_core::machine::{Address, ConnId, DialError, Target, Transport};
use relay_core::time::Mono;
use relay_runtime::dial_error;

use crate::net::Stream;

/// How long a dial may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How long after a full queue of a unix listener the next try is made.
const RETRY: Duration = Duration::from_millis(20);

/// What became of the begin of a dial.
pub(crate) enum Begun {
    /// The poll will tell.
    Connecting(Stream),
    /// The listener's queue is full: a TCP connect waits for that by itself, a unix one says so.
    Full,
    /// It failed at once.
    Failed(DialError),
}

/// Begins a connection without waiting for it.
pub(crate) fn begin(target: &Target) -> Begun {
    match target.transport {
        Transport::Plain => {}
        _ => return Begun::Failed(DialError::NoSuchSocket),
    }
    let stream = match &target.address {
        Address::Tcp(address) => TcpStream::connect(*address).map(Stream::Tcp),
        Address::Unix(path) => UnixStream::connect(&**path).map(Stream::Unix),
        _ => return Begun::Failed(DialError::NoSuchSocket),
    };
    match stream {
        Ok(stream) => Begun::Connecting(stream),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Begun::Full,
        Err(error) => Begun::Failed(dial_error(&error)),
    }
}

/// The clocks of all dials. All take equally long, so that the oldest is always the next to end.
#[derive(Default)]
pub(crate) struct Dials {
    running: VecDeque<(Mono, ConnId)>,
    again: VecDeque<(Mono, ConnId, Target)>,
    failed: Vec<(ConnId, DialError)>,
}

impl Dials {
    pub(crate) fn started(&mut self, now: Mono, conn: ConnId) {
        self.running.push_back((now.after(TIMEOUT), conn));
    }

    pub(crate) fn repeat(&mut self, now: Mono, conn: ConnId, target: Target) {
        self.again.push_back((now.after(RETRY), conn, target));
    }

    pub(crate) fn failed(&mut self, conn: ConnId, why: DialError) {
        self.failed.push((conn, why));
    }

    /// Forgets one that waits to be begun again. Its clock stays: by the time it rings the id is stale.
    pub(crate) fn forget(&mut self, conn: ConnId) {
        self.again.retain(|(_, other, _)| *other != conn);
    }

    /// Whether one waits to be begun again.
    pub(crate) fn is_waiting(&self, conn: ConnId) -> bool {
        self.again.iter().any(|(_, other, _)| *other == conn)
    }

    /// Those that failed as they began.
    pub(crate) fn take_failed(&mut self) -> Vec<(ConnId, DialError)> {
        std::mem::take(&mut self.failed)
    }

    /// The next whose time is over.
    pub(crate) fn overdue(&mut self, now: Mono) -> Option<ConnId> {
        let (due, conn) = *self.running.front()?;
        if due > now {
            return None;
        }
        self.running.pop_front();
        Some(conn)
    }

    /// The next to be begun again.
    pub(crate) fn due_again(&mut self, now: Mono) -> Option<(ConnId, Target)> {
        let (due, ..) = self.again.front()?;
        if *due > now {
            return None;
        }
        self.again.pop_front().map(|(_, conn, target)| (conn, target))
    }

    /// When to look again. `is_running` says of a clock at the front whether its dial still needs it.
    pub(crate) fn deadline(&mut self, is_running: impl Fn(ConnId) -> bool) -> Option<Mono> {
        while let Some((_, conn)) = self.running.front()
            && !is_running(*conn)
            && !self.is_waiting(*conn)
        {
            self.running.pop_front();
        }
        let again = self.again.front().map(|(due, ..)| *due);
        [self.running.front().map(|(due, _)| *due), again].into_iter().flatten().min()
    }
}
