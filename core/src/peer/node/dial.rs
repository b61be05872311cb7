//! The dialler's side: an errand goes from address to address, with one key after the other, until somebody answers.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::SocketAddr;
use core::time::Duration;

use super::accept::{PROTO, write_key};
use super::link::Agreed;
use super::state::{State, Waiting};
use super::{HANDSHAKE_TIME, Node, Out};
use crate::frame::{Cutter, Framing};
use crate::machine::{CloseReason, ConnId, Target, Ticket};
use crate::message::connection::{Challenge, Handshake, HandshakeAck};
use crate::message::{Envelope, FeatureSet, Kind, MsgType, RawValue};
use crate::outbox::Close;
use crate::peer::addresses::Addresses;
use crate::peer::book::{PeerIndex, PeerRecord};
use crate::peer::command::{Answer, Direction, Event, Failure};
use crate::peer::fault::Fault;
use crate::secret::{Key, decode_hex};
use crate::text::PeerId;
use crate::time::{Mono, Now};

/// What a dial is for, and what is left to try.
#[derive(Debug)]
pub(super) struct Errand {
    pub(super) purpose: Purpose,
    pub(super) ticket: Option<Ticket>,
    pub(super) attempts: VecDeque<Attempt>,
    /// Why the last attempt failed, and where.
    pub(super) failure: Option<(Failure, SocketAddr)>,
    /// Proofs that were refused: each counts over there.
    denials: u8,
}

/// What a dial is for.
#[derive(Debug)]
pub(super) enum Purpose {
    /// A lasting link; with whom, where that is known.
    Link { peer: Option<PeerIndex>, keep: bool },
    /// One message, and how long to wait for which reply.
    Send { peer: PeerIndex, kind: Kind, payload: Box<RawValue>, reply: Option<(Kind, Duration)> },
    /// The time of a handshake.
    Ping,
}

/// One address with one key.
#[derive(Clone, Debug)]
pub(super) struct Attempt {
    pub(super) address: SocketAddr,
    /// Who must answer; `None` for whoever has the invite's key.
    pub(super) peer: Option<PeerId>,
    pub(super) key: Key,
    /// Whether the key is an invite's, to be stored where it works.
    pub(super) invite: bool,
}

/// A dial under way.
#[derive(Debug)]
pub(super) struct Dial {
    pub(super) errand: Errand,
    pub(super) attempt: Attempt,
    pub(super) phase: Phase,
    pub(super) cutter: Cutter,
    pub(super) started: Mono,
    pub(super) deadline: Mono,
}

/// ```text
///  Connecting ─▶ AwaitChallenge ─▶ AwaitAck ─▶ a link, or an exchange
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    Connecting,
    AwaitChallenge,
    AwaitAck,
}

impl Errand {
    /// Dials under way at once, of all purposes.
    pub(super) const MAX_UNDER_WAY: usize = 1024;
    /// Refusals after which an errand gives up: one less than what locks an address out.
    const MAX_DENIALS: u8 = 4;
    /// Longest time for a connection to come about; a driver gives up earlier.
    const CONNECT_TIME: Duration = Duration::from_secs(15);

    pub(super) const fn new(purpose: Purpose, ticket: Option<Ticket>, attempts: VecDeque<Attempt>) -> Self {
        Self { purpose, ticket, attempts, failure: None, denials: 0 }
    }

    pub(super) const fn is_for_a_link(&self) -> bool {
        match self.purpose {
            Purpose::Link { .. } => true,
            Purpose::Send { .. } | Purpose::Ping => false,
        }
    }

    fn peer(&self) -> Option<PeerIndex> {
        match self.purpose {
            Purpose::Link { peer, .. } => peer,
            Purpose::Send { .. } | Purpose::Ping => None,
        }
    }
}

