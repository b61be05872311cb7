//! What the owner asks of the fleet's lease authority, wherever that is.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::errand::{Asker, Errand, Purpose};
use super::state::State;
use super::{BATCH, Node, Out};
use crate::lease::{ATTEMPT_TIME, Ask, Next, Requester, Unanswered};
use crate::machine::Ticket;
use crate::message::lease::{LeaseRequest, LeaseResult, MAX_TTL_SECS, is_id, is_kind, is_session, is_value};
use crate::message::{Envelope, Kind};
use crate::peer::book::PeerIndex;
use crate::peer::command::{Answer, Failure};
use crate::text::PeerId;
use crate::time::{Mono, Now, Wall};

/// Requests under way, by number.
#[derive(Debug, Default)]
pub(super) struct Requests {
    running: BTreeMap<u64, Running>,
    due: BTreeSet<(Mono, u64)>,
    numbers: u64,
}

#[derive(Debug)]
struct Running {
    /// `None` where nobody waits any more.
    ticket: Option<Ticket>,
    /// Who is asked; `None` for this node itself.
    authority: Option<PeerIndex>,
    request: Requester,
    due: Mono,
    /// Why the last attempt failed.
    failure: Option<Failure>,
}

impl Requests {
    /// Requests under way at once.
    pub(super) const MAX: usize = 4096;

    pub(super) fn deadline(&self) -> Option<Mono> {
        self.due.first().map(|(due, _)| *due)
    }

    pub(super) fn len(&self) -> usize {
        self.running.len()
    }

    fn arm(&mut self, number: u64) {
        if let Some(running) = self.running.get_mut(&number) {
            self.due.remove(&(running.due, number));
            running.due = running.request.deadline();
            self.due.insert((running.due, number));
        }
    }

    fn remove(&mut self, number: u64) -> Option<Running> {
        let running = self.running.remove(&number)?;
        self.due.remove(&(running.due, number));
        Some(running)
    }
}

impl Node {
    /// Asks `authority`, or whom the settings name, or this node itself.
    pub(super) fn ask_for_lease(
        &mut self,
        now: Now,
        ticket: Ticket,
        authority: Option<PeerId>,
        ask: Ask,
        out: &mut Out,
    ) -> Option<Answer> {
        let named = authority.as_ref().or(self.settings.authority.as_ref());
        let authority = match named.filter(|authority| **authority != self.settings.id) {
            None => None,
            Some(peer) => match self.find(peer) {
                None => return Some(Answer::Failed(Failure::UnknownPeer)),
                Some(index) if self.book.get(index).key.is_none() => {
                    return Some(Answer::Failed(Failure::NotPaired));
                }
                Some(index) => Some(index),
            },
        };
        if let Err(why) = check(&ask) {
            return Some(Answer::Failed(Failure::BadRequest(why)));
        }
        if self.draining {
            return Some(Answer::Failed(Failure::Stopping));
        }
        if self.requests.len() >= Requests::MAX {
            return Some(Answer::Failed(Failure::Busy));
        }
        self.requests.numbers += 1;
        let number = self.requests.numbers;
        let (request, next) = Requester::new(now.mono, ask, &mut self.entropy);
        let due = request.deadline();
        let running = Running { ticket: Some(ticket), authority, request, due, failure: None };
        self.requests.running.insert(number, running);
        self.lease_next(now, number, next, out);
        None
    }

