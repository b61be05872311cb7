//! What an authenticated peer's message leads to, whichever connection it came by.

use alloc::borrow::ToOwned;

use super::state::State;
use super::{Node, Out};
use crate::frame::Framing;
use crate::machine::ConnId;
use crate::message::lease::{LeaseClaim, LeaseList, LeaseRelease, LeaseRequest};
use crate::message::{Envelope, FeatureSet, Kind, MsgType};
use crate::peer::book::PeerIndex;
use crate::peer::command::{Event, Message};
use crate::text;
use crate::time::{Now, Wall};

/// Unknown types that are remembered of a peer, so that each is told once.
const UNKNOWN_TYPES: usize = 64;
/// The longest part of an unknown type that is kept, in bytes.
const UNKNOWN_TYPE_BYTES: usize = 64;

impl Node {
    #[expect(clippy::too_many_arguments, reason = "what a link and a one-shot know of themselves")]
    pub(super) fn dispatch(
        &mut self,
        now: Now,
        conn: ConnId,
        peer: PeerIndex,
        features: FeatureSet,
        framing: Framing,
        envelope: &Envelope<'_>,
        out: &mut Out,
    ) {
        let kind = match &envelope.msg_type {
            MsgType::Known(kind) => *kind,
            MsgType::Unknown(name) => {
                self.skip_unknown(peer, name, out);
                return;
            }
        };
        match kind {
            Kind::Heartbeat => self.heard_beat(now, conn, peer, features, envelope.payload, out),
            // Out of their place these say nothing.
            Kind::Challenge | Kind::Handshake | Kind::HandshakeAck | Kind::Ack => {}
            Kind::LeaseClaim => {
                let request = LeaseClaim::parse(envelope.payload).map(LeaseRequest::Claim);
                self.lease_request(now, conn, peer, features, framing, request, out);
            }
            Kind::LeaseRelease => {
                let request = LeaseRelease::parse(envelope.payload).map(LeaseRequest::Release);
                self.lease_request(now, conn, peer, features, framing, request, out);
            }
            Kind::LeaseList => {
                let request = LeaseList::parse(envelope.payload).map(LeaseRequest::List);
                self.lease_request(now, conn, peer, features, framing, request, out);
            }
            Kind::DelegateTask
            | Kind::TaskStatus
            | Kind::TaskHandoff
            | Kind::TaskInterrupt
            | Kind::KnowledgeSync
            | Kind::KnowledgeRequest
            | Kind::KnowledgeSnapshot
            | Kind::HiveJoinRequest
            | Kind::HiveJoinResult
            | Kind::KnowledgeRejected
            | Kind::SessionTransfer
            | Kind::SessionReceived
            | Kind::LeaseResult => self.deliver(now, conn, peer, kind, envelope, out),
        }
    }

    /// Hands a message to the owner. One that came before is dropped, unless it is a request: its answer may be what
    /// was lost.
    fn deliver(
        &mut self,
        now: Now,
        conn: ConnId,
        peer: PeerIndex,
        kind: Kind,
        envelope: &Envelope<'_>,
        out: &mut Out,
    ) {
        if self.is_reply(now, conn, peer, kind, envelope, out)
            || self.is_stray_answer(now, peer, kind, envelope, out)
        {
            return;
        }
        let known = self.book.get_mut(peer);
        let repeated = !known.heard().dedup.get_or_insert_default().insert(&envelope.id);
        let id = known.id.clone();
        if repeated {
            self.counts.repeats += 1;
            if kind.answer().is_none() {
                return;
            }
        }
        let one_shot = match self.state_mut(conn) {
            Some(State::Link(link)) => {
                link.owed = link.owed.saturating_add(u16::from(kind.answer().is_some()));
                false
            }
            Some(State::Inbound(inbound)) => {
                inbound.owed = inbound.owed.saturating_add(u16::from(kind.answer().is_some()));
                true
            }
            Some(
                State::Vacant
                | State::Greeted(_)
                | State::Storing(_)
                | State::Dialling(_)
                | State::Outbound(_)
                | State::Closing,
            )
            | None => return,
        };
        out.event_free(Event::Message(Message {
            peer: id,
            conn,
            id: text::clip(&envelope.id, Message::MAX_ID),
            kind,
            one_shot,
            repeated,
            timestamp: Wall::from_millis(envelope.timestamp),
            payload: envelope.payload.to_owned(),
        }));
    }

    /// Skips a type that this version does not know, and tells the owner once a peer and type.
    fn skip_unknown(&mut self, peer: PeerIndex, name: &str, out: &mut Out) {
        let known = self.book.get_mut(peer);
        let types = &mut known.heard().unknown_types;
        let msg_type = text::clip(name, UNKNOWN_TYPE_BYTES);
        if types.len() < UNKNOWN_TYPES && types.insert(msg_type.clone()) {
            out.event_free(Event::UnknownType { peer: known.id.clone(), msg_type });
        }
    }
}
