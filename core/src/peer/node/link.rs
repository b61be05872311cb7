//! A lasting link: how it is registered, lives and ends.

use alloc::boxed::Box;
use core::net::SocketAddr;

use super::state::{Link, Place, State};
use super::{Node, Out};
use crate::frame::{Cutter, Framing};
use crate::machine::{CloseReason, ConnId};
use crate::message::{Envelope, Feature, FeatureSet};
use crate::outbox::{Close, Limits};
use crate::peer::backoff::Backoff;
use crate::peer::book::PeerIndex;
use crate::peer::command::{Direction, DownReason, Event};
use crate::peer::fault::Fault;
use crate::peer::life::Life;
use crate::time::Now;

/// What a handshake led to, at either end.
#[derive(Debug)]
pub(super) struct Agreed {
    pub(super) peer: PeerIndex,
    pub(super) direction: Direction,
    pub(super) features: FeatureSet,
    pub(super) proto: u8,
    pub(super) address: Option<SocketAddr>,
    pub(super) version: Option<Box<str>>,
}

impl Agreed {
    pub(super) const fn framing(&self) -> Framing {
        if self.features.contains(Feature::FrameBin) { Framing::Binary } else { Framing::Ndjson }
    }
}

/// Which of two links of one pair is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// The one that stands.
    Incumbent,
    /// The new one; the other ends for this reason.
    Newcomer(DownReason),
}

/// What a link may have unsent: the defaults, but for a cap that holds the largest frames of several answers.
const LIMITS: Limits = Limits { high: 256 << 10, low: 64 << 10, cap: 8 << 20 };
/// Heartbeats in a row that find the peer's socket stuck, after which it counts as one that does not read.
const STUCK_BEATS: u8 = 3;

impl Node {
    /// Registers a link that was just agreed, or closes it where the pair's other link is kept. False in that case.
    pub(super) fn establish(&mut self, now: Now, conn: ConnId, agreed: Agreed, out: &mut Out) -> bool {
        let peer = agreed.peer;
        if let Some(incumbent) = self.book.get(peer).link {
            match self.verdict(incumbent, agreed.direction, peer) {
                Verdict::Incumbent => {
                    self.set_state(conn, State::Closing);
                    out.close(conn, Close::Flush);
                    // The peer took the trouble to dial, so it may not know of the link that stands; if its end is gone,
                    // writing to it shows that now and not after three intervals.
                    self.beat(now, incumbent, out);
                    return false;
                }
                Verdict::Newcomer(reason) => self.end_link(now, incumbent, reason, Close::Flush, out),
            }
        }
        let framing = agreed.framing();
        let mut cutter = self.cutter(conn).map_or_else(|| Cutter::new(Framing::Ndjson), core::mem::take);
        cutter.set_framing(framing);
        let noise = self.entropy.draw_u64();
        let link = Link {
            peer,
            direction: agreed.direction,
            features: agreed.features,
            proto: agreed.proto,
            eof: false,
            owed: 0,
            stuck: 0,
            cutter,
            life: Life::new(now.mono),
            next_beat: self.first_beat(now, noise),
            partial: false,
            since: now.mono,
            taken: out.progress(conn) as u32,
            address: agreed.address.map(Place::new),
            version: agreed.version.map(|version| self.versions.share(&version)),
        };
        let view = self.view(&link);
        out.limit(conn, LIMITS);
        self.set_state(conn, State::Link(link));
        self.links += 1;
        let known = self.book.get_mut(peer);
        known.link = Some(conn);
        known.linked_at = now.mono;
        self.redials.set(peer, None);
        out.event_free(Event::LinkUp(view));
        self.beat(now, conn, out);
        self.arm(conn);
        true
    }

    /// Same direction: the newer link, since the older one's peer has gone. Opposite directions: the one that the end
    /// with the lower id dialled, whichever came first, so that both ends keep the same one.
    fn verdict(&self, incumbent: ConnId, newcomer: Direction, peer: PeerIndex) -> Verdict {
        let Some(State::Link(link)) = self.state(incumbent) else {
            return Verdict::Newcomer(DownReason::Replaced);
        };
        // One that its peer has half-closed loses to anything.
        if link.direction == newcomer || link.eof {
            return Verdict::Newcomer(DownReason::Replaced);
        }
        let we_are_lower = self.settings.id < self.book.get(peer).id;
        let lower_dialled_newcomer = (newcomer == Direction::Outbound) == we_are_lower;
        if lower_dialled_newcomer { Verdict::Newcomer(DownReason::Collision) } else { Verdict::Incumbent }
    }

    pub(super) fn link_frame(&mut self, now: Now, conn: ConnId, envelope: &Envelope<'_>, out: &mut Out) {
        let Some(State::Link(link)) = self.state_mut(conn) else { return };
        link.life.frame(now.mono);
        link.partial = false;
        let (peer, features, framing) = (link.peer, link.features, link.cutter.framing());
        self.dispatch(now, conn, peer, features, framing, envelope, out);
        self.hold_back(now, conn, out);
    }