impl Node {
    /// Starts what is left to try of an errand, or ends it.
    pub(super) fn pursue(&mut self, now: Now, mut errand: Errand, out: &mut Out) {
        let Some(attempt) = errand.attempts.pop_front() else {
            self.give_up(now, errand, out);
            return;
        };
        let conn = out.dial(Target::tcp(attempt.address));
        if let Some(peer) = errand.peer() {
            self.book.get_mut(peer).dialling = Some(conn);
        }
        self.dials += 1;
        let deadline = now.mono.after(Errand::CONNECT_TIME);
        let (phase, cutter) = (Phase::Connecting, Cutter::new(Framing::Ndjson));
        let dial = Dial { errand, attempt, phase, cutter, started: now.mono, deadline };
        self.enter(conn, State::Dialling(Box::new(dial)));
        self.arm(conn);
    }

    pub(super) fn dial_opened(&mut self, now: Now, conn: ConnId) {
        if let Some(State::Dialling(dial)) = self.state_mut(conn) {
            dial.phase = Phase::AwaitChallenge;
            dial.deadline = now.mono.after(HANDSHAKE_TIME);
        }
    }

    pub(super) fn dialling_frame(&mut self, now: Now, conn: ConnId, envelope: &Envelope<'_>, out: &mut Out) {
        let Some(State::Dialling(dial)) = self.state(conn) else { return };
        let kind = match &envelope.msg_type {
            MsgType::Known(kind) => *kind,
            MsgType::Unknown(_) => return,
        };
        match (dial.phase, kind) {
            (Phase::AwaitChallenge, Kind::Challenge) => self.challenged(now, conn, envelope, out),
            (Phase::AwaitAck, Kind::HandshakeAck) => self.acknowledged(now, conn, envelope, out),
            (Phase::Connecting | Phase::AwaitChallenge | Phase::AwaitAck, _) => {
                self.fault(now, conn, Fault::BadChallenge, out);
            }
        }
    }

    fn challenged(&mut self, now: Now, conn: ConnId, envelope: &Envelope<'_>, out: &mut Out) {
        let Some(challenge) = Challenge::parse(envelope.payload) else {
            self.fault(now, conn, Fault::BadChallenge, out);
            return;
        };
        let mut nonce = [0; 32];
        if decode_hex(&challenge.nonce, &mut nonce) && self.issued.contains(&nonce) {
            self.attempt_failed(now, conn, Failure::Reflected, Close::Abort, out);
            return;
        }
        let Some(State::Dialling(dial)) = self.state_mut(conn) else { return };
        dial.phase = Phase::AwaitAck;
        let (address, transient) = (dial.attempt.address, !dial.errand.is_for_a_link());
        let proof = dial.attempt.key.prove(&challenge.nonce);
        let settings = &self.settings;
        let handshake = Handshake {
            proof,
            version: Some(settings.version.clone()),
            proto: settings.proto.then_some(PROTO),
            features: if settings.proto { settings.features } else { FeatureSet::EMPTY },
            listen_port: if transient { None } else { settings.listen_port_for(&address) },
            transient,
        };
        let sent = self.send(now, conn, Framing::Ndjson, Kind::Handshake, &handshake, out);
        debug_assert!(sent.is_ok(), "a handshake fits a line");
    }

    fn acknowledged(&mut self, now: Now, conn: ConnId, envelope: &Envelope<'_>, out: &mut Out) {
        let answered = PeerId::parse(&envelope.from_peer);
        let terms = match HandshakeAck::parse(envelope.payload) {
            HandshakeAck::Accepted(terms) => terms.filter(|_| self.settings.proto),
            HandshakeAck::Denied => {
                self.attempt_failed(now, conn, Failure::Denied { by: answered }, Close::Abort, out);
                return;
            }
        };
        let Some(State::Dialling(dial)) = self.state(conn) else { return };
        // Whoever answers must be the one who was dialled, or somebody at all where an invite does not say who.
        let expected = dial.attempt.peer.as_ref();
        let Some(answered) = answered.filter(|id| expected.is_none_or(|expected| expected == id)) else {
            let answered = PeerId::parse(&envelope.from_peer);
            self.attempt_failed(now, conn, Failure::WrongPeer { answered }, Close::Abort, out);
            return;
        };
        if answered == self.settings.id {
            let failure = Failure::WrongPeer { answered: Some(answered) };
            self.attempt_failed(now, conn, failure, Close::Abort, out);
            return;
        }
        let known = self.book.find(answered.as_str()).map(|index| self.book.get(index));
        if !dial.attempt.invite && known.is_none_or(|known| known.key.is_none()) {
            // Its key was taken away while it was dialled.
            self.attempt_failed(now, conn, Failure::NotPaired, Close::Abort, out);
            return;
        }
        let features =
            terms.map_or(FeatureSet::EMPTY, |terms| terms.features.intersect(self.settings.features));
        let proto = terms.map_or(0, |terms| terms.proto.min(PROTO) as u8);
        self.arrived(now, conn, answered, features, proto, out);
    }

