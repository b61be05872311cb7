//! One node: a host, a disk, clocks, and what its driver would hold.

use alloc::collections::{BTreeMap, VecDeque};
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::time::Duration;

use relay_core::action::{ActId, Action};
use relay_core::host::Host;
use relay_core::journal::{Journal, Records, Seq};
use relay_core::machine::{Address, ConnId, Machine, Refused, Ticket};
use relay_core::time::{Mono, Now, Wall};

use crate::disk::Disk;
use crate::draw::Domain;
use crate::link::{LinkId, Side};
use crate::net::Core;
use crate::queue::Happening;
use crate::stranger::Inhabitant;
use crate::watch::Watched;

/// A node of a world, in the order in which they were made.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub(crate) u16);

impl NodeId {
    /// Its place, from 0.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0 as u32
    }

    /// An address of this node.
    #[must_use]
    pub const fn at(self, port: u16) -> SocketAddr {
        let [high, low] = self.0.to_be_bytes();
        SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 1, high, low)), port)
    }

    /// The node that an address belongs to, whether there is one or not.
    pub(crate) const fn of(address: IpAddr) -> Option<Self> {
        match address {
            IpAddr::V4(v4) => match v4.octets() {
                [10, 1, high, low] => Some(Self(u16::from_be_bytes([high, low]))),
                _ => None,
            },
            IpAddr::V6(_) => None,
        }
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "n{}", self.0)
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A node between two starts: what was set for an earlier one is void.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Life {
    pub(crate) node: NodeId,
    pub(crate) boot: u32,
}

pub(crate) type Build<M> = Box<dyn FnMut(NodeId, u32, &mut Disk) -> Inhabitant<M>>;

pub(crate) struct Node<M: Machine> {
    pub(crate) host: Option<Host<Watched<M>>>,
    pub(crate) build: Build<M>,
    pub(crate) shell: Shell<M>,
}

/// How a node is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// It runs.
    Up,
    /// Its process ended; the system under it answers for it.
    Stopped,
    /// It lost its power: nothing answers.
    Dark,
}

/// All of a node that is not its host.
pub(crate) struct Shell<M: Machine> {
    pub(crate) id: NodeId,
    pub(crate) boot: u32,
    pub(crate) state: State,
    pub(crate) disk: Disk,
    pub(crate) clock: Clock,
    pub(crate) conns: BTreeMap<ConnId, (LinkId, Side)>,
    /// Ids that ended in this turn, whose `Closed` must have come at its end.
    pub(crate) ended: Vec<ConnId>,
    pub(crate) listeners: Vec<Listener>,
    /// How often each address was dialled, so that a link's draws hang on nothing else.
    pub(crate) dials: BTreeMap<Address, u64>,
    pub(crate) log: Log,
    pub(crate) acts: BTreeMap<ActId, Action>,
    pub(crate) acts_done_at: u64,
    pub(crate) timer_at: Option<u64>,
    pub(crate) events: Vec<(Duration, M::Event)>,
    pub(crate) answers: Vec<Answered<M::Answer>>,
    /// What came while the process was held; `None` where it is not.
    pub(crate) frozen: Option<Vec<Happening>>,
    pub(crate) stalled: bool,
    /// What the disk would have ended while it hangs; `None` where it does not.
    pub(crate) hung: Option<Vec<Happening>>,
    pub(crate) congested: bool,
    /// The newest record that something visible rested on.
    pub(crate) visible: Seq,
    /// The unread tail of each stream, for the witness.
    pub(crate) tails: BTreeMap<ConnId, Vec<u8>>,
}

pub(crate) struct Answered<A> {
    pub(crate) boot: u32,
    pub(crate) ticket: Ticket,
    pub(crate) at: Duration,
    pub(crate) answer: Result<A, Refused>,
}

pub(crate) struct Listener {
    pub(crate) address: Address,
    pub(crate) accepting: bool,
    pub(crate) backlog: VecDeque<LinkId>,
}

impl<M: Machine> Shell<M> {
    pub(crate) fn new(id: NodeId) -> Self {
        Self {
            id,
            boot: 0,
            state: State::Stopped,
            disk: Disk::default(),
            clock: Clock::default(),
            conns: BTreeMap::new(),
            ended: Vec::new(),
            listeners: Vec::new(),
            dials: BTreeMap::new(),
            log: Log::default(),
            acts: BTreeMap::new(),
            acts_done_at: 0,
            timer_at: None,
            events: Vec::new(),
            answers: Vec::new(),
            frozen: None,
            stalled: false,
            hung: None,
            congested: false,
            visible: Seq::NONE,
            tails: BTreeMap::new(),
        }
    }

    pub(crate) const fn life(&self) -> Life {
        Life { node: self.id, boot: self.boot }
    }

