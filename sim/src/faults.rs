//! What a test does to a world.

use core::mem;
use core::ops::RangeInclusive;
use core::time::Duration;

use relay_core::machine::Address;

use crate::disk::DiskFault;
use crate::link::{LinkId, Side};
use crate::net::Splits;
use crate::node::{NodeId, State};
use crate::watch::Subject;
use crate::world::World;

/// Nodes.
impl<M: Subject> World<M> {
    /// Takes a node's power: nobody is told, and what no sync confirmed is lost, or kept as far as is drawn.
    ///
    /// # Panics
    /// Where something was visible that the journal lost, if a [`Witness`](crate::Witness) says what rests on what.
    pub fn crash(&mut self, node: NodeId) {
        if self.is_up(node) {
            let draws = self.core.draws;
            let shell = self.shell_mut(node);
            shell.keep_some(draws);
            let visible = shell.visible;
            shell.show(Some(visible), "before a crash what");
        }
        self.core.trace.note(self.core.now, node, "crash", 0, &[]);
        self.end_process(node, State::Dark);
    }

    /// Ends a node's process at once: its system closes its connections.
    pub fn kill(&mut self, node: NodeId) {
        if self.is_up(node) {
            let draws = self.core.draws;
            self.shell_mut(node).keep_some(draws);
        }
        self.core.trace.note(self.core.now, node, "kill", 0, &[]);
        self.end_process(node, State::Stopped);
    }

    /// Starts a node again, of what its disk kept; one that runs is killed first.
    pub fn restart(&mut self, node: NodeId) {
        if self.is_up(node) {
            self.kill(node);
        }
        self.start(node);
        self.core.retransmit(|link| link.concerns(node));
    }

    /// Holds a node's process, as a debugger or a collector does: nothing happens to it until it goes on.
    pub fn freeze(&mut self, node: NodeId) {
        self.shell_mut(node).frozen.get_or_insert_default();
    }

    /// Lets a held process go on: all that came meanwhile happens now, in its order.
    pub fn thaw(&mut self, node: NodeId) {
        let stash = mem::take(&mut self.shell_mut(node).frozen);
        for what in stash.into_iter().flatten() {
            self.core.queue.push(self.core.now, what);
        }
        self.read_all(node);
        self.arm(node);
    }

    /// Lets a node read nothing, or read again: what it is sent fills the windows.
    pub fn stall_reader(&mut self, node: NodeId, stalled: bool) {
        self.shell_mut(node).stalled = stalled;
        if !stalled {
            self.read_all(node);
        }
    }

    /// Moves a node's wall clock. No deadline may move with it.
    pub fn step_wall(&mut self, node: NodeId, millis: i64) {
        self.shell_mut(node).clock.wall_offset += millis;
    }

    /// Lets a node's monotonic clock run faster, or slower where it is negative, by so many millionths.
    pub fn drift(&mut self, node: NodeId, millionths: i32) {
        let now = self.core.now;
        let shell = self.shell_mut(node);
        shell.clock.set_drift(now, millionths);
        // An event for the old rate may come too late.
        shell.timer_at = None;
        self.arm(node);
    }
}

/// The network.
impl<M: Subject> World<M> {
    /// Lets nothing through between two nodes, and says nothing to either.
    pub fn cut(&mut self, one: NodeId, two: NodeId) {
        self.cut_one_way(one, two);
        self.cut_one_way(two, one);
    }

    /// Lets nothing through that one node sends the other.
    pub fn cut_one_way(&mut self, from: NodeId, to: NodeId) {
        self.core.net.cuts.insert((from, to));
    }

    /// Lets everything through again; what was lost meanwhile is sent again.
    pub fn heal(&mut self, one: NodeId, two: NodeId) {
        self.core.net.cuts.remove(&(one, two));
        self.core.net.cuts.remove(&(two, one));
        self.core.retransmit(|link| link.is_between(one, two));
    }

    /// Lets dials of an address be refused.
    pub fn refuse(&mut self, address: impl Into<Dialled>) {
        self.core.net.refused.insert(address.into().0);
    }

    /// Lets dials of an address have no answer.
    pub fn hang(&mut self, address: impl Into<Dialled>) {
        self.core.net.hung.insert(address.into().0);
    }

    /// Lets dials of an address come through again.
    pub fn serve(&mut self, address: impl Into<Dialled>) {
        let address = address.into().0;
        self.core.net.refused.remove(&address);
        self.core.net.hung.remove(&address);
    }

    /// Resets a link: both ends hear of it when it reaches them.
    pub fn reset(&mut self, link: LinkId) {
        self.core.reset(link, Side::Dialler);
        self.core.reset(link, Side::Acceptor);
    }

    /// How long bytes are under way, one way, unless a pair of nodes has its own time.
    pub fn latency(&mut self, range: RangeInclusive<Duration>) {
        self.core.net.latency = range;
    }

    /// How long bytes are under way between two nodes, one way.
    pub fn latency_between(&mut self, one: NodeId, two: NodeId, range: RangeInclusive<Duration>) {
        self.core.net.latencies.insert((one.min(two), one.max(two)), range);
    }

    /// Where the network cuts what is written from here on.
    pub const fn splits(&mut self, splits: Splits) {
        self.core.net.splits = splits;
    }

    /// Bytes that each direction of a link takes before it blocks; at least 1.
    pub fn window(&mut self, bytes: usize) {
        self.core.net.window = bytes.max(1);
    }

    /// Connections that wait at a listener that does not accept; past it dials have no answer.
    pub const fn backlog(&mut self, connections: usize) {
        self.core.net.backlog = connections;
    }

    /// When a dial without an answer fails.
    pub const fn dial_timeout(&mut self, span: Duration) {
        self.core.net.dial_timeout = span;
    }
}

/// Disks.
impl<M: Subject> World<M> {
    /// Lets a node's disk be full or fail, or work again.
    pub fn disk_fault(&mut self, node: NodeId, fault: Option<DiskFault>) {
        self.shell_mut(node).disk.set_fault(fault);
    }

    /// Lets a node's disk hang, which ends no sync and no action, or go on: what it would have ended it ends now, in order.
    pub fn stall_disk(&mut self, node: NodeId, stalled: bool) {
        if stalled {
            self.shell_mut(node).hung.get_or_insert_default();
            return;
        }
        let stash = mem::take(&mut self.shell_mut(node).hung);
        for what in stash.into_iter().flatten() {
            self.core.queue.push(self.core.now, what);
        }
    }

    /// How long a sync takes from here on.
    pub fn sync_time(&mut self, range: RangeInclusive<Duration>) {
        self.core.sync_time = range;
    }

    /// How long an action on files takes from here on.
    pub fn act_time(&mut self, range: RangeInclusive<Duration>) {
        self.core.act_time = range;
    }
}

/// An address that can be dialled: of TCP, or the path of a unix socket.
#[derive(Clone, Debug)]
pub struct Dialled(pub(crate) Address);

impl From<core::net::SocketAddr> for Dialled {
    fn from(address: core::net::SocketAddr) -> Self {
        Self(Address::Tcp(address))
    }
}

impl From<&str> for Dialled {
    fn from(path: &str) -> Self {
        Self(Address::Unix(path.into()))
    }
}
