//! The sockets, and the host's [`Port`] to them.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::Shutdown;
use std::time::Duration;

use mio::event::Event;
use mio::net::{TcpStream, UnixStream};
use mio::{Interest, Registry, Token};
use relay_core::action::{ActId, Action};
use relay_core::journal::Records;
use relay_core::machine::{
    CloseReason, ConnId, DialError, Endpoint, ListenerId, Machine, Refused, Target, Ticket,
};
use relay_core::port::{Ending, Port, Wrote};
use relay_core::time::Mono;
use relay_runtime::{Desk, Listener, close_reason, dial_error, unix_endpoint};
use rustix::net::sockopt::set_socket_linger;

use crate::dial::{self, Begun, Dials};
use crate::listen::Door;

/// The token of the waker; those of listeners follow it downwards, those of connections are their slots.
pub(crate) const WAKER: Token = Token(usize::MAX);

/// All sockets of a driver.
pub(crate) struct Net<M: Machine + 'static> {
    pub(crate) desk: Desk<M>,
    pub(crate) doors: Vec<Door>,
    pub(crate) dials: Dials,
    /// When the turn began.
    pub(crate) now: Mono,
    registry: Registry,
    /// By slot. An entry carries its full id, since a slot has many connections one after the other.
    table: Vec<Option<Socket>>,
    /// Connections with something to read, each once.
    ready: VecDeque<ConnId>,
}

/// A connection's socket. There is one for each idle link, so that it stays small.
///
/// The poll is edge-triggered: it tells of a change once, and the flags remember it until the socket says otherwise.
struct Socket {
    conn: ConnId,
    stream: Stream,
    connecting: bool,
    readable: bool,
    writable: bool,
    /// The end of the stream was announced: a short read is not the last one.
    ending: bool,
    /// The end of the stream was read.
    ended: bool,
    paused: bool,
    /// Stands on the list of ready connections.
    queued: bool,
}

/// A stream of either kind.
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// What a socket gave.
pub(crate) enum Read {
    Bytes(usize),
    Eof,
    Failed(CloseReason),
    Nothing,
}

/// What an event says beyond what the flags keep.
pub(crate) enum Notice {
    /// Nothing.
    None,
    /// A socket that was full takes bytes again.
    Writable(ConnId),
    /// A dial succeeded.
    Dialled(ConnId, Endpoint),
    /// A connection or dial failed.
    Failed(ConnId, CloseReason),
}

