//! The listener's side of the handshake: challenge, verify, agree.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::SocketAddr;

use super::one_shot::PER_PEER;
use super::state::{Admitting, Greeted, State, Storing, Waiting};
use super::{HANDSHAKE_TIME, Node, Out};
use crate::action::{ActId, Acted, Action, Contents, FilePath};
use crate::frame::{Cutter, Framing};
use crate::machine::{ConnId, Endpoint, ListenerId, Opener};
use crate::message::connection::{Challenge, Handshake, HandshakeAck, Terms};
use crate::message::{Envelope, FeatureSet, Kind, MsgType};
use crate::outbox::Close;
use crate::peer::addresses::Addresses;
use crate::peer::admission::{Admitted, Origin};
use crate::peer::book::{PeerIndex, PeerRecord, Stored};
use crate::peer::command::{Direction, Event, HandshakeFailure};
use crate::peer::node::link::Agreed;
use crate::secret::{Key, encode_hex};
use crate::text::PeerId;
use crate::time::Now;

/// Connections of one joiner that may wait for its key to be stored.
const JOINS: usize = 8;

/// The protocol version that this node speaks.
pub(super) const PROTO: u64 = 1;

impl Node {
    pub(super) fn opened(&mut self, now: Now, conn: ConnId, by: Opener, peer: &Endpoint, out: &mut Out) {
        match by {
            Opener::Accepted(listener) => self.accepted(now, conn, listener, peer, out),
            Opener::Dialled => self.dial_opened(now, conn),
        }
        self.arm(conn);
    }

    fn accepted(&mut self, now: Now, conn: ConnId, listener: ListenerId, peer: &Endpoint, out: &mut Out) {
        self.listeners.insert(listener);
        let origin = Origin::of(peer);
        let admitted =
            if self.draining { Admitted::Full } else { self.admission.begin(origin, conn, now.mono) };
        match admitted {
            Admitted::Yes => {}
            Admitted::InPlaceOf(slowest) => self.end_greeting(now, slowest, Close::Abort, None, out),
            Admitted::Full | Admitted::LockedOut => {
                self.counts.connections_refused += 1;
                self.enter(conn, State::Closing);
                out.close(conn, Close::Abort);
                return;
            }
        }
        let (nonce, text) = self.fresh_nonce();
        self.issued.insert(nonce);
        self.enter(
            conn,
            State::Greeted(Box::new(Greeted {
                nonce,
                origin,
                address: tcp(peer),
                cutter: Cutter::new(Framing::Ndjson),
                deadline: now.mono.after(HANDSHAKE_TIME),
                buffered: 0,
            })),
        );
        let sent = self.send(now, conn, Framing::Ndjson, Kind::Challenge, &Challenge { nonce: text }, out);
        debug_assert!(sent.is_ok(), "a challenge fits a line");
    }

    pub(super) fn greeted_frame(&mut self, now: Now, conn: ConnId, envelope: &Envelope<'_>, out: &mut Out) {
        let kind = match &envelope.msg_type {
            MsgType::Known(kind) => *kind,
            // Somebody newer may say more before it says what we understand; its time runs.
            MsgType::Unknown(_) => return,
        };
        let State::Greeted(greeted) = self.take_greeting(conn) else { return };
        // Let in before its address was shut out, and as little to be tried as if it had come later.
        if self.admission.is_locked_out(greeted.origin, now.mono) {
            self.counts.connections_refused += 1;
            out.close(conn, Close::Abort);
            return;
        }
        let claimed = PeerId::parse(&envelope.from_peer);
        if kind != Kind::Handshake {
            self.deny(now, conn, &greeted, claimed, HandshakeFailure::Unexpected(kind), out);
            return;
        }
        let handshake = Handshake::parse(envelope.payload);
        let nonce = encode_hex(&greeted.nonce);
        let index = claimed.as_ref().and_then(|id| self.book.find(id.as_str()));
        let stored = index.and_then(|index| self.book.get(index).key.as_ref());
        // Whoever has a key is known by that key alone: an invite lets nobody take another's place.
        // A joiner that comes again while its key is being stored has proved the invite already.
        let joining = claimed.as_ref().and_then(|id| self.joining(id));
        let redeemed = joining.as_ref().map(|(_, key)| key);
        let invited = if stored.is_some() { None } else { redeemed.or(self.pending.as_ref()) };
        // The same work whether or not the claimant is known, so that time does not tell.
        let nobody = Key::from_bytes(greeted.nonce);
        let proven = stored.or(invited).unwrap_or(&nobody).verify(&nonce, &handshake.proof);
        let (known, invited) = (stored.is_some(), invited.filter(|_| proven).cloned());
        match (claimed, index, invited) {
            (Some(_), Some(index), _) if known && proven => {
                self.admit(now, conn, index, &handshake, greeted.address, out);
            }
            (Some(peer), _, Some(key)) => match joining {
                Some((act, _)) => self.join_storing(conn, &greeted, act, handshake),
                None => self.store_invited(conn, &greeted, peer, key, handshake, out),
            },
            (claimed, _, _) => {
                let reason = if known { HandshakeFailure::WrongProof } else { HandshakeFailure::UnknownPeer };
                self.deny(now, conn, &greeted, claimed, reason, out);
            }
        }
    }