    /// Something came of an attempt.
    pub(super) fn lease_answered(&mut self, now: Now, number: u64, answer: Answer, out: &mut Out) {
        let Some(running) = self.requests.running.get_mut(&number) else { return };
        let failure = match answer {
            Answer::Replied(message) => match LeaseResult::parse(&message.payload) {
                Some(result) => {
                    let (stamped, entropy) = (message.timestamp, &mut self.entropy);
                    // A link carries the answers to all attempts, a connection of its own that to one.
                    let next = if message.one_shot {
                        running.request.answered(now.mono, stamped, result, entropy)
                    } else {
                        running.request.answered_elsewhere(now.mono, stamped, result, entropy)
                    };
                    self.lease_next(now, number, next, out);
                    return;
                }
                None => Failure::NotTaken,
            },
            Answer::Failed(Failure::NoLeases) => {
                let next = running.request.unable();
                self.lease_next(now, number, next, out);
                return;
            }
            Answer::Failed(failure) => failure,
            Answer::Done
            | Answer::Connected { .. }
            | Answer::Sent { .. }
            | Answer::Pong(_)
            | Answer::Lease { .. }
            | Answer::Peers(_) => return,
        };
        match failure {
            // Another attempt would be told the same, and a refused proof counts over there.
            Failure::UnknownPeer
            | Failure::NotPaired
            | Failure::NoAddress
            | Failure::Denied { .. }
            | Failure::WrongPeer { .. }
            | Failure::Reflected
            | Failure::Unsendable(_)
            | Failure::NotStored(_)
            | Failure::BadRequest(_)
            | Failure::NoLeases
            | Failure::Stopping => {
                let ticket = self.requests.remove(number).and_then(|running| running.ticket);
                if let Some(ticket) = ticket {
                    out.answer_free(ticket, Answer::Failed(failure));
                }
            }
            Failure::Connection(_)
            | Failure::NoHandshake
            | Failure::TimedOut
            | Failure::Fault(_)
            | Failure::NotTaken
            | Failure::Gone
            | Failure::Withdrawn
            | Failure::Busy => {
                running.failure = Some(failure);
                let next = running.request.attempt_failed();
                self.lease_next(now, number, next, out);
            }
        }
    }

    /// Whether a peer's message answers a request, though not by the connection that asked: an authority that knows its
    /// askers by their names alone may answer one request of a node by the connection of another, or by the link.
    pub(super) fn is_stray_answer(
        &mut self,
        now: Now,
        peer: PeerIndex,
        kind: Kind,
        envelope: &Envelope<'_>,
        out: &mut Out,
    ) -> bool {
        if kind != Kind::LeaseResult || self.requests.running.is_empty() {
            return false;
        }
        let Some(result) = LeaseResult::parse(envelope.payload) else { return false };
        let asked = self.requests.running.iter_mut().find(|(_, running)| {
            running.authority == Some(peer) && running.request.request_id() == result.request_id
        });
        let Some((number, running)) = asked else { return false };
        let (number, stamped) = (*number, Wall::from_millis(envelope.timestamp));
        let next = running.request.answered_elsewhere(now.mono, stamped, result, &mut self.entropy);
        // What asked is not waited for any more.
        self.end_attempt(now, number, out);
        self.lease_next(now, number, next, out);
        true
    }

    /// The time of some attempts, rests and waits is over.
    pub(super) fn requests_due(&mut self, now: Now, out: &mut Out) {
        for _ in 0..BATCH {
            let Some((due, number)) = self.requests.due.first().copied().filter(|(due, _)| *due <= now.mono)
            else {
                break;
            };
            self.requests.due.remove(&(due, number));
            if let Some(running) = self.requests.running.get_mut(&number) {
                let next = running.request.due(now.mono, &mut self.entropy);
                self.lease_next(now, number, next, out);
            }
        }
    }

    /// Nobody waits any more for what came under this ticket: what a claim may have got is given back. False where it is
    /// no request for leases.
    pub(super) fn withdraw_request(&mut self, now: Now, ticket: Ticket, out: &mut Out) -> bool {
        let found = self.requests.running.iter_mut().find(|(_, running)| running.ticket == Some(ticket));
        let Some((number, running)) = found else { return false };
        let number = *number;
        running.ticket = None;
        out.answer_free(ticket, Answer::Failed(Failure::Withdrawn));
        let next = running.request.give_up(now.mono, &mut self.entropy);
        self.lease_next(now, number, next, out);
        true
    }

    /// The node ends: whoever waits is told.
    pub(super) fn stop_requests(&mut self, out: &mut Out) {
        let numbers: Vec<_> = self.requests.running.keys().copied().collect();
        for number in numbers {
            let ticket = self.requests.remove(number).and_then(|running| running.ticket);
            if let Some(ticket) = ticket {
                out.answer_free(ticket, Answer::Failed(Failure::Stopping));
            }
        }
    }

