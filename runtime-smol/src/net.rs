//! Sockets, and what the host has done with them.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use async_io::Async;
use relay_core::action::{ActId, Action};
use relay_core::journal::Records;
use relay_core::machine::{ConnId, Endpoint, ListenerId, Machine, Refused, Target, Ticket};
use relay_core::port::{Ending, Port, Wrote};
use relay_runtime::{Desk, Listener, SocketFile, close_reason, send_at_once, unix_endpoint};
use smol::Task;

use crate::failures::Watched;

/// A connection's socket.
pub(crate) enum Socket {
    Tcp(Async<TcpStream>),
    Unix(Async<UnixStream>),
}

impl Socket {
    pub(crate) fn dialled(stream: TcpStream) -> io::Result<Self> {
        // A machine writes whole messages, once a turn: waiting for more would only delay them.
        let _ = stream.set_nodelay(true);
        Async::new(stream).map(Self::Tcp)
    }

    pub(crate) fn unix(stream: UnixStream) -> io::Result<Self> {
        Async::new(stream).map(Self::Unix)
    }

    pub(crate) fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.get_ref().read(buffer),
            Self::Unix(socket) => socket.get_ref().read(buffer),
        }
    }

    pub(crate) fn poll_readable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(socket) => socket.poll_readable(context),
            Self::Unix(socket) => socket.poll_readable(context),
        }
    }

    pub(crate) fn poll_writable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(socket) => socket.poll_writable(context),
            Self::Unix(socket) => socket.poll_writable(context),
        }
    }

    /// What it failed with, where it did and nobody was told yet.
    pub(crate) fn take_error(&self) -> Option<io::Error> {
        let error = match self {
            Self::Tcp(socket) => socket.get_ref().take_error(),
            Self::Unix(socket) => socket.get_ref().take_error(),
        };
        error.unwrap_or_else(Some)
    }

    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.get_ref().write(bytes),
            Self::Unix(socket) => socket.get_ref().write(bytes),
        }
    }

    fn finish(&self) {
        // It fails where the peer is gone, which reading or writing tells.
        let _ = match self {
            Self::Tcp(socket) => socket.get_ref().shutdown(Shutdown::Write),
            Self::Unix(socket) => socket.get_ref().shutdown(Shutdown::Write),
        };
    }

    /// Lets the peer see a reset when the socket is dropped. A unix socket has none.
    fn reset_on_drop(&self) {
        if let Self::Tcp(socket) = self {
            let _ = rustix::net::sockopt::set_socket_linger(socket.get_ref(), Some(Duration::ZERO));
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(socket) => socket.as_fd(),
            Self::Unix(socket) => socket.as_fd(),
        }
    }
}

/// A connection, or a dial under way. Kept small: there is one for every idle link.
pub(crate) struct Link {
    conn: ConnId,
    /// The turn in which it was last read.
    pub(crate) read_in: u32,
    /// Whether the machine lets it be read.
    pub(crate) reading: bool,
    /// `None` while the dial is under way.
    pub(crate) socket: Option<Socket>,
    /// The reader while it may not read.
    pub(crate) parked: Option<Waker>,
    /// The dial, then the reader. Dropped, and so cancelled, with the link.
    pub(crate) task: Option<Task<()>>,
    /// What waits for a slow peer to take bytes.
    pub(crate) writer: Option<Task<()>>,
}

impl Link {
    fn new(conn: ConnId, socket: Option<Socket>) -> Self {
        Self { conn, read_in: 0, reading: true, socket, parked: None, task: None, writer: None }
    }

    pub(crate) fn unpark(&mut self) {
        if let Some(waker) = self.parked.take() {
            waker.wake();
        }
    }
}

/// Links by slot. An id whose slot has passed on finds nothing.
#[derive(Default)]
pub(crate) struct Links(Vec<Option<Link>>);

impl Links {
    pub(crate) fn insert(&mut self, conn: ConnId, socket: Option<Socket>) {
        let slot = conn.slot();
        if self.0.len() <= slot {
            self.0.resize_with(slot + 1, || None);
        }
        self.0[slot] = Some(Link::new(conn, socket));
    }

    pub(crate) fn get_mut(&mut self, conn: ConnId) -> Option<&mut Link> {
        self.0.get_mut(conn.slot())?.as_mut().filter(|link| link.conn == conn)
    }

    /// The id that a socket was watched under, while it is that connection's.
    pub(crate) fn id(&self, (slot, generation): Watched) -> Option<ConnId> {
        let link = self.0.get(slot as usize)?.as_ref()?;
        (link.conn.generation() == generation).then_some(link.conn)
    }