    /// Registers who proved itself, and says so.
    fn admit(
        &mut self,
        now: Now,
        conn: ConnId,
        peer: PeerIndex,
        handshake: &Handshake,
        address: Option<SocketAddr>,
        out: &mut Out,
    ) {
        let lasting = !handshake.transient;
        let known = self.book.get(peer);
        let one_shots = known.heard.as_ref().map_or(0, |heard| heard.one_shots);
        let full = if lasting {
            (self.links >= self.settings.max_links && known.link.is_none())
                .then_some(HandshakeFailure::TooManyLinks)
        } else {
            (one_shots >= PER_PEER).then_some(HandshakeFailure::Full)
        };
        if let Some(reason) = full {
            let id = Some(known.id.clone());
            self.refuse(now, conn, address, id, reason, out);
            return;
        }
        self.counts.handshakes += 1;
        let terms = handshake.proto.filter(|_| self.settings.proto).map(|theirs| Terms {
            proto: theirs.min(PROTO),
            features: handshake.features.intersect(self.settings.features),
        });
        let ack = HandshakeAck::Accepted(terms);
        // Under the journal, so that nobody who was let in finds after a crash that it was not.
        let sent = self.send(now, conn, Framing::Ndjson, Kind::HandshakeAck, &ack, out);
        debug_assert!(sent.is_ok(), "an ack fits a line");
        if let (Some(address), Some(port)) = (address, handshake.listen_port) {
            self.reached_at(now, peer, SocketAddr::new(address.ip(), port), out);
        }
        let agreed = Agreed {
            peer,
            direction: Direction::Inbound,
            features: terms.map_or(FeatureSet::EMPTY, |terms| terms.features),
            proto: terms.map_or(0, |terms| terms.proto as u8),
            address,
            version: handshake.version.as_deref().map(Into::into),
        };
        if lasting {
            let _ = self.establish(now, conn, agreed, out);
        } else {
            self.inbound(now, conn, &agreed);
        }
    }

    /// The ack of an invite's first use waits until the key is on disk: a crash behind it must not undo the pairing.
    fn store_invited(
        &mut self,
        conn: ConnId,
        greeted: &Greeted,
        peer: PeerId,
        key: Key,
        handshake: Handshake,
        out: &mut Out,
    ) {
        // One use: whoever comes second with this key finds no invite.
        self.pending = None;
        let id = out.act(write_key(&peer, &key));
        let admitting = Admitting { conns: alloc::vec![conn], peer, key, invite: self.invites };
        self.waiting.insert(id, Waiting::Admission(Box::new(admitting)));
        let address = greeted.address;
        let storing = Storing { handshake, address, rest: Vec::new(), eof: false };
        self.set_state(conn, State::Storing(Box::new(storing)));
    }

    /// The key of an invite's first use is on disk, or cannot be put there. Its connection may have ended meanwhile:
    /// what is on disk holds all the same, and the joiner comes again.
    pub(super) fn invited_stored(&mut self, now: Now, admitting: Admitting, stored: bool, out: &mut Out) {
        let Admitting { conns, peer, key, invite } = admitting;
        if !stored {
            // Whoever invited has said nothing else since, so it is valid still.
            if self.invites == invite {
                self.pending = Some(key);
            }
            for conn in conns {
                if let Some(storing) = self.take_storing(conn) {
                    let reason = HandshakeFailure::NotStored;
                    self.refuse(now, conn, storing.address, Some(peer.clone()), reason, out);
                }
            }
            return;
        }
        if self.invites == invite
            && let Some(path) = FilePath::new(alloc::format!("peers/{}.key", PeerId::PENDING))
        {
            out.act(Action::RemoveFile { path });
        }
        let record = PeerRecord { id: peer.clone(), key: Some(key), addresses: Addresses::default() };
        let index = self.know(record);
        out.event_free(Event::Paired { peer });
        for conn in conns {
            let Some(storing) = self.take_storing(conn) else { continue };
            let Storing { handshake, address, rest, eof } = *storing;
            self.admit(now, conn, index, &handshake, address, out);
            self.bytes(now, conn, &rest, out);
            // What waits for a turn comes before the end, which is told again then.
            if eof && !out.waits_for_turn(conn) {
                self.eof(now, conn, out);
            }
        }
    }

