//! The network: links between two ends, each way a bounded pipe of bytes that arrive later, cut anywhere.

use alloc::collections::{BTreeMap, BTreeSet};
use core::mem;
use core::ops::RangeInclusive;
use core::time::Duration;

use relay_core::machine::{Address, ConnId};
use relay_core::port::{Ending, Wrote};

use crate::draw::{Domain, Draws, key};
use crate::link::{End, EndStage, Landed, Link, LinkId, Pipe, Segment, Side};
use crate::node::NodeId;
use crate::queue::{Happening, Queue};
use crate::trace::Trace;

/// Where the network cuts what is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[allow(clippy::exhaustive_enums)]
pub enum Splits {
    /// At drawn places.
    #[default]
    Drawn,
    /// Nowhere: what is written at once arrives at once.
    Whole,
    /// Behind each byte.
    Bytes,
}

/// Time, order and network: what all nodes share.
pub(crate) struct Core {
    pub(crate) now: u64,
    pub(crate) draws: Draws,
    pub(crate) queue: Queue,
    pub(crate) trace: Trace,
    pub(crate) net: Net,
    pub(crate) sync_time: RangeInclusive<Duration>,
    pub(crate) act_time: RangeInclusive<Duration>,
}

pub(crate) struct Net {
    pub(crate) links: BTreeMap<LinkId, Link>,
    made: u32,
    pub(crate) listeners: BTreeMap<Address, (NodeId, u16)>,
    /// Directions in which nothing arrives.
    pub(crate) cuts: BTreeSet<(NodeId, NodeId)>,
    pub(crate) refused: BTreeSet<Address>,
    pub(crate) hung: BTreeSet<Address>,
    pub(crate) latency: RangeInclusive<Duration>,
    pub(crate) latencies: BTreeMap<(NodeId, NodeId), RangeInclusive<Duration>>,
    pub(crate) splits: Splits,
    /// Bytes that a direction takes before it blocks.
    pub(crate) window: usize,
    pub(crate) dial_timeout: Duration,
    pub(crate) backlog: usize,
}

impl Net {
    pub(crate) fn new() -> Self {
        Self {
            links: BTreeMap::new(),
            made: 0,
            listeners: BTreeMap::new(),
            cuts: BTreeSet::new(),
            refused: BTreeSet::new(),
            hung: BTreeSet::new(),
            latency: Duration::from_micros(100)..=Duration::from_millis(2),
            latencies: BTreeMap::new(),
            splits: Splits::Drawn,
            window: 64 << 10,
            dial_timeout: Duration::from_secs(10),
            backlog: 16,
        }
    }

    /// Who answers for an address: a node, and the listener where there is one.
    pub(crate) fn resolve(&self, address: &Address) -> Option<(NodeId, Option<u16>)> {
        if let Some((node, listener)) = self.listeners.get(address) {
            return Some((*node, Some(*listener)));
        }
        let Address::Tcp(tcp) = address else { return None };
        NodeId::of(tcp.ip()).map(|node| (node, None))
    }

    pub(crate) fn is_cut(&self, from: NodeId, to: NodeId) -> bool {
        self.cuts.contains(&(from, to))
    }

    fn latency_of(&self, link: &Link) -> &RangeInclusive<Duration> {
        let (one, two) = (link.ends[0].node, link.ends[1].node);
        self.latencies.get(&(one.min(two), one.max(two))).unwrap_or(&self.latency)
    }
}

impl Core {
    /// How long a dialler waits before it knocks again.
    const KNOCK_AGAIN: Duration = Duration::from_secs(1);

    pub(crate) fn new(seed: u64) -> Self {
        Self {
            now: 0,
            draws: Draws::new(seed),
            queue: Queue::default(),
            trace: Trace::new(),
            net: Net::new(),
            sync_time: Duration::from_micros(200)..=Duration::from_millis(1),
            act_time: Duration::from_micros(200)..=Duration::from_millis(2),
        }
    }