    fn lease_next(&mut self, now: Now, number: u64, mut next: Next, out: &mut Out) {
        loop {
            match next {
                Next::Rest => {
                    self.requests.arm(number);
                    return;
                }
                Next::Done(result) => {
                    self.end_attempt(now, number, out);
                    self.lease_done(number, result, out);
                    return;
                }
                Next::Send(request) => {
                    let authority = self.requests.running.get(&number).and_then(|running| running.authority);
                    if let Some(peer) = authority {
                        self.requests.arm(number);
                        self.attempt_lease(now, number, peer, &request, out);
                        return;
                    }
                    let own = self.settings.id.clone();
                    let result = self.judge_lease(now, &own, request, out);
                    let Some(running) = self.requests.running.get_mut(&number) else { return };
                    next = running.request.answered(now.mono, now.wall, result, &mut self.entropy);
                }
            }
        }
    }

    /// Sends a request over a connection of its own, or over the link where no address is known.
    fn attempt_lease(
        &mut self,
        now: Now,
        number: u64,
        peer: PeerIndex,
        request: &LeaseRequest,
        out: &mut Out,
    ) {
        let asker = Asker::Lease(number);
        self.end_attempt(now, number, out);
        let (kind, payload) = (request.kind(), serde_json::value::to_raw_value(request));
        debug_assert!(payload.is_ok(), "a request of texts and numbers is JSON");
        let payload = payload.unwrap_or_default();
        let reply = Some((Kind::LeaseResult, ATTEMPT_TIME));
        let attempts = self.attempts_for(peer);
        let failed = if attempts.is_empty()
            && let Some(conn) = self.book.get(peer).link
        {
            self.ask_over_link(now, conn, asker, kind, &payload, reply, out)
        } else if attempts.is_empty() {
            Some(Answer::Failed(Failure::NoAddress))
        } else {
            self.start(now, Errand::new(Purpose::Send { peer, kind, payload, reply }, asker, attempts), out)
        };
        if let Some(failed) = failed {
            self.lease_answered(now, number, failed, out);
        }
    }

    /// Ends what still runs for an earlier attempt.
    fn end_attempt(&mut self, now: Now, number: u64, out: &mut Out) {
        // This node itself is asked without a connection.
        if self.requests.running.get(&number).is_none_or(|running| running.authority.is_none()) {
            return;
        }
        let asker = Asker::Lease(number);
        self.forget_asked(asker);
        let Some(conn) = self.exchange_of(asker) else { return };
        if let Some(State::Dialling(dial)) = self.state_mut(conn) {
            dial.errand.asker = Asker::Nobody;
            dial.errand.attempts.clear();
        } else if let Some(State::Outbound(outbound)) = self.state_mut(conn) {
            outbound.asker = Asker::Nobody;
        }
        self.end_exchange(now, conn, Failure::TimedOut, out);
    }

    fn lease_done(&mut self, number: u64, result: Result<crate::lease::Answered, Unanswered>, out: &mut Out) {
        let Some(running) = self.requests.remove(number) else { return };
        let Some(ticket) = running.ticket else { return };
        let authority =
            running.authority.map_or_else(|| self.settings.id.clone(), |peer| self.book.get(peer).id.clone());
        let answer = Answer::Lease { authority, result, failure: running.failure };
        // What another node granted rests on no record here; nor does what a failing journal holds already.
        if running.authority.is_some() || self.leases.is_failing() {
            out.answer_free(ticket, answer);
        } else {
            out.answer(ticket, answer);
        }
    }
}

/// Whether a request is within the bounds that every authority keeps.
fn check(ask: &Ask) -> Result<(), &'static str> {
    let id = |id: &str| {
        is_id(id)
            .then_some(())
            .ok_or("the lease id must be 1 to 96 printable ASCII characters without space and @")
    };
    let holder = |session: &str| {
        is_session(session)
            .then_some(())
            .ok_or("the session must be 1 to 128 bytes without control characters and @")
    };
    match ask {
        Ask::Claim { lease_id, session, kind, value, ttl_secs, .. } => {
            id(lease_id)?;
            holder(session)?;
            if !is_kind(kind) {
                return Err("the resource's kind must be 1 to 32 of a-z, 0-9, _ and -");
            }
            if !is_value(value) {
                return Err("the resource's value must be 1 to 512 bytes without control characters");
            }
            if !(1..=MAX_TTL_SECS).contains(ttl_secs) {
                return Err("the time to live must be 1 second to 7 days");
            }
            Ok(())
        }
        Ask::Release { lease_id, session } => id(lease_id).and_then(|()| holder(session)),
        Ask::List => Ok(()),
    }
}