    /// The handshake is over, and this is who answered.
    fn arrived(
        &mut self,
        now: Now,
        conn: ConnId,
        answered: PeerId,
        features: FeatureSet,
        proto: u8,
        out: &mut Out,
    ) {
        let State::Dialling(dial) = self.take_state(conn) else { return };
        let Dial { errand, attempt, cutter, started, .. } = *dial;
        self.dial_ended(conn, &errand);
        let index = self.book.enter(&answered);
        let Attempt { address, key, invite, .. } = attempt;
        if invite {
            let addresses = Addresses::default();
            self.know(PeerRecord { id: answered.clone(), key: Some(key.clone()), addresses });
        }
        self.reached_at(now, index, address, out);
        let mut agreed = Agreed {
            peer: index,
            direction: Direction::Outbound,
            features,
            proto,
            address: Some(address),
            version: None,
        };
        match errand.purpose {
            Purpose::Link { keep, .. } => {
                self.dials -= 1;
                agreed.version = None;
                self.book.get_mut(index).keep |= keep;
                let connected = Answer::Connected { peer: answered.clone(), paired: invite };
                // Where the pair's other link is kept, a link stands all the same.
                self.establish(now, conn, agreed, out);
                if invite {
                    let id = out.act(write_key(&answered, &key));
                    let waiting = match errand.ticket {
                        Some(ticket) => Waiting::Command(ticket, connected),
                        None => Waiting::File(index),
                    };
                    self.waiting.insert(id, waiting);
                } else if let Some(ticket) = errand.ticket {
                    out.answer(ticket, connected);
                }
            }
            Purpose::Send { peer: _, kind, payload, reply } => {
                match self.send(now, conn, agreed.framing(), kind, &*payload, out) {
                    Ok(()) => {
                        let mut cutter = cutter;
                        cutter.set_framing(agreed.framing());
                        self.outbound(now, conn, &agreed, cutter, errand.ticket, reply, out);
                    }
                    Err(error) => {
                        self.dials -= 1;
                        out.close(conn, Close::Flush);
                        answer(errand.ticket, Answer::Failed(Failure::Unsendable(error)), out);
                    }
                }
            }
            Purpose::Ping => {
                self.dials -= 1;
                out.close(conn, Close::Flush);
                answer(errand.ticket, Answer::Pong(now.mono.since(started)), out);
            }
        }
    }

    pub(super) fn dial_due(&mut self, now: Now, conn: ConnId, out: &mut Out) {
        match self.state(conn) {
            Some(State::Dialling(dial)) if dial.deadline <= now.mono => {
                self.attempt_failed(now, conn, Failure::TimedOut, Close::Abort, out);
            }
            Some(_) | None => self.arm(conn),
        }
    }

    pub(super) fn dialling_fault(&mut self, now: Now, conn: ConnId, fault: Fault, out: &mut Out) {
        self.attempt_failed(now, conn, Failure::Fault(fault), Close::Abort, out);
    }

    pub(super) fn dialling_eof(&mut self, now: Now, conn: ConnId, out: &mut Out) {
        self.attempt_failed(now, conn, Failure::NoHandshake, Close::Flush, out);
    }