impl<M: Machine + 'static> Net<M> {
    pub(crate) fn new(registry: Registry, listeners: Vec<Listener>, desk: Desk<M>) -> io::Result<Self> {
        let doors = listeners
            .into_iter()
            .enumerate()
            .map(|(index, listener)| Door::new(listener, &registry, Token(WAKER.0 - 1 - index)))
            .collect::<io::Result<_>>()?;
        Ok(Self {
            desk,
            doors,
            dials: Dials::default(),
            now: Mono::ZERO,
            registry,
            table: Vec::new(),
            ready: VecDeque::new(),
        })
    }

    /// Takes a connection in. False where the system cannot watch it: it is closed then.
    pub(crate) fn insert(&mut self, conn: ConnId, mut stream: Stream, connecting: bool) -> bool {
        let interest = Interest::READABLE | Interest::WRITABLE;
        let watched = match &mut stream {
            Stream::Tcp(stream) => self.registry.register(stream, Token(conn.slot()), interest),
            Stream::Unix(stream) => self.registry.register(stream, Token(conn.slot()), interest),
        };
        if watched.is_err() {
            return false;
        }
        if self.table.len() <= conn.slot() {
            self.table.resize_with(conn.slot() + 1, || None);
        }
        self.table[conn.slot()] = Some(Socket {
            conn,
            stream,
            connecting,
            readable: false,
            writable: !connecting,
            ending: false,
            ended: false,
            paused: false,
            queued: false,
        });
        true
    }

    /// Takes an event in. It may be about the slot's last connection: then it is a readiness that the socket denies.
    pub(crate) fn notice(&mut self, event: &Event) -> Notice {
        let token = event.token();
        if token == WAKER {
            return Notice::None;
        }
        if let Some(door) = self.doors.get_mut(WAKER.0 - 1 - token.0) {
            door.waiting = true;
            return Notice::None;
        }
        let Some(socket) = self.table.get_mut(token.0).and_then(Option::as_mut) else { return Notice::None };
        let conn = socket.conn;
        socket.ending |= event.is_read_closed();
        if socket.connecting {
            return self.finish_dial(conn);
        }
        if socket.ended && event.is_error() {
            // Nobody reads from it any more, so that no read would tell.
            return match socket.stream.take_error() {
                Some(error) => Notice::Failed(conn, close_reason(&error)),
                None => Notice::None,
            };
        }
        let was_full = !socket.writable && event.is_writable();
        socket.writable |= event.is_writable();
        if event.is_readable() || event.is_read_closed() || event.is_error() {
            socket.readable = true;
            self.queue(conn);
        }
        if was_full { Notice::Writable(conn) } else { Notice::None }
    }

    /// How many connections have something to read.
    pub(crate) fn ready(&self) -> usize {
        self.ready.len()
    }

    /// Whether somebody may be waiting to be accepted.
    pub(crate) fn has_callers(&self) -> bool {
        self.doors.iter().any(Door::is_ready)
    }

    /// The next connection that may have something to read.
    pub(crate) fn next_ready(&mut self) -> Option<ConnId> {
        let conn = self.ready.pop_front()?;
        if let Some(socket) = self.socket(conn) {
            socket.queued = false;
        }
        Some(conn)
    }

    /// Reads once. A connection that has more goes to the end of the list.
    pub(crate) fn read(&mut self, conn: ConnId, buffer: &mut [u8]) -> Read {
        let Some(socket) = self.socket(conn) else { return Read::Nothing };
        if !socket.readable || socket.paused || socket.ended {
            return Read::Nothing;
        }
        match socket.stream.read(buffer) {
            Ok(0) => {
                socket.ended = true;
                Read::Eof
            }
            Ok(count) => {
                // A short read emptied the socket, unless its end was announced already: nothing further will be.
                socket.readable = count == buffer.len() || socket.ending;
                self.queue(conn);
                Read::Bytes(count)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                socket.readable = false;
                socket.ending = false;
                Read::Nothing
            }
            Err(error) => Read::Failed(close_reason(&error)),
        }
    }

    /// Closes what the host no longer knows, or is about to be told of.
    pub(crate) fn forget(&mut self, conn: ConnId) -> Option<Stream> {
        self.socket(conn)?;
        self.table[conn.slot()].take().map(|socket| socket.stream)
    }

    /// Begins again the dials that found a full queue.
    pub(crate) fn dial_again(&mut self) {
        while let Some((conn, target)) = self.dials.due_again(self.now) {
            self.begin(conn, &target);
        }
    }

    /// Gives a dial up whose time is over; false for one that has ended.
    pub(crate) fn give_up(&mut self, conn: ConnId) -> bool {
        let waiting = self.dials.is_waiting(conn);
        self.dials.forget(conn);
        if self.socket(conn).is_some_and(|socket| socket.connecting) {
            return self.forget(conn).is_some();
        }
        waiting
    }

    /// When something here is due, to be looked at in the next turn.
    pub(crate) fn deadline(&mut self) -> Option<Mono> {
        let table = &self.table;
        let is_connecting = |conn: ConnId| {
            let socket = table.get(conn.slot()).and_then(Option::as_ref);
            socket.is_some_and(|socket| socket.conn == conn && socket.connecting)
        };
        let dials = self.dials.deadline(is_connecting);
        self.doors.iter().filter_map(Door::deadline).chain(dials).min()
    }

    fn begin(&mut self, conn: ConnId, target: &Target) {
        match dial::begin(target) {
            Begun::Connecting(stream) => {
                if !self.insert(conn, stream, true) {
                    self.dials.failed(conn, DialError::Exhausted);
                }
            }
            Begun::Full => self.dials.repeat(self.now, conn, target.clone()),
            Begun::Failed(why) => self.dials.failed(conn, why),
        }
    }

    /// Looks whether a dial has come to its end.
    fn finish_dial(&mut self, conn: ConnId) -> Notice {
        let Some(socket) = self.socket(conn) else { return Notice::None };
        if let Some(error) = socket.stream.take_error() {
            return Notice::Failed(conn, CloseReason::DialFailed(dial_error(&error)));
        }
        let Some(peer) = socket.stream.peer() else { return Notice::None };
        socket.connecting = false;
        socket.writable = true;
        // What the event said of reading may have come with it, and is not said again.
        socket.readable = true;
        self.queue(conn);
        Notice::Dialled(conn, peer)
    }

    fn queue(&mut self, conn: ConnId) {
        let Some(socket) = self.socket(conn) else { return };
        if socket.readable && !socket.paused && !socket.ended && !socket.queued {
            socket.queued = true;
            self.ready.push_back(conn);
        }
    }

    fn socket(&mut self, conn: ConnId) -> Option<&mut Socket> {
        self.table.get_mut(conn.slot())?.as_mut().filter(|socket| socket.conn == conn)
    }
}

