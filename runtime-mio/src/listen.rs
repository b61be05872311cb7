//! Listening sockets: when to accept, and what to do when there is no descriptor left.

use std::io::{self, ErrorKind};
use std::time::Duration;

use mio::net::{TcpListener, UnixListener};
use mio::{Interest, Registry, Token};
use relay_core::machine::Endpoint;
use relay_core::time::Mono;
use relay_runtime::{Listener, SocketFile, send_at_once, unix_endpoint};

use crate::net::Stream;

/// A listener and what is known of it.
///
/// The poll tells only once that somebody waits, so that `waiting` is kept until an accept says that nobody does.
pub(crate) struct Door {
    socket: Socket,
    /// Whether the machine wants connections from it.
    pub(crate) on: bool,
    /// Whether somebody may be waiting.
    pub(crate) waiting: bool,
    /// Set while the system has no descriptor for the next one.
    retry: Option<Mono>,
}

enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener, #[expect(dead_code, reason = "removes the file when dropped")] SocketFile),
}

/// What came of an accept.
pub(crate) enum Accepted {
    /// A connection.
    One(Stream, Endpoint),
    /// One that was gone before it was taken; there may be more.
    Gone,
    /// Nobody waits, or not now.
    None,
}

impl Door {
    /// How long after a failure the next accept is tried.
    const RETRY: Duration = Duration::from_millis(50);

    pub(crate) fn new(listener: Listener, registry: &Registry, token: Token) -> io::Result<Self> {
        let socket = match listener {
            Listener::Tcp(listener) => {
                send_at_once(&listener);
                let mut listener = TcpListener::from_std(listener);
                registry.register(&mut listener, token, Interest::READABLE)?;
                Socket::Tcp(listener)
            }
            Listener::Unix(listener, file) => {
                let mut listener = UnixListener::from_std(listener);
                registry.register(&mut listener, token, Interest::READABLE)?;
                Socket::Unix(listener, file)
            }
        };
        // Who came before the registration may not be told of.
        Ok(Self { socket, on: true, waiting: true, retry: None })
    }

    /// Whether an accept is worth trying now.
    pub(crate) const fn is_ready(&self) -> bool {
        self.on && self.waiting && self.retry.is_none()
    }

    /// When an accept that failed is to be tried again.
    pub(crate) fn deadline(&self) -> Option<Mono> {
        self.retry.filter(|_| self.on && self.waiting)
    }

    /// Ends the wait for a descriptor where it is over.
    pub(crate) fn timer(&mut self, now: Mono) {
        self.retry = self.retry.filter(|due| *due > now);
    }

    pub(crate) fn accept(&mut self, now: Mono) -> Accepted {
        let accepted = match &self.socket {
            Socket::Tcp(listener) => {
                listener.accept().map(|(stream, peer)| (Stream::Tcp(stream), Endpoint::Tcp(peer)))
            }
            Socket::Unix(listener, _) => listener.accept().map(|(stream, _)| {
                let peer = unix_endpoint(&stream);
                (Stream::Unix(stream), peer)
            }),
        };
        match accepted {
            Ok((stream, peer)) => Accepted::One(stream, peer),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.waiting = false;
                Accepted::None
            }
            Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {
                Accepted::Gone
            }
            // No descriptor or no memory left. Who waits goes on waiting and there will be no further event for it, so
            // that it is for the clock to try again.
            Err(_) => {
                self.retry = Some(now.after(Self::RETRY));
                Accepted::None
            }
        }
    }
}