    pub(super) fn dialling_closed(&mut self, now: Now, conn: ConnId, why: CloseReason, out: &mut Out) {
        let connected =
            matches!(self.state(conn), Some(State::Dialling(dial)) if dial.phase != Phase::Connecting);
        let failure = match why {
            // A listener that closes with our bytes unread resets: that it closed is what counts.
            CloseReason::Reset | CloseReason::Finished if connected => Failure::NoHandshake,
            CloseReason::Asked
            | CloseReason::Finished
            | CloseReason::Reset
            | CloseReason::TimedOut
            | CloseReason::DialFailed(_)
            | CloseReason::Overflow
            | CloseReason::NotDurable
            | CloseReason::Stopped
            | CloseReason::Failed => Failure::Connection(why),
        };
        self.attempt_failed(now, conn, failure, Close::Abort, out);
    }

    /// A dial is over. Where the owner asked for another meanwhile, that one is the peer's still.
    fn dial_ended(&mut self, conn: ConnId, errand: &Errand) {
        if let Some(peer) = errand.peer() {
            let dialling = &mut self.book.get_mut(peer).dialling;
            *dialling = dialling.filter(|other| *other != conn);
        }
    }

    /// One attempt failed: the next one, or the end of the errand.
    fn attempt_failed(&mut self, now: Now, conn: ConnId, failure: Failure, how: Close, out: &mut Out) {
        let State::Dialling(dial) = self.take_state(conn) else { return };
        out.close(conn, how);
        self.dials -= 1;
        let Dial { mut errand, attempt, .. } = *dial;
        self.dial_ended(conn, &errand);
        let here = |next: &Attempt| next.address == attempt.address;
        match &failure {
            // Who is there has said its name: of the keys that are left only its own can fit, or an invite's.
            Failure::Denied { by } => {
                errand.denials += 1;
                if let Some(by) = by {
                    errand
                        .attempts
                        .retain(|next| !here(next) || next.invite || next.peer.as_ref() == Some(by));
                }
                if errand.denials >= Errand::MAX_DENIALS {
                    errand.attempts.clear();
                }
            }
            // A key that fits, and another name than the key's owner: no other key will do better here.
            Failure::WrongPeer { .. }
            | Failure::Connection(_)
            | Failure::NoHandshake
            | Failure::TimedOut
            | Failure::Fault(_)
            | Failure::Reflected => errand.attempts.retain(|next| !here(next)),
            // The key was taken away; those that are left belong to others.
            Failure::NotPaired => {}
            Failure::UnknownPeer
            | Failure::NoAddress
            | Failure::Unsendable(_)
            | Failure::NotTaken
            | Failure::Gone
            | Failure::NotStored(_)
            | Failure::BadRequest(_)
            | Failure::Withdrawn
            | Failure::Busy
            | Failure::Stopping => errand.attempts.clear(),
        }
        errand.failure = Some((failure, attempt.address));
        self.pursue(now, errand, out);
    }

    /// Goes on to the next attempt, or reports that there is none since its peer was forgotten.
    pub(super) fn abandon_attempt(&mut self, now: Now, conn: ConnId, out: &mut Out) {
        self.attempt_failed(now, conn, Failure::NotPaired, Close::Abort, out);
    }

    pub(super) fn abandon_dial(&mut self, now: Now, conn: ConnId, failure: Failure, out: &mut Out) {
        self.attempt_failed(now, conn, failure, Close::Abort, out);
    }