    /// Whether it takes what its sockets hold.
    pub(crate) const fn reads(&self) -> bool {
        matches!(self.state, State::Up) && !self.stalled && !self.congested && self.frozen.is_none()
    }

    /// Starts to sync all that waits, unless a sync is under way: what queues meanwhile goes with the next.
    pub(crate) fn start_sync(&mut self, core: &mut Core) {
        if self.log.busy || self.log.batches() == 0 {
            return;
        }
        self.log.busy = true;
        self.log.syncing.append(&mut self.log.waiting);
        self.log.syncs += 1;
        let entity = u64::from(self.id.number());
        let span = core.draws.span(Domain::Sync, entity, self.log.syncs, &core.sync_time);
        core.queue.push(core.after(span), Happening::Synced { life: self.life() });
    }

    /// Takes an answer: at most one for each ticket.
    pub(crate) fn answered(&mut self, now: u64, ticket: Ticket, answer: Result<M::Answer, Refused>) {
        let boot = self.boot;
        let again = self.answers.iter().any(|known| known.boot == boot && known.ticket == ticket);
        assert!(!again, "rule broken: a command is answered exactly once: {ticket:?} of {}", self.id);
        self.answers.push(Answered { boot, ticket, at: Duration::from_nanos(now), answer });
    }

    /// Says that something that rests on `seq` can be seen.
    pub(crate) fn show(&mut self, seq: Option<Seq>, what: &str) {
        let Some(seq) = seq else { return };
        let newest = self.disk.newest();
        assert!(
            seq <= newest,
            "rule broken: durable before visible: {} shows {what} that rests on {seq:?}; {newest:?} is durable",
            self.id
        );
        self.visible = self.visible.max(seq);
    }
}

/// Batches between a host and its disk.
#[derive(Default)]
pub(crate) struct Log {
    pub(crate) waiting: VecDeque<Records>,
    pub(crate) syncing: VecDeque<Records>,
    /// Whether a sync or the wait for a reopening is under way.
    pub(crate) busy: bool,
    pub(crate) failed: bool,
    pub(crate) syncs: u64,
    pub(crate) spare: Vec<Records>,
}

impl Log {
    fn batches(&self) -> usize {
        self.waiting.len() + self.syncing.len()
    }
}

/// A node's clocks, as functions of the world's time.
#[derive(Clone, Copy, Default)]
pub(crate) struct Clock {
    /// A pair of instants that fall together: the world's, and the node's.
    anchor: (u64, u64),
    /// How much faster it runs, in millionths.
    drift: i32,
    /// What the wall clock is off, in milliseconds.
    pub(crate) wall_offset: i64,
}

impl Clock {
    /// The wall clock at the world's start: 2025-01-01, in milliseconds since the epoch.
    const WALL_AT_START: i64 = 1_735_689_600_000;
    const MILLION: i64 = 1_000_000;

    pub(crate) fn read(&self, now: u64) -> Now {
        let wall = Self::WALL_AT_START + (now / 1_000_000) as i64 + self.wall_offset;
        Now { mono: Mono::from_nanos(self.mono(now)), wall: Wall::from_millis(wall.max(0) as u64) }
    }

    /// The first instant of the world at which this clock shows `due` or later.
    pub(crate) fn reaches(&self, due: Mono) -> u64 {
        let span = u128::from(due.as_nanos().saturating_sub(self.anchor.1));
        let rate = self.rate();
        let passed = (span * Self::MILLION as u128).div_ceil(rate);
        u64::try_from(u128::from(self.anchor.0) + passed).unwrap_or(u64::MAX)
    }

    /// Lets it run faster or slower from `now` on.
    pub(crate) fn set_drift(&mut self, now: u64, drift: i32) {
        self.anchor = (now, self.mono(now));
        self.drift = drift;
    }

    fn mono(&self, now: u64) -> u64 {
        let span = u128::from(now - self.anchor.0) * self.rate() / Self::MILLION as u128;
        self.anchor.1 + span as u64
    }

    fn rate(&self) -> u128 {
        (Self::MILLION + i64::from(self.drift)).max(1) as u128
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_leads_back_to_its_node() {
        let node = NodeId(700);
        assert_eq!(NodeId::of(node.at(80).ip()), Some(node));
        assert_eq!(NodeId::of(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1))), None);
    }

    #[test]
    fn a_clock_that_drifts_reaches_an_instant_exactly_when_it_shows_it() {
        let mut clock = Clock::default();
        clock.set_drift(5, -300);
        clock.set_drift(1_000_003, 777);
        for due in [1_000_000, 1_000_001, 9_999_999, 123_456_789] {
            let at = clock.reaches(Mono::from_nanos(due));
            assert!(clock.read(at).mono.as_nanos() >= due);
            assert!(at == 1_000_003 || clock.read(at - 1).mono.as_nanos() < due);
        }
    }
}
