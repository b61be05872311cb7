//! An errand goes from address to address, with one key after the other, until somebody answers.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::net::SocketAddr;
use core::time::Duration;

use super::dial::{Dial, Phase};
use super::state::{Slot, State};
use super::{Node, Out};
use crate::frame::{Cutter, Framing};
use crate::machine::{ConnId, Target, Ticket};
use crate::message::{Kind, RawValue};
use crate::outbox::Close;
use crate::peer::book::PeerIndex;
use crate::peer::command::{Answer, Direction, Event, Failure};
use crate::secret::Key;
use crate::text::PeerId;
use crate::time::Now;

/// What a dial is for, and what is left to try.
#[derive(Debug)]
pub(super) struct Errand {
    pub(super) purpose: Purpose,
    pub(super) asker: Asker,
    pub(super) attempts: VecDeque<Attempt>,
    /// Why the last attempt failed, and where.
    pub(super) failure: Option<(Failure, SocketAddr)>,
    /// Proofs that were refused: each counts over there.
    denials: u8,
}

/// Who is told what came of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Asker {
    /// Nobody.
    Nobody,
    /// The owner, under this ticket.
    Owner(Ticket),
    /// The request for a lease of this number.
    Lease(u64),
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

impl Errand {
    /// Dials under way at once, of all purposes.
    pub(super) const MAX_UNDER_WAY: usize = 1024;
    /// Refusals after which an errand gives up: one less than what locks an address out.
    const MAX_DENIALS: u8 = 4;
    /// Longest time for a connection to come about; a driver gives up earlier.
    const CONNECT_TIME: Duration = Duration::from_secs(15);

    pub(super) const fn new(purpose: Purpose, asker: Asker, attempts: VecDeque<Attempt>) -> Self {
        Self { purpose, asker, attempts, failure: None, denials: 0 }
    }

    pub(super) const fn is_for_a_link(&self) -> bool {
        match self.purpose {
            Purpose::Link { .. } => true,
            Purpose::Send { .. } | Purpose::Ping => false,
        }
    }

    pub(super) fn peer(&self) -> Option<PeerIndex> {
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

    /// One attempt failed: the next one, or the end of the errand.
    pub(super) fn attempt_failed(
        &mut self,
        now: Now,
        conn: ConnId,
        failure: Failure,
        how: Close,
        out: &mut Out,
    ) {
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
            | Failure::NoLeases
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

    /// A dial is over. Where the owner asked for another meanwhile, that one is the peer's still.
    pub(super) fn dial_ended(&mut self, conn: ConnId, errand: &Errand) {
        if let Some(peer) = errand.peer() {
            let dialling = &mut self.book.get_mut(peer).dialling;
            *dialling = dialling.filter(|other| *other != conn);
        }
    }

    fn give_up(&mut self, now: Now, errand: Errand, out: &mut Out) {
        let (failure, address) = match errand.failure {
            Some((failure, address)) => (failure, Some(address)),
            None => (Failure::NoAddress, None),
        };
        let peer = match errand.purpose {
            Purpose::Link { peer, .. } => peer,
            Purpose::Send { peer, kind, payload, reply } => {
                if errand.asker == Asker::Nobody {
                    return;
                }
                // What was not sent by a connection of its own goes over the link where one stands.
                let taken_back = matches!(failure, Failure::Withdrawn | Failure::Stopping);
                let link = self.book.get(peer).link.filter(|_| !taken_back);
                let outcome = match link {
                    Some(link) => self.ask_over_link(now, link, errand.asker, kind, &payload, reply, out),
                    None => Some(Answer::Failed(failure)),
                };
                if let Some(outcome) = outcome {
                    self.tell(now, errand.asker, outcome, out);
                }
                return;
            }
            Purpose::Ping => {
                self.tell(now, errand.asker, Answer::Failed(failure), out);
                return;
            }
        };
        self.tell(now, errand.asker, Answer::Failed(failure.clone()), out);
        let wrong_peer = matches!(failure, Failure::WrongPeer { .. });
        let denials = errand.denials.max(u8::from(wrong_peer));
        let retry_in = peer.and_then(|peer| self.redial_later(now, peer, Direction::Outbound, denials));
        let peer = peer.map(|peer| self.book.get(peer).id.clone());
        if errand.asker == Asker::Nobody || retry_in.is_some() {
            out.event_free(Event::DialFailed { peer, address, reason: failure, retry_in });
        }
    }

    /// The connection of its own, dialled or standing, by which an asker's message or ping is under way.
    pub(super) fn exchange_of(&self, asker: Asker) -> Option<ConnId> {
        // What is under way is counted, so that most of the time nobody is asked.
        if self.dials == 0 {
            return None;
        }
        let is_theirs = |slot: &&Slot| match &slot.state {
            State::Dialling(dial) => dial.errand.asker == asker && !dial.errand.is_for_a_link(),
            State::Outbound(outbound) => outbound.asker == asker,
            State::Vacant
            | State::Greeted(_)
            | State::Storing(_)
            | State::Link(_)
            | State::Inbound(_)
            | State::Closing => false,
        };
        self.slots.iter().find(is_theirs).map(|slot| slot.conn)
    }

    /// Ends such an exchange, whatever is left to try.
    pub(super) fn end_exchange(&mut self, now: Now, conn: ConnId, failure: Failure, out: &mut Out) {
        match self.state(conn) {
            Some(State::Dialling(_)) => self.abandon_dial(now, conn, failure, out),
            Some(_) | None => self.fail_outbound(now, conn, failure, out),
        }
    }

    /// Tells whoever asked what came of it.
    pub(super) fn tell(&mut self, now: Now, asker: Asker, answer: Answer, out: &mut Out) {
        match asker {
            Asker::Nobody => {}
            Asker::Owner(ticket) => out.answer_free(ticket, answer),
            Asker::Lease(number) => self.lease_answered(now, number, answer, out),
        }
    }
}