impl<M: Machine + 'static> Port<M> for Net<M> {
    fn append(&mut self, records: Records) {
        self.desk.append(records);
    }

    fn write(&mut self, conn: ConnId, bytes: &[u8]) -> Wrote {
        let Some(socket) = self.socket(conn) else { return Wrote::Failed(CloseReason::Failed) };
        if !socket.writable {
            return Wrote::Blocked;
        }
        loop {
            match socket.stream.write(bytes) {
                Ok(count) => return Wrote::Bytes(count),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    socket.writable = false;
                    return Wrote::Blocked;
                }
                Err(error) => return Wrote::Failed(close_reason(&error)),
            }
        }
    }

    fn finish(&mut self, conn: ConnId) {
        if let Some(socket) = self.socket(conn) {
            socket.stream.finish();
        }
    }

    fn reading(&mut self, conn: ConnId, on: bool) {
        if let Some(socket) = self.socket(conn) {
            socket.paused = !on;
            self.queue(conn);
        }
    }

    fn accepting(&mut self, listener: ListenerId, on: bool) {
        if let Some(door) = self.doors.get_mut(usize::from(listener.0)) {
            door.on = on;
        }
    }

    fn close(&mut self, conn: ConnId, how: Ending) {
        self.dials.forget(conn);
        let Some(stream) = self.forget(conn) else { return };
        match how {
            Ending::Orderly => {}
            Ending::Reset => stream.reset(),
        }
    }

    fn dial(&mut self, conn: ConnId, target: &Target) {
        self.dials.started(self.now, conn);
        self.begin(conn, target);
    }

    fn act(&mut self, id: ActId, action: Action) {
        self.desk.act(id, action);
    }

    fn event(&mut self, event: M::Event) {
        self.desk.event(event);
    }

    fn answer(&mut self, ticket: Ticket, answer: Result<M::Answer, Refused>) {
        self.desk.answer(ticket, answer);
    }

    fn spare(&mut self) -> Option<Records> {
        self.desk.spare()
    }
}

impl Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = match self {
                Self::Tcp(stream) => stream.read(buffer),
                Self::Unix(stream) => stream.read(buffer),
            };
            match read {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Ok(_) | Err(_) => return read,
            }
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Unix(stream) => stream.write(bytes),
        }
    }

    fn finish(&self) {
        // It fails where the peer was faster, and then reading tells.
        let _ = match self {
            Self::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Self::Unix(stream) => stream.shutdown(Shutdown::Write),
        };
    }

    /// Closes so that the peer sees a reset. A unix socket has none: its peer sees the end.
    fn reset(self) {
        match self {
            Self::Tcp(stream) => {
                let _ = set_socket_linger(&stream, Some(Duration::ZERO));
            }
            Self::Unix(_) => {}
        }
    }

    fn take_error(&self) -> Option<io::Error> {
        let error = match self {
            Self::Tcp(stream) => stream.take_error(),
            Self::Unix(stream) => stream.take_error(),
        };
        error.unwrap_or_else(Some)
    }

    /// The other end; `None` while there is none yet.
    fn peer(&self) -> Option<Endpoint> {
        match self {
            Self::Tcp(stream) => {
                let peer = stream.peer_addr().ok()?;
                let _ = stream.set_nodelay(true);
                Some(Endpoint::Tcp(peer))
            }
            Self::Unix(stream) => stream.peer_addr().ok().map(|_| unix_endpoint(stream)),
        }
    }
}
