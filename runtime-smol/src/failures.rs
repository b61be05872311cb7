//! Failures of sockets that nobody reads any more.

use std::io;
use std::task::{Context, Poll};

use crate::net::Socket;

/// A socket's slot and generation.
pub(crate) type Watched = (u32, u32);

/// Watches sockets for a failure alone, from the peer's half-close on.
///
/// To the reactor such a socket is readable and writable for ever, so that nobody can wait there for its reset. A poll of
/// its own asks for neither and is told of failures all the same, and the reactor watches that poll. Where the system
/// has none of the kind, the next write finds out.
pub(crate) struct Failures {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    poll: async_io::Async<std::os::fd::OwnedFd>,
}

#[cfg(any(target_os = "linux", target_os = "android"))]
impl Failures {
    /// Failures that are taken at once.
    const MOST: usize = 64;

    pub(crate) fn new() -> io::Result<Self> {
        use rustix::event::epoll;
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Self { poll: async_io::Async::new(poll)? })
    }

    /// Watches a socket until it is closed.
    pub(crate) fn watch(&self, (slot, generation): Watched, socket: &Socket) {
        use rustix::event::epoll;
        let data = epoll::EventData::new_u64(u64::from(slot) << 32 | u64::from(generation));
        // Of a socket that cannot be watched the next write tells.
        let _ = epoll::add(&self.poll, socket, data, epoll::EventFlags::ET);
    }

    /// Those that failed, or that have ended in both directions.
    pub(crate) fn poll_failed(&self, context: &mut Context<'_>) -> Poll<Vec<Watched>> {
        use rustix::buffer::spare_capacity;
        use rustix::event::epoll;
        let mut events = Vec::with_capacity(Self::MOST);
        loop {
            let taken = epoll::wait(
                &self.poll,
                spare_capacity(&mut events),
                Some(&rustix::time::Timespec::default()),
            );
            if taken.is_ok_and(|count| count > 0) {
                let watched = events.iter().map(|event| event.data.u64());
                return Poll::Ready(watched.map(|data| ((data >> 32) as u32, data as u32)).collect());
            }
            // An error of the reactor's ends the watch.
            match self.poll.poll_readable(context) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) | Poll::Pending => return Poll::Pending,
            }
        }
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
impl Failures {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {})
    }

    pub(crate) fn watch(&self, _watched: Watched, _socket: &Socket) {}

    pub(crate) fn poll_failed(&self, _context: &mut Context<'_>) -> Poll<Vec<Watched>> {
        Poll::Pending
    }
}
