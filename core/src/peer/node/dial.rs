//! The dialler's side of one connection: the challenge is proved, and the ack says who answered.

use alloc::boxed::Box;

use super::accept::{PROTO, write_key};
use super::asked::request_id;
use super::errand::{Asker, Attempt, Errand, Purpose};
use super::link::Agreed;
use super::state::{State, Waiting};
use super::{HANDSHAKE_TIME, Node, Out};
use crate::frame::{Cutter, Framing};
use crate::machine::{CloseReason, ConnId};
use crate::message::connection::{Challenge, Handshake, HandshakeAck};
use crate::message::{Envelope, Feature, FeatureSet, Kind, MsgType};
use crate::outbox::Close;
use crate::peer::addresses::Addresses;
use crate::peer::book::PeerRecord;
use crate::peer::command::{Answer, Direction, Failure};
use crate::peer::fault::Fault;
use crate::secret::decode_hex;
use crate::text::PeerId;
use crate::time::{Mono, Now};

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

impl Node {
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
                    let waiting = match errand.asker {
                        Asker::Owner(ticket) => Waiting::Command(ticket, Box::new(connected)),
                        Asker::Nobody | Asker::Lease(_) => Waiting::File(index),
                    };
                    self.waiting.insert(id, waiting);
                } else {
                    self.tell(now, errand.asker, connected, out);
                }
            }
            Purpose::Send { kind, .. } if needs_leases(kind, agreed.features) => {
                self.dials -= 1;
                out.close(conn, Close::Flush);
                self.tell(now, errand.asker, Answer::Failed(Failure::NoLeases), out);
            }
            Purpose::Send { peer: _, kind, payload, reply } => {
                let request_id = request_id(&payload);
                match self.send(now, conn, agreed.framing(), kind, &*payload, out) {
                    Ok(()) => {
                        let mut cutter = cutter;
                        cutter.set_framing(agreed.framing());
                        self.outbound(now, conn, &agreed, cutter, errand.asker, reply, request_id, out);
                    }
                    Err(error) => {
                        self.dials -= 1;
                        out.close(conn, Close::Flush);
                        self.tell(now, errand.asker, Answer::Failed(Failure::Unsendable(error)), out);
                    }
                }
            }
            Purpose::Ping => {
                self.dials -= 1;
                out.close(conn, Close::Flush);
                self.tell(now, errand.asker, Answer::Pong(now.mono.since(started)), out);
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
}

/// Whether a message is about leases, and the peer does not speak of them: then it is not sent.
pub(super) fn needs_leases(kind: Kind, agreed: FeatureSet) -> bool {
    matches!(kind, Kind::LeaseClaim | Kind::LeaseRelease | Kind::LeaseList)
        && !agreed.contains(Feature::LeaseFleet)
}