    fn take_storing(&mut self, conn: ConnId) -> Option<Box<Storing>> {
        match self.state(conn) {
            Some(State::Storing(_)) => {}
            Some(_) | None => return None,
        }
        if let State::Storing(storing) = self.take_state(conn) { Some(storing) } else { None }
    }

    /// The write of a key that this peer has proved, where one is under way.
    fn joining(&self, peer: &PeerId) -> Option<(ActId, Key)> {
        self.waiting.iter().find_map(|(act, waiting)| match waiting {
            Waiting::Admission(admitting) if admitting.peer == *peer && admitting.conns.len() < JOINS => {
                Some((*act, admitting.key.clone()))
            }
            Waiting::Admission(_) | Waiting::Command(..) | Waiting::File(_) | Waiting::Addresses(_) => None,
        })
    }

    /// A joiner that came again waits for the same write.
    fn join_storing(&mut self, conn: ConnId, greeted: &Greeted, act: ActId, handshake: Handshake) {
        if let Some(Waiting::Admission(admitting)) = self.waiting.get_mut(&act) {
            admitting.conns.push(conn);
        }
        let storing = Storing { handshake, address: greeted.address, rest: Vec::new(), eof: false };
        self.set_state(conn, State::Storing(Box::new(storing)));
    }

    /// Takes an invite's key in place of any other. One that somebody redeemed already, which a file that was not
    /// removed in time may hold, is none.
    pub(super) fn pend(&mut self, key: Option<Key>) {
        let redeemed = |key: &Key| self.book.iter().any(|peer| self.book.get(peer).key.as_ref() == Some(key));
        let storing = |key: &Key| {
            self.waiting.values().any(|waiting| match waiting {
                Waiting::Admission(admitting) => admitting.key == *key,
                Waiting::Command(..) | Waiting::File(_) | Waiting::Addresses(_) => false,
            })
        };
        if key.as_ref().is_some_and(storing) {
            return;
        }
        self.invites += 1;
        self.pending = key.filter(|key| !redeemed(key));
    }

    fn deny(
        &mut self,
        now: Now,
        conn: ConnId,
        greeted: &Greeted,
        claimed: Option<PeerId>,
        reason: HandshakeFailure,
        out: &mut Out,
    ) {
        let failed_proof = matches!(reason, HandshakeFailure::UnknownPeer | HandshakeFailure::WrongProof);
        let was_out = self.admission.is_locked_out(greeted.origin, now.mono);
        if failed_proof {
            self.admission.failed(greeted.origin, now.mono);
        }
        self.refuse(now, conn, greeted.address, claimed, reason, out);
        if !was_out && self.admission.is_locked_out(greeted.origin, now.mono) {
            // Once a minute at most, so that it is never left out.
            let reason = HandshakeFailure::LockedOut;
            out.event_free(Event::HandshakeFailed { address: greeted.address, claimed: None, reason });
        }
    }

    /// Sends the one answer that every refusal gets, and closes.
    fn refuse(
        &mut self,
        now: Now,
        conn: ConnId,
        address: Option<SocketAddr>,
        claimed: Option<PeerId>,
        reason: HandshakeFailure,
        out: &mut Out,
    ) {
        let sent = self.send(now, conn, Framing::Ndjson, Kind::HandshakeAck, &HandshakeAck::Denied, out);
        debug_assert!(sent.is_ok(), "an ack fits a line");
        out.close(conn, Close::Flush);
        self.handshake_failed(now, address, claimed, reason, out);
    }

    pub(super) fn greeted_due(&mut self, now: Now, conn: ConnId, out: &mut Out) {
        if let Some(State::Greeted(greeted)) = self.state(conn)
            && greeted.deadline <= now.mono
        {
            self.end_greeting(now, conn, Close::Abort, Some(HandshakeFailure::TimedOut), out);
        }
        self.arm(conn);
    }