    /// A peer that does not read what it asked for is not listened to until it does.
    fn hold_back(&mut self, now: Now, conn: ConnId, out: &mut Out) {
        if out.room(conn) > 0 {
            return;
        }
        if let Some(State::Link(link)) = self.state_mut(conn) {
            link.life.reading(false, now.mono);
            // The rest of a frame cannot come while nobody reads.
            link.partial = false;
            out.pause(conn);
        }
    }

    pub(super) fn drained(&mut self, now: Now, conn: ConnId) {
        if let Some(State::Link(link)) = self.state_mut(conn) {
            link.life.reading(true, now.mono);
            link.partial = link.cutter.is_partial();
            if link.partial {
                link.since = now.mono;
            }
        }
        self.arm(conn);
    }

    pub(super) fn link_due(&mut self, now: Now, conn: ConnId, out: &mut Out) {
        let own = self.settings.heartbeat;
        let owed_due = match self.state(conn) {
            Some(State::Link(link)) => link.owed_due(&self.settings),
            Some(_) | None => None,
        };
        let Some(State::Link(link)) = self.state_mut(conn) else { return };
        if out.is_congested() || (out.waits_for_turn(conn) && !out.is_paused(conn)) {
            // It is not read just now, so it cannot be heard.
            link.life.frame(now.mono);
            if link.partial {
                link.since = now.mono;
            }
        }
        let is_due = |due: Option<crate::time::Mono>| due.is_some_and(|due| due <= now.mono);
        if is_due(link.life.deadline(own)) {
            self.end_link(now, conn, DownReason::Silent, Close::Abort, out);
        } else if is_due(link.frame_due()) {
            self.fault(now, conn, Fault::SlowFrame, out);
        } else if is_due(owed_due) {
            self.end_link(now, conn, DownReason::PeerClosed, Close::Flush, out);
        } else if is_due(Some(link.next_beat)) {
            link.next_beat = link.next_beat.after(own).max(now.mono.after(own / 2));
            let taken = out.progress(conn) as u32;
            let stuck = out.unsent(conn) > 0 && taken == link.taken;
            link.stuck = if stuck { link.stuck + 1 } else { 0 };
            link.taken = taken;
            if link.stuck >= STUCK_BEATS {
                self.end_link(now, conn, DownReason::NotReading, Close::Abort, out);
            } else if !stuck {
                // One that cannot leave says nothing; it would only queue behind the last.
                self.beat(now, conn, out);
            }
        }
        self.arm(conn);
    }

    /// The peer's half-close: what it asked before is answered, then the link ends.
    pub(super) fn link_eof(&mut self, now: Now, conn: ConnId, out: &mut Out) {
        let Some(State::Link(link)) = self.state_mut(conn) else { return };
        link.eof = true;
        if link.owed == 0 {
            self.end_link(now, conn, DownReason::PeerClosed, Close::Flush, out);
        } else {
            link.since = now.mono;
            self.arm(conn);
        }
    }

    pub(super) fn link_closed(&mut self, now: Now, conn: ConnId, why: CloseReason, out: &mut Out) {
        let reason = match why {
            CloseReason::Finished => DownReason::PeerClosed,
            CloseReason::Overflow => DownReason::NotReading,
            CloseReason::Asked
            | CloseReason::Reset
            | CloseReason::TimedOut
            | CloseReason::DialFailed(_)
            | CloseReason::NotDurable
            | CloseReason::Stopped
            | CloseReason::Failed => DownReason::Closed(why),
        };
        self.end_link(now, conn, reason, Close::Abort, out);
    }

    pub(super) fn link_fault(&mut self, now: Now, conn: ConnId, fault: Fault, out: &mut Out) {
        self.end_link(now, conn, DownReason::Fault(fault), Close::Flush, out);
    }

    /// Ends a link: the owner hears of it, and a peer that is to be kept is dialled again.
    pub(super) fn end_link(&mut self, now: Now, conn: ConnId, reason: DownReason, how: Close, out: &mut Out) {
        let State::Link(link) = self.take_state(conn) else { return };
        out.close(conn, how);
        self.asked_in_vain(now, conn, out);
        self.links -= 1;
        if let Some(version) = link.version {
            self.versions.release(version);
        }
        let known = self.book.get_mut(link.peer);
        debug_assert_eq!(known.link, Some(conn), "a peer's one link is the one that ends");
        known.link = None;
        out.event_free(Event::LinkDown { peer: known.id.clone(), reason });
        if now.mono.since(known.linked_at) >= Backoff::SETTLED {
            known.backoff.reset();
        }
        match reason {
            DownReason::Replaced | DownReason::Collision | DownReason::Forgotten | DownReason::Stopped => {}
            DownReason::Closed(_)
            | DownReason::PeerClosed
            | DownReason::Silent
            | DownReason::NotReading
            | DownReason::Fault(_) => {
                self.redial_later(now, link.peer, link.direction, 0);
            }
        }
    }
}