    pub(crate) fn remove(&mut self, conn: ConnId) -> Option<Link> {
        self.0.get_mut(conn.slot())?.take_if(|link| link.conn == conn)
    }
}

/// A listener, and its acceptor while it may not accept.
pub(crate) struct Door {
    listener: Accepting,
    pub(crate) open: bool,
    pub(crate) parked: Option<Waker>,
}

enum Accepting {
    Tcp(Async<TcpListener>),
    Unix { listener: Async<UnixListener>, _file: SocketFile },
}

impl Door {
    pub(crate) fn new(listener: Listener) -> io::Result<Self> {
        let listener = match listener {
            Listener::Tcp(listener) => {
                send_at_once(&listener);
                Accepting::Tcp(Async::new(listener)?)
            }
            Listener::Unix(listener, file) => {
                Accepting::Unix { listener: Async::new(listener)?, _file: file }
            }
        };
        Ok(Self { listener, open: true, parked: None })
    }

    pub(crate) fn accept(&self) -> io::Result<(Socket, Endpoint)> {
        match &self.listener {
            Accepting::Tcp(listener) => {
                let (stream, peer) = listener.get_ref().accept()?;
                Ok((Socket::Tcp(Async::new(stream)?), Endpoint::Tcp(peer)))
            }
            Accepting::Unix { listener, .. } => {
                let (stream, _) = listener.get_ref().accept()?;
                let socket = Socket::unix(stream)?;
                let peer = unix_endpoint(&socket);
                Ok((socket, peer))
            }
        }
    }

    pub(crate) fn unpark(&mut self) {
        if let Some(waker) = self.parked.take() {
            waker.wake();
        }
    }

    pub(crate) fn poll_acceptable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &self.listener {
            Accepting::Tcp(listener) => listener.poll_readable(context),
            Accepting::Unix { listener, .. } => listener.poll_readable(context),
        }
    }
}

/// What is to be started for a connection that still stands behind the turn. Only the pump has the executor: a task that
/// held it would keep it alive.
pub(crate) enum Spawn {
    Reader(ConnId),
    Writer(ConnId),
    Dial(ConnId, Target),
    /// Behind the peer's half-close, which most connections do not outlive by a turn.
    Watch(ConnId),
}

impl Spawn {
    pub(crate) const fn conn(&self) -> ConnId {
        match self {
            Self::Reader(conn) | Self::Writer(conn) | Self::Dial(conn, _) | Self::Watch(conn) => *conn,
        }
    }
}

/// The host's port.
pub(crate) struct Net<M: Machine + 'static> {
    pub(crate) links: Links,
    pub(crate) doors: Vec<Door>,
    pub(crate) spawn: Vec<Spawn>,
    pub(crate) desk: Desk<M>,
}

impl<M: Machine + 'static> Port<M> for Net<M> {
    fn append(&mut self, records: Records) {
        self.desk.append(records);
    }

    fn write(&mut self, conn: ConnId, bytes: &[u8]) -> Wrote {
        // The host writes to connections that stand, and each has its socket until the host or the driver ended it.
        let link = self.links.get_mut(conn);
        let Some(socket) = link.and_then(|link| link.socket.as_ref()) else { return Wrote::Blocked };
        loop {
            return match socket.write(bytes) {
                Ok(count) => Wrote::Bytes(count),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.spawn.push(Spawn::Writer(conn));
                    Wrote::Blocked
                }
                Err(error) => Wrote::Failed(close_reason(&error)),
            };
        }
    }

    fn finish(&mut self, conn: ConnId) {
        if let Some(socket) = self.links.get_mut(conn).and_then(|link| link.socket.as_ref()) {
            socket.finish();
        }
    }

    fn reading(&mut self, conn: ConnId, on: bool) {
        if let Some(link) = self.links.get_mut(conn) {
            link.reading = on;
            if on {
                link.unpark();
            }
        }
    }

    fn accepting(&mut self, listener: ListenerId, on: bool) {
        if let Some(door) = self.doors.get_mut(usize::from(listener.0)) {
            door.open = on;
            if on {
                door.unpark();
            }
        }
    }

    fn close(&mut self, conn: ConnId, how: Ending) {
        let Some(link) = self.links.remove(conn) else { return };
        match (how, &link.socket) {
            (Ending::Reset, Some(socket)) => socket.reset_on_drop(),
            (Ending::Reset, None) | (Ending::Orderly, _) => {}
        }
    }

    fn dial(&mut self, conn: ConnId, target: &Target) {
        self.links.insert(conn, None);
        self.spawn.push(Spawn::Dial(conn, target.clone()));
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