    fn give_up(&mut self, now: Now, errand: Errand, out: &mut Out) {
        let (failure, address) = match errand.failure {
            Some((failure, address)) => (failure, Some(address)),
            None => (Failure::NoAddress, None),
        };
        let peer = match errand.purpose {
            Purpose::Link { peer, .. } => peer,
            Purpose::Send { peer, kind, payload, reply } => {
                let Some(ticket) = errand.ticket else { return };
                // What was not sent by a connection of its own goes over the link where one stands.
                let taken_back = matches!(failure, Failure::Withdrawn | Failure::Stopping);
                let link = self.book.get(peer).link.filter(|_| !taken_back);
                let outcome = match link {
                    Some(link) => self.ask_over_link(now, link, ticket, kind, &payload, reply, out),
                    None => Some(Answer::Failed(failure)),
                };
                if let Some(outcome) = outcome {
                    out.answer(ticket, outcome);
                }
                return;
            }
            Purpose::Ping => {
                answer(errand.ticket, Answer::Failed(failure), out);
                return;
            }
        };
        answer(errand.ticket, Answer::Failed(failure.clone()), out);
        let wrong_peer = matches!(failure, Failure::WrongPeer { .. });
        let denials = errand.denials.max(u8::from(wrong_peer));
        let retry_in = peer.and_then(|peer| self.redial_later(now, peer, Direction::Outbound, denials));
        let peer = peer.map(|peer| self.book.get(peer).id.clone());
        if errand.ticket.is_none() || retry_in.is_some() {
            out.event(Event::DialFailed { peer, address, reason: failure, retry_in });
        }
    }
}

/// Dialling known peers again.
impl Node {
    /// The most that the first dials of a start, or of a reload, are spread over.
    const SPREAD: Duration = Duration::from_millis(500);
    /// How much longer the end waits that did not dial the lost link, so that both do not dial at once.
    const ACCEPTER_WAITS: Duration = Duration::from_secs(3);

    /// Whether this node is to keep a link with a peer, and can.
    fn wants_link(&self, peer: PeerIndex) -> bool {
        let known = self.book.get(peer);
        (self.settings.dial_known || known.keep)
            && !self.draining
            && known.key.is_some()
            && !known.addresses.is_empty()
            && known.id != self.settings.id
    }

    /// The first step's: only now is it known what time it is.
    pub(super) fn dial_known_soon(&mut self) {
        for peer in 0..self.book.len() as PeerIndex {
            if self.redials.get(peer).is_some() {
                self.dial_soon(peer);
            }
        }
    }

    pub(super) fn dial_soon(&mut self, peer: PeerIndex) {
        let known = self.book.get(peer);
        if known.link.is_none() && known.dialling.is_none() && self.wants_link(peer) {
            let spread = Self::SPREAD.as_nanos() as u64;
            let wait = Duration::from_nanos(self.entropy.draw_u64() % spread);
            self.redials.set(peer, Some(self.stepped.after(wait)));
        }
    }

    /// Sets a time for the next dial; `None` where there will be none.
    pub(super) fn redial_later(
        &mut self,
        now: Now,
        peer: PeerIndex,
        direction: Direction,
        denials: u8,
    ) -> Option<Duration> {
        let known = self.book.get(peer);
        if known.link.is_some() || known.dialling.is_some() || !self.wants_link(peer) {
            return None;
        }
        let noise = self.entropy.draw_u64();
        let mut wait = self.book.get_mut(peer).backoff.next(denials, noise);
        if direction == Direction::Inbound {
            wait += Self::ACCEPTER_WAITS;
        }
        self.redials.set(peer, Some(now.mono.after(wait)));
        Some(wait)
    }

    pub(super) fn redial(&mut self, now: Now, peer: PeerIndex, out: &mut Out) {
        let known = self.book.get(peer);
        if known.link.is_some() || known.dialling.is_some() || !self.wants_link(peer) {
            return;
        }
        let attempts = self.attempts_for(peer);
        let errand = Errand::new(Purpose::Link { peer: Some(peer), keep: false }, None, attempts);
        self.pursue(now, errand, out);
    }

    /// Every address of a peer, the best first, with its key.
    pub(super) fn attempts_for(&self, peer: PeerIndex) -> VecDeque<Attempt> {
        let known = self.book.get(peer);
        let Some(key) = &known.key else { return VecDeque::new() };
        let addresses: Vec<_> = known.addresses.iter().map(|known| known.address).collect();
        let attempt =
            |address| Attempt { address, peer: Some(known.id.clone()), key: key.clone(), invite: false };
        addresses.into_iter().map(attempt).collect()
    }
}

fn answer(ticket: Option<Ticket>, with: Answer, out: &mut Out) {
    if let Some(ticket) = ticket {
        out.answer(ticket, with);
    }
}