    /// The instant `span` from now.
    pub(crate) fn after(&self, span: Duration) -> u64 {
        self.now.saturating_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))
    }

    /// Makes a link and sends the first packet. `nth` counts the dials of this address by this node.
    pub(crate) fn dial(&mut self, node: NodeId, conn: ConnId, address: &Address, nth: u64) -> LinkId {
        let id = LinkId(self.net.made);
        self.net.made += 1;
        let target = self.net.resolve(address).map_or(node, |(target, _)| target);
        let place = format!("{address:?}").bytes().fold(0, |hash, byte| key(hash, u64::from(byte)));
        let entity = key(key(u64::from(node.number()), place), nth);
        let end = |node, conn| End { node, stage: EndStage::Opening, conn, reading: true };
        let link = Link {
            entity,
            address: address.clone(),
            ends: [end(node, Some(conn)), end(target, None)],
            pipes: [Pipe::default(), Pipe::default()],
        };
        self.net.links.insert(id, link);
        self.queue.push(self.arrival(id, Side::Dialler), Happening::Knock { link: id });
        self.queue.push(self.after(self.net.dial_timeout), Happening::DialTimeout { link: id });
        id
    }

    /// Lets a dial that was not heard knock again later.
    pub(crate) fn knock_again(&mut self, link: LinkId) {
        self.queue.push(self.after(Self::KNOCK_AGAIN), Happening::Knock { link });
    }

    /// The dialler will hear that it is connected.
    pub(crate) fn answer(&mut self, id: LinkId) {
        let at = self.arrival(id, Side::Acceptor);
        if let Some(link) = self.net.links.get_mut(&id) {
            link.pipe_mut(Side::Acceptor).last_arrival = at;
        }
        self.queue.push(at, Happening::Answered { link: id });
    }

    /// Takes what the window has room for.
    pub(crate) fn write(&mut self, id: LinkId, from: Side, bytes: &[u8]) -> Wrote {
        let (now, window, splits) = (self.now, self.net.window, self.net.splits);
        let Some(link) = self.net.links.get_mut(&id) else { return Wrote::Blocked };
        let back_cut = self.net.cuts.contains(&(link.end(from.other()).node, link.end(from).node));
        let pipe = link.pipe_mut(from);
        while let Some((at, room)) = pipe.acks.front().copied()
            && at <= now
            && !back_cut
        {
            pipe.used -= room;
            pipe.acks.pop_front();
        }
        let count = bytes.len().min(window.saturating_sub(pipe.used));
        if count == 0 {
            pipe.blocked = true;
            if let Some((at, _)) = pipe.acks.front()
                && !back_cut
            {
                self.queue.push((*at).max(now), Happening::Window { link: id, of: from });
            }
            return Wrote::Blocked;
        }
        pipe.used += count;
        let mut rest = &bytes[..count];
        while !rest.is_empty() {
            let taken = match splits {
                Splits::Whole => rest.len(),
                Splits::Bytes => 1,
                Splits::Drawn => self.draw_split(id, from, rest.len()),
            };
            let (segment, behind) = rest.split_at(taken);
            rest = behind;
            self.send(id, from, Some(segment.to_vec()));
        }
        Wrote::Bytes(count)
    }

    /// Ends the stream of one side.
    pub(crate) fn finish(&mut self, id: LinkId, from: Side) {
        let Some(link) = self.net.links.get_mut(&id) else { return };
        if !mem::replace(&mut link.pipe_mut(from).fin_sent, true) {
            self.send(id, from, None);
        }
    }

    /// One side's owner forgets it, in order or with a reset.
    pub(crate) fn close(&mut self, id: LinkId, side: Side, how: Ending) {
        let Some(link) = self.net.links.get_mut(&id) else { return };
        let was = mem::replace(&mut link.end_mut(side).stage, EndStage::Gone);
        link.end_mut(side).conn = None;
        let unread = !link.pipe(side.other()).inbox.is_empty();
        let never_heard = link.end(side.other()).stage == EndStage::Opening && side == Side::Dialler;
        if link.is_gone() || never_heard {
            self.net.links.remove(&id);
            return;
        }
        // A unix socket has no reset to send, but the one for what it never read.
        let resets = how == Ending::Reset && matches!(link.address, Address::Tcp(_));
        match was {
            EndStage::Opening | EndStage::Gone => {}
            // What was sent and never read is answered with a reset.
            EndStage::Waiting | EndStage::Open if unread || resets => self.reset(id, side),
            EndStage::Waiting | EndStage::Open => self.finish(id, side),
        }
    }

    /// One side has its connection.
    pub(crate) fn open(&mut self, id: LinkId, side: Side, conn: ConnId) {
        if let Some(link) = self.net.links.get_mut(&id) {
            let end = link.end_mut(side);
            end.stage = EndStage::Open;
            end.conn = Some(conn);
        }
    }

    /// One side's owner is gone, and the other end hears nothing.
    pub(crate) fn forget(&mut self, id: LinkId, side: Side) {
        let Some(link) = self.net.links.get_mut(&id) else { return };
        let lost = self.net.cuts.contains(&(link.end(side).node, link.end(side.other()).node));
        link.end_mut(side).stage = EndStage::Gone;
        link.end_mut(side).conn = None;
        link.pipe_mut(side.other()).inbox.clear();
        if lost {
            // There is nobody left who would send it again.
            link.pipe_mut(side).flight.clear();
        }
        // A dial that nobody waits for, and that nobody has heard of.
        let unheard = side == Side::Dialler && link.end(Side::Acceptor).stage == EndStage::Opening;
        if link.is_gone() || unheard {
            self.net.links.remove(&id);
        }
    }

    /// Sends a reset.
    pub(crate) fn reset(&mut self, id: LinkId, from: Side) {
        if self.net.links.contains_key(&id) {
            let at = self.arrival(id, from);
            self.queue.push(at, Happening::Reset { link: id, from });
        }
    }

    /// Moves what has arrived from `from` into the other end's inbox.
    pub(crate) fn land(&mut self, id: LinkId, from: Side) -> Landed {
        let now = self.now;
        let Some(link) = self.net.links.get_mut(&id) else { return Landed::Nothing };
        let pipe = link.pipe_mut(from);
        let mut landed = Landed::Nothing;
        while pipe.flight.front().is_some_and(|segment| segment.at <= now) {
            if let Some(bytes) = pipe.flight.pop_front().and_then(|segment| segment.bytes) {
                pipe.inbox.extend_from_slice(&bytes);
                landed = Landed::Bytes;
            } else {
                pipe.fin_arrived = true;
                landed = landed.max(Landed::Fin);
            }
        }
        landed
    }

    /// Whether a side has ended its stream.
    pub(crate) fn has_finished(&self, id: LinkId, side: Side) -> bool {
        self.net.links.get(&id).is_some_and(|link| link.pipe(side).fin_sent)
    }

    /// Takes all that `from` sent and that waits to be read, and lets the sender hear of the room.
    pub(crate) fn take_inbox(&mut self, id: LinkId, from: Side) -> Vec<u8> {
        let at = self.arrival(id, from.other());
        let Some(link) = self.net.links.get_mut(&id) else { return Vec::new() };
        let pipe = link.pipe_mut(from);
        let bytes = mem::take(&mut pipe.inbox);
        if !bytes.is_empty() {
            let at = pipe.acks.back().map_or(at, |(last, _)| at.max(*last));
            pipe.acks.push_back((at, bytes.len()));
            if pipe.blocked {
                self.queue.push(at, Happening::Window { link: id, of: from });
            }
        }
        bytes
    }

    /// Whether a side that was blocked may write again; it is told so once.
    pub(crate) fn unblock(&mut self, id: LinkId, side: Side) -> bool {
        let Some(link) = self.net.links.get_mut(&id) else { return false };
        let cut = self.net.cuts.contains(&(link.end(side.other()).node, link.end(side).node));
        !cut && mem::replace(&mut link.pipe_mut(side).blocked, false)
    }

    /// Sends everything again that was lost between two nodes, now that it can arrive.
    pub(crate) fn retransmit(&mut self, concerns: impl Fn(&Link) -> bool) {
        let ids: Vec<_> =
            self.net.links.iter().filter(|(_, link)| concerns(link)).map(|(id, _)| *id).collect();
        for id in ids {
            for from in [Side::Dialler, Side::Acceptor] {
                self.queue.push(self.now, Happening::Window { link: id, of: from });
                let at = self.fresh_arrival(id, from);
                let Some(link) = self.net.links.get_mut(&id) else { continue };
                if !link.is_flying(from) {
                    continue;
                }
                let pipe = link.pipe_mut(from);
                for segment in &mut pipe.flight {
                    segment.at = segment.at.max(at);
                }
                pipe.last_arrival = pipe.last_arrival.max(at);
                self.queue.push(at, Happening::Arrive { link: id, from });
            }
        }
    }

    fn send(&mut self, id: LinkId, from: Side, bytes: Option<Vec<u8>>) {
        let at = self.arrival(id, from);
        let Some(link) = self.net.links.get_mut(&id) else { return };
        let pipe = link.pipe_mut(from);
        pipe.written += bytes.as_ref().map_or(0, |bytes| bytes.len() as u64);
        // What arrives at the same instant is read together.
        if pipe.flight.back().is_none_or(|last| last.at != at) {
            self.queue.push(at, Happening::Arrive { link: id, from });
        }
        pipe.flight.push_back(Segment { at, bytes });
        pipe.last_arrival = at;
    }

    /// When something sent now arrives: never before what was sent earlier.
    fn arrival(&self, id: LinkId, from: Side) -> u64 {
        let last = self.net.links.get(&id).map_or(0, |link| link.pipe(from).last_arrival);
        self.fresh_arrival(id, from).max(last)
    }

    fn fresh_arrival(&self, id: LinkId, from: Side) -> u64 {
        let Some(link) = self.net.links.get(&id) else { return self.now };
        // A process of the same machine is reached at once, nearly.
        if !matches!(link.address, Address::Tcp(_)) {
            return self.after(Duration::from_micros(10));
        }
        let range = self.net.latency_of(link);
        let entity = key(link.entity, from.index() as u64);
        self.after(self.draws.span(Domain::Latency, entity, link.pipe(from).written, range))
    }

    fn draw_split(&self, id: LinkId, from: Side, len: usize) -> usize {
        let Some(link) = self.net.links.get(&id) else { return len };
        let (entity, place) = (key(link.entity, from.index() as u64), link.pipe(from).written);
        // Half of all writes stay whole; short cuts are as likely as long ones.
        let drawn = self.draws.draw(Domain::Split, entity, place);
        if drawn & 1 == 0 {
            return len;
        }
        let bits = u64::from(len.ilog2()) + 1;
        let most = 1_u64 << self.draws.below(Domain::Split, entity ^ 1, place, bits + 1);
        let cut = self.draws.below(Domain::Split, entity ^ 2, place, most.min(len as u64)) + 1;
        cut as usize
    }
}
