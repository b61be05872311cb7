//! A connection's tasks: the dial, the reader, and the writer while the peer is slow.

use std::future::Future;
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use async_io::{Async, Timer};
use relay_core::machine::{Address, CloseReason, ConnId, DialError, Endpoint, Machine, Target, Transport};
use relay_runtime::{close_reason, dial_error, unix_endpoint};
use smol::future;

use crate::bell::Bell;
use crate::driver::{Core, Shared};
use crate::failures::Watched;
use crate::net::{Socket, Spawn};

/// How long a dial may take.
const CONNECT_TIME: Duration = Duration::from_secs(10);
/// How long to wait where a unix socket's backlog is full, which nothing tells the end of.
const BACKLOG_TIME: Duration = Duration::from_millis(10);

/// Reads a connection until the peer's end of stream, the connection's end, or an error.
///
/// It reads before it waits, and waits only behind a read that found nothing or less than the buffer holds. It reads once
/// a turn of the pump: so a machine that pauses a connection is given no more of it, and who always has more to say waits
/// for the others.
pub(crate) struct Reader<M: Machine + 'static> {
    shared: Rc<Shared<M>>,
    conn: ConnId,
    /// Whether the reactor was asked to say when there is something to read.
    waiting: bool,
}

impl<M: Machine + 'static> Reader<M> {
    pub(crate) const fn new(shared: Rc<Shared<M>>, conn: ConnId) -> Self {
        Self { shared, conn, waiting: false }
    }
}

impl<M: Machine + 'static> Future for Reader<M> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Self { shared, conn, waiting } = self.get_mut();
        shared.enter(|core| core.read(*conn, waiting, context, &shared.bell))
    }
}

/// Waits until a slow peer takes bytes again.
pub(crate) struct Writer<M: Machine + 'static> {
    shared: Rc<Shared<M>>,
    conn: ConnId,
    /// Whether the reactor was asked.
    waiting: bool,
}

impl<M: Machine + 'static> Writer<M> {
    pub(crate) const fn new(shared: Rc<Shared<M>>, conn: ConnId) -> Self {
        Self { shared, conn, waiting: false }
    }
}

impl<M: Machine + 'static> Future for Writer<M> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Self { shared, conn, waiting } = self.get_mut();
        shared.enter(|core| {
            let link = core.net.links.get_mut(*conn);
            let Some(socket) = link.and_then(|link| link.socket.as_ref()) else { return Poll::Ready(()) };
            // An error of the reactor's, or of the socket's, is told by the next write, and so is a wake for nothing.
            if socket.poll_writable(context).is_pending() && !std::mem::replace(waiting, true) {
                return Poll::Pending;
            }
            core.host.writable(*conn);
            shared.bell.ring();
            Poll::Ready(())
        })
    }
}

/// Waits for sockets that fail though nobody reads them, for as long as the driver runs.
pub(crate) struct Watcher<M: Machine + 'static>(pub(crate) Rc<Shared<M>>);

impl<M: Machine + 'static> Future for Watcher<M> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.0.enter(|core| {
            while let Poll::Ready(failed) = core.failures.poll_failed(context) {
                core.fail(failed);
                self.0.bell.ring();
            }
            Poll::Pending
        })
    }
}

/// Dials, and tells the host how it went.
pub(crate) async fn dial<M: Machine + 'static>(shared: Rc<Shared<M>>, conn: ConnId, target: Target) {
    let late = async {
        Timer::after(CONNECT_TIME).await;
        Err(DialError::TimedOut)
    };
    let outcome = future::or(connect(&target), late).await;
    let _ = shared.enter(|core| {
        core.dialled(conn, outcome);
        Poll::Ready(())
    });
    shared.bell.ring();
}

async fn connect(target: &Target) -> Result<(Socket, Endpoint), DialError> {
    match target.transport {
        Transport::Plain => {}
        // A transport that this driver does not have.
        _ => return Err(DialError::NoSuchSocket),
    }
    let connected = match &target.address {
        Address::Tcp(address) => connect_tcp(*address).await,
        Address::Unix(path) => connect_unix(path).await,
        _ => return Err(DialError::NoSuchSocket),
    };
    connected.map_err(|error| dial_error(&error))
}

async fn connect_tcp(address: std::net::SocketAddr) -> io::Result<(Socket, Endpoint)> {
    let stream = Async::<std::net::TcpStream>::connect(address).await?;
    Ok((Socket::dialled(stream.into_inner()?)?, Endpoint::Tcp(address)))
}

