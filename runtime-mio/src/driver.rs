//! The loop.

use std::io::{self, ErrorKind};
use std::time::Duration;

use mio::{Events, Poll};
use relay_core::host::Host;
use relay_core::machine::{CloseReason, DialError, ListenerId, Machine};
use relay_core::time::Now;
use relay_runtime::{Clock, Desk, Listener};

use crate::listen::Accepted;
use crate::net::{Net, Notice, Read};

/// Events that one poll gives; the rest comes with the next.
const EVENTS: usize = 1024;
/// Reads of one turn, one a connection: so long does a timer or a command wait at most.
const READS: usize = 256;
/// Connections that one listener gives in one turn, so that a flood of callers does not starve those that are here.
const ACCEPTS: usize = 32;
/// The longest sleep. The poll's clock stands still while the system is suspended and the machine's does not: so late
/// may a deadline be seen after a suspend.
const LONGEST_SLEEP: Duration = Duration::from_secs(10);

/// A host with its sockets.
pub(crate) struct Driver<M: Machine + 'static> {
    host: Host<M>,
    net: Net<M>,
    poll: Poll,
    clock: Clock,
    /// All reads go through it, one after the other.
    buffer: Box<[u8]>,
}

impl<M: Machine + 'static> Driver<M> {
    pub(crate) fn new(
        host: Host<M>,
        poll: Poll,
        listeners: Vec<Listener>,
        desk: Desk<M>,
    ) -> io::Result<Self> {
        let net = Net::new(poll.registry().try_clone()?, listeners, desk)?;
        let buffer = vec![0; Host::<M>::MAX_READ].into_boxed_slice();
        Ok(Self { host, net, poll, clock: Clock, buffer })
    }

    /// Runs until the host is done. What is left is stopped, and the desk refuses what has no answer.
    pub(crate) fn run(mut self) {
        let mut events = Events::with_capacity(EVENTS);
        let mut more = true;
        loop {
            let wait = self.wait(more);
            let asleep = wait != Some(Duration::ZERO);
            match self.poll.poll(&mut events, wait) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => events.clear(),
                Err(error) => {
                    panic!("a poll fails only for a descriptor or a buffer that are not ours: {error}")
                }
            }
            if asleep {
                self.net.desk.woke();
            }
            let now = self.clock.now();
            self.net.now = now.mono;
            for event in &events {
                self.notice(now, event);
            }
            self.ring(now);
            self.accept(now);
            self.read(now);
            self.net.desk.deliver(&mut self.host, now);
            self.host.timer(now);
            more = self.host.settle(now, &mut self.net);
            for (conn, why) in self.net.dials.take_failed() {
                self.host.closed(now, conn, CloseReason::DialFailed(why));
                more = true;
            }
            if self.host.is_done(now) {
                self.host.stop(now, &mut self.net);
                return;
            }
        }
    }

    /// How long to sleep: not at all where there is more to do, and then the desk is not told of a sleep.
    fn wait(&mut self, more: bool) -> Option<Duration> {
        let due = [self.host.deadline(), self.net.deadline()].into_iter().flatten().min();
        let work = !self.host.is_congested() && (self.net.ready() > 0 || self.net.has_callers());
        let now = self.clock.now().mono;
        if more || work || due.is_some_and(|due| due <= now) || !self.net.desk.sleep() {
            return Some(Duration::ZERO);
        }
        due.map(|due| due.since(now).min(LONGEST_SLEEP))
    }

    fn notice(&mut self, now: Now, event: &mio::event::Event) {
        match self.net.notice(event) {
            Notice::None => {}
            Notice::Writable(conn) => self.host.writable(conn),
            Notice::Dialled(conn, peer) => self.host.dialled(now, conn, &peer, None),
            Notice::Failed(conn, why) => {
                self.net.forget(conn);
                self.host.closed(now, conn, why);
            }
        }
    }

    /// Does what is due here: dials to be given up or begun again, accepts to be tried again.
    fn ring(&mut self, now: Now) {
        while let Some(conn) = self.net.dials.overdue(now.mono) {
            if self.net.give_up(conn) {
                self.host.closed(now, conn, CloseReason::DialFailed(DialError::TimedOut));
            }
        }
        self.net.dial_again();
        for door in &mut self.net.doors {
            door.timer(now.mono);
        }
    }

    fn accept(&mut self, now: Now) {
        for (index, listener) in (0..self.net.doors.len()).zip(0..) {
            for _ in 0..ACCEPTS {
                if self.host.is_congested() || !self.net.doors[index].is_ready() {
                    break;
                }
                let (stream, peer) = match self.net.doors[index].accept(now.mono) {
                    Accepted::One(stream, peer) => (stream, peer),
                    Accepted::Gone => continue,
                    Accepted::None => break,
                };
                // Where the host has no room, dropping the stream closes it.
                let Some(conn) = self.host.accepted(now, ListenerId(listener), &peer, None) else { continue };
                if !self.net.insert(conn, stream, false) {
                    self.host.closed(now, conn, CloseReason::Failed);
                }
            }
        }
    }

    fn read(&mut self, now: Now) {
        for _ in 0..self.net.ready().min(READS) {
            if self.host.is_congested() {
                return;
            }
            let Some(conn) = self.net.next_ready() else { return };
            match self.net.read(conn, &mut self.buffer) {
                Read::Bytes(count) => self.host.received(now, conn, &self.buffer[..count]),
                Read::Eof => self.host.eof(now, conn),
                Read::Failed(why) => {
                    self.net.forget(conn);
                    self.host.closed(now, conn, why);
                }
                Read::Nothing => {}
            }
        }
    }
}