    /// Closes a connection that has not proved itself, and tells the owner where that is a failure.
    pub(super) fn end_greeting(
        &mut self,
        now: Now,
        conn: ConnId,
        how: Close,
        failure: Option<HandshakeFailure>,
        out: &mut Out,
    ) {
        let address = match self.state(conn) {
            Some(State::Greeted(greeted)) => greeted.address,
            // Its key is stored all the same: the invite is used.
            Some(State::Storing(storing)) => storing.address,
            Some(
                State::Vacant
                | State::Dialling(_)
                | State::Link(_)
                | State::Inbound(_)
                | State::Outbound(_)
                | State::Closing,
            )
            | None => return,
        };
        self.take_greeting(conn);
        out.close(conn, how);
        if let Some(reason) = failure {
            self.handshake_failed(now, address, None, reason, out);
        }
    }

    /// Counts a handshake that failed, and tells the owner of it unless its address is told of too often.
    fn handshake_failed(
        &mut self,
        now: Now,
        address: Option<SocketAddr>,
        claimed: Option<PeerId>,
        reason: HandshakeFailure,
        out: &mut Out,
    ) {
        self.counts.handshakes_failed += 1;
        let origin = address.map_or(Origin::Local, |address| Origin::of_ip(address.ip()));
        let (tell, ended) = self.refusals.failed(origin, now.mono);
        if let Some(left_out) = ended {
            out.event_free(Event::HandshakesLeftOut(left_out));
        }
        if tell {
            out.event_free(Event::HandshakeFailed { address, claimed, reason });
        }
    }

    /// Tells how many failed handshakes were left out, where the time for that has come.
    pub(super) fn refusals_due(&mut self, now: Now, out: &mut Out) {
        while self.refusals.deadline().is_some_and(|due| due <= now.mono) {
            if let Some(left_out) = self.refusals.end_oldest() {
                out.event_free(Event::HandshakesLeftOut(left_out));
            }
        }
    }

    /// The same for all, whatever the time.
    pub(super) fn tell_left_out(&mut self, out: &mut Out) {
        while !self.refusals.is_empty() {
            if let Some(left_out) = self.refusals.end_oldest() {
                out.event_free(Event::HandshakesLeftOut(left_out));
            }
        }
    }

    /// Takes a greeting out of its slot, with its place among the handshakes under way and its nonce.
    fn take_greeting(&mut self, conn: ConnId) -> State {
        let state = self.take_state(conn);
        if let State::Greeted(greeted) = &state {
            self.admission.ended(greeted.origin, conn);
            self.issued.remove(&greeted.nonce);
            self.unproven_bytes -= greeted.buffered;
        }
        state
    }

    /// A link or a handshake showed that a peer can be reached here: the address is first from now on, and stored.
    pub(super) fn reached_at(&mut self, now: Now, peer: PeerIndex, address: SocketAddr, out: &mut Out) {
        let changed = self.book.get_mut(peer).addresses.promote(address, now.wall);
        if changed {
            self.store_addresses(peer, out);
        }
    }

    pub(super) fn store_addresses(&mut self, peer: PeerIndex, out: &mut Out) {
        let known = self.book.get_mut(peer);
        if known.stored != Stored::Settled {
            known.stored = Stored::Outdated;
            return;
        }
        known.stored = Stored::UnderWay;
        let text = known.addresses.to_meta();
        let path = peer_file(&known.id, "meta").expect("a peer id is a file name");
        let contents = Contents::public(text.into_bytes());
        let id = out.act(Action::WriteFile { path, contents });
        self.waiting.insert(id, Waiting::Addresses(peer));
    }

    /// A write of a peer's addresses ended; what became known meanwhile is written now.
    pub(super) fn addresses_stored(&mut self, peer: PeerIndex, result: Acted, out: &mut Out) {
        let known = self.book.get_mut(peer);
        let outdated = core::mem::replace(&mut known.stored, Stored::Settled) == Stored::Outdated;
        let is_known = known.key.is_some();
        if let Err(error) = result {
            out.event_free(Event::NotStored { peer: known.id.clone(), error });
        }
        if outdated && is_known {
            self.store_addresses(peer, out);
        }
    }
}

/// Has a peer's key stored.
pub(super) fn write_key(peer: &PeerId, key: &Key) -> Action {
    let mut text = key.to_hex().into_bytes();
    text.push(b'\n');
    let contents = Contents::secret(text);
    let path = peer_file(peer, "key").expect("a peer id is a file name");
    Action::WriteFile { path, contents }
}

/// A peer's file of one kind.
pub(super) fn peer_file(peer: &PeerId, kind: &str) -> Option<FilePath> {
    FilePath::new(alloc::format!("peers/{}.{kind}", peer.as_str()))
}

const fn tcp(endpoint: &Endpoint) -> Option<SocketAddr> {
    match endpoint {
        Endpoint::Tcp(address) => Some(*address),
        Endpoint::Unix { .. } => None,
    }
}
