//! Requests of the owner's that went over a standing link, and wait there for their reply.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use core::time::Duration;

use super::dial::needs_leases;
use super::errand::Asker;
use super::state::State;
use super::{Node, Out};
use crate::machine::{ConnId, Ticket};
use crate::message::{Envelope, Kind, Object, RawValue};
use crate::peer::book::PeerIndex;
use crate::peer::command::{Answer, Failure, Message};
use crate::text;
use crate::time::{Mono, Now, Wall};

/// What waits, by when it is given up; the number keeps two of one instant apart.
#[derive(Debug, Default)]
pub(super) struct AskedList {
    waiting: BTreeMap<(Mono, u64), Asked>,
    asked: u64,
}

#[derive(Debug)]
struct Asked {
    conn: ConnId,
    asker: Asker,
    reply: Kind,
    /// What the reply must name, where the request names itself.
    request_id: Option<String>,
}

impl AskedList {
    /// Requests that may wait at once.
    pub(super) const MAX: usize = 1024;

    pub(super) fn deadline(&self) -> Option<Mono> {
        self.waiting.first_key_value().map(|((due, _), _)| *due)
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Takes the oldest request on a connection that a reply answers.
    fn take(&mut self, conn: ConnId, reply: Kind, payload: &RawValue) -> Option<Asker> {
        if self.waiting.is_empty() {
            return None;
        }
        let named = request_id(payload);
        let fits = |asked: &Asked| {
            asked.conn == conn
                && asked.reply == reply
                && asked.request_id.as_ref().is_none_or(|id| named.as_ref() == Some(id))
        };
        let mut fitting = self.waiting.iter().filter(|(_, asked)| fits(asked));
        let oldest = fitting.next().map(|(key, _)| *key)?;
        let first = fitting.fold(oldest, |first, (key, _)| if key.1 < first.1 { *key } else { first });
        self.waiting.remove(&first).map(|asked| asked.asker)
    }
}

impl Node {
    /// Sends a request over a link, to be answered when its reply comes by the same link.
    #[expect(clippy::too_many_arguments, reason = "the fields of the command")]
    pub(super) fn ask_over_link(
        &mut self,
        now: Now,
        conn: ConnId,
        asker: Asker,
        kind: Kind,
        payload: &RawValue,
        reply: Option<(Kind, Duration)>,
        out: &mut Out,
    ) -> Option<Answer> {
        if reply.is_some() && self.asked.len() >= AskedList::MAX {
            return Some(Answer::Failed(Failure::Busy));
        }
        if let Some(State::Link(link)) = self.state(conn)
            && needs_leases(kind, link.features)
        {
            return Some(Answer::Failed(Failure::NoLeases));
        }
        if let Err(failure) = self.send_over_link(now, conn, kind, payload, out) {
            return Some(Answer::Failed(failure));
        }
        let Some((reply, within)) = reply else { return Some(Answer::Sent { taken: false }) };
        self.asked.asked += 1;
        let key = (now.mono.after(within.max(super::TICK)), self.asked.asked);
        let asked = Asked { conn, asker, reply, request_id: request_id(payload) };
        self.asked.waiting.insert(key, asked);
        None
    }

    /// Whether a message answers a request of the owner's; the owner is answered then, in place of an event.
    pub(super) fn is_reply(
        &mut self,
        now: Now,
        conn: ConnId,
        peer: PeerIndex,
        kind: Kind,
        envelope: &Envelope<'_>,
        out: &mut Out,
    ) -> bool {
        let Some(asker) = self.asked.take(conn, kind, envelope.payload) else { return false };
        let message = Message {
            peer: self.book.get(peer).id.clone(),
            conn,
            id: text::clip(&envelope.id, Message::MAX_ID),
            kind,
            one_shot: false,
            repeated: false,
            timestamp: Wall::from_millis(envelope.timestamp),
            payload: envelope.payload.to_owned(),
        };
        self.tell(now, asker, Answer::Replied(message), out);
        true
    }

    /// The time of some requests is over.
    pub(super) fn asked_due(&mut self, now: Now, out: &mut Out) {
        while self.asked.deadline().is_some_and(|due| due <= now.mono) {
            if let Some((_, asked)) = self.asked.waiting.pop_first() {
                self.tell(now, asked.asker, Answer::Failed(Failure::TimedOut), out);
            }
        }
    }

    /// The owner waits no longer for the reply to a request. False where none is waited for.
    pub(super) fn withdraw_asked(&mut self, ticket: Ticket, out: &mut Out) -> bool {
        let asker = Asker::Owner(ticket);
        let key = self.asked.waiting.iter().find(|(_, asked)| asked.asker == asker).map(|(key, _)| *key);
        let asked = key.and_then(|key| self.asked.waiting.remove(&key));
        if asked.is_some() {
            out.answer_free(ticket, Answer::Failed(Failure::Withdrawn));
        }
        asked.is_some()
    }

    /// A request for a lease waits no longer for the reply to its attempt.
    pub(super) fn forget_asked(&mut self, asker: Asker) {
        self.asked.waiting.retain(|_, asked| asked.asker != asker);
    }

    /// A link ended, and no reply comes by it any more.
    pub(super) fn asked_in_vain(&mut self, now: Now, conn: ConnId, out: &mut Out) {
        let vain: Box<[_]> =
            self.asked.waiting.iter().filter(|(_, asked)| asked.conn == conn).map(|(key, _)| *key).collect();
        for key in vain {
            if let Some(asked) = self.asked.waiting.remove(&key) {
                self.tell(now, asked.asker, Answer::Failed(Failure::NotTaken), out);
            }
        }
    }
}

/// What a request calls itself.
pub(super) fn request_id(payload: &RawValue) -> Option<String> {
    Object::new(payload, &["request_id"]).string("request_id")
}