async fn connect_unix(path: &str) -> io::Result<(Socket, Endpoint)> {
    loop {
        match Async::<std::os::unix::net::UnixStream>::connect(path).await {
            Ok(stream) => {
                let socket = Socket::unix(stream.into_inner()?)?;
                let peer = unix_endpoint(&socket);
                return Ok((socket, peer));
            }
            // A full backlog is refused for the moment, which shows as a socket that is not connected.
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected) => {
                Timer::after(BACKLOG_TIME).await;
            }
            Err(error) => return Err(error),
        }
    }
}

impl<M: Machine + 'static> Core<M> {
    /// One read, or the wait for one.
    fn read(&mut self, conn: ConnId, waiting: &mut bool, context: &mut Context<'_>, bell: &Bell) -> Poll<()> {
        let congested = self.host.is_congested();
        let turn = self.turn;
        let Some(link) = self.net.links.get_mut(conn) else { return Poll::Ready(()) };
        if link.read_in == turn {
            self.next_turn.push(context.waker().clone());
            bell.ring();
            return Poll::Pending;
        }
        if !link.reading || congested {
            link.parked = Some(context.waker().clone());
            if congested {
                self.starved.push(conn);
            }
            return Poll::Pending;
        }
        let Some(socket) = link.socket.as_ref() else { return Poll::Ready(()) };
        let mut result = Ok(());
        if *waiting {
            // The reactor wakes a task for what came while it was being asked, and then says that nothing came. Under load
            // that can go on for many turns, so the socket itself is asked.
            if let Poll::Ready(readable) = socket.poll_readable(context) {
                result = readable;
            }
            *waiting = false;
        }
        link.read_in = turn;
        match result.and_then(|()| socket.read(&mut self.buffer)) {
            Ok(0) => {
                self.net.spawn.push(Spawn::Watch(conn));
                let now = self.clock.now();
                self.host.eof(now, conn);
                bell.ring();
                Poll::Ready(())
            }
            Ok(count) => {
                let now = self.clock.now();
                self.host.received(now, conn, &self.buffer[..count]);
                bell.ring();
                if count == self.buffer.len() {
                    self.next_turn.push(context.waker().clone());
                    return Poll::Pending;
                }
                self.await_readable(conn, waiting, context, bell)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.await_readable(conn, waiting, context, bell)
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {
                self.next_turn.push(context.waker().clone());
                bell.ring();
                Poll::Pending
            }
            Err(error) => {
                self.net.links.remove(conn);
                let now = self.clock.now();
                self.host.closed(now, conn, close_reason(&error));
                bell.ring();
                Poll::Ready(())
            }
        }
    }

    fn await_readable(
        &mut self,
        conn: ConnId,
        waiting: &mut bool,
        context: &mut Context<'_>,
        bell: &Bell,
    ) -> Poll<()> {
        let link = self.net.links.get_mut(conn);
        let Some(socket) = link.and_then(|link| link.socket.as_ref()) else { return Poll::Ready(()) };
        *waiting = true;
        if socket.poll_readable(context).is_ready() {
            // An event came in between, or the reactor fails, which the next read tells.
            *waiting = false;
            self.next_turn.push(context.waker().clone());
            bell.ring();
        }
        Poll::Pending
    }

    /// Ends those connections whose sockets failed.
    fn fail(&mut self, failed: Vec<Watched>) {
        for conn in failed.into_iter().filter_map(|watched| self.net.links.id(watched)).collect::<Vec<_>>() {
            let link = self.net.links.get_mut(conn);
            let socket = link.and_then(|link| link.socket.as_ref());
            if let Some(error) = socket.and_then(Socket::take_error) {
                self.net.links.remove(conn);
                let now = self.clock.now();
                self.host.closed(now, conn, close_reason(&error));
            }
        }
    }

    fn dialled(&mut self, conn: ConnId, outcome: Result<(Socket, Endpoint), DialError>) {
        let Some(link) = self.net.links.get_mut(conn) else { return };
        let now = self.clock.now();
        match outcome {
            Ok((socket, peer)) => {
                link.socket = Some(socket);
                self.net.spawn.push(Spawn::Reader(conn));
                self.host.dialled(now, conn, &peer, None);
            }
            Err(error) => {
                self.net.links.remove(conn);
                self.host.closed(now, conn, CloseReason::DialFailed(error));
            }
        }
    }
}
