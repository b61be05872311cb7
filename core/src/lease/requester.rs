//! One request to an authority, from its first attempt to its end: pure, and driven by whoever sends and hears.

use alloc::string::String;
use core::fmt;
use core::time::Duration;

use super::Ended;
use crate::message::lease::{
    Lease, LeaseClaim, LeaseList, LeaseRelease, LeaseRequest, LeaseResult, Mode, Outcome, clip_reason,
};
use crate::secret::Entropy;
use crate::time::{Mono, Wall};

/// How long one attempt may take, from the dial to the answer.
pub const ATTEMPT_TIME: Duration = Duration::from_secs(5);
/// Attempts, each with a new message id and the same request id.
pub const ATTEMPTS: u8 = 3;
/// How long a waiting claim rests between an answer and its next poll.
pub const POLL_EVERY: Duration = Duration::from_secs(1);

/// What is asked of an authority.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Ask {
    /// A lease.
    Claim {
        /// The name that it will have: repeated for every try of the same claim.
        lease_id: String,
        /// The session that is to hold it.
        session: String,
        /// The resource's kind.
        kind: String,
        /// The resource's value.
        value: String,
        /// Whether it excludes others.
        mode: Mode,
        /// Seconds that it holds without a renewal.
        ttl_secs: u64,
        /// For people; may be empty.
        reason: String,
        /// Whether to wait where it is held, and for how long at most.
        wait: Option<Patience>,
    },
    /// To take a lease back.
    Release {
        /// Its name.
        lease_id: String,
        /// The session that holds it.
        session: String,
    },
    /// All leases.
    List,
}

/// How long a claim waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(clippy::exhaustive_enums)]
pub enum Patience {
    /// Until it is granted.
    Endless,
    /// This long at most: what is granted later is given back.
    For(Duration),
}

/// How a request ended.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Answered {
    /// The lease is held, for certain until then; the authority may have renewed it further.
    Granted {
        /// The lease.
        lease: Lease,
        /// Counted from when the claim was sent, by the authority's own clock at both ends.
        certain_until: Mono,
    },
    /// Anything else that an authority says.
    Other(Outcome),
}

/// Why a request has no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Unanswered {
    /// Nothing came in [`ATTEMPTS`] attempts. The request may have been carried out all the same.
    NoAnswer,
    /// The peer does not speak of leases: nothing was sent.
    NoLeases,
    /// The wait was over before the lease was free; the place in the queue was left.
    WaitedInVain,
    /// The owner gave the claim up.
    GivenUp,
}

impl fmt::Display for Unanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoAnswer => "no answer in three attempts of 5 s; the request may have been carried out",
            Self::NoLeases => "the peer keeps no leases for the fleet, or its version is older than they are",
            Self::WaitedInVain => "still held when the time to wait was over",
            Self::GivenUp => "given up",
        })
    }
}

/// What to do next for a request.
#[derive(Debug)]
pub enum Next {
    /// Send this, over a connection of its own; whatever still runs for an earlier attempt is to be ended.
    Send(LeaseRequest),
    /// Nothing until the deadline.
    Rest,
    /// It has ended.
    Done(Result<Answered, Unanswered>),
}

/// A request under way.
///
/// ```text
///   Asked ──answer──▶ Resting ──1 s──▶ Asked        (a claim that waits)
///     │ └─ 5 s or a lost connection, up to 3 times ─▶ Asked, the same request again
///     │                  │
///     ├─ answer ─▶ done  └─ out of patience, given up ─▶ Leaving ─▶ done
///     └──────────────────────────────────────────────▶ Leaving
/// ```
///
/// `Leaving` gives back what a claim may have got since: a grant that comes when nobody waits for it any more must not
/// keep others out.
#[derive(Debug)]
pub struct Requester {
    ask: Ask,
    phase: Phase,
    request_id: String,
    waiter_id: Option<String>,
    attempt: u8,
    first_sent: Mono,
    sent: Mono,
    deadline: Mono,
    give_up: Option<Mono>,
    left: Unanswered,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Asked,
    Resting,
    Leaving,
}

impl Requester {
    /// A request that is to be sent now.
    pub fn new(now: Mono, ask: Ask, entropy: &mut Entropy) -> (Self, Next) {
        let patience = match &ask {
            Ask::Claim { wait: Some(Patience::For(span)), .. } => Some(now.after(*span)),
            Ask::Claim { .. } | Ask::Release { .. } | Ask::List => None,
        };
        let mut request = Self {
            ask,
            phase: Phase::Asked,
            request_id: String::new(),
            waiter_id: None,
            attempt: 0,
            first_sent: now,
            sent: now,
            deadline: now,
            give_up: patience,
            left: Unanswered::WaitedInVain,
        };
        let next = request.ask_anew(now, entropy);
        (request, next)
    }

    /// When [`due`](Self::due) is to be called.
    #[must_use]
    pub fn deadline(&self) -> Mono {
        match (self.phase, self.give_up) {
            (Phase::Asked | Phase::Resting, Some(give_up)) => self.deadline.min(give_up),
            (Phase::Asked | Phase::Resting, None) | (Phase::Leaving, _) => self.deadline,
        }
    }

    /// The lease that is asked for, or given back.
    #[must_use]
    pub fn lease_id(&self) -> Option<&str> {
        match &self.ask {
            Ask::Claim { lease_id, .. } | Ask::Release { lease_id, .. } => Some(lease_id),
            Ask::List => None,
        }
    }

    /// What names this request in its answer.
    #[must_use]
    pub fn request_id(&self) -> &str {
        &self.request_id
    }

    /// An answer came by another way than that of the newest attempt, so that it may be to an earlier one: what is
    /// certain counts from the first. Else as [`answered`](Self::answered).
    pub fn answered_elsewhere(
        &mut self,
        now: Mono,
        stamped: Wall,
        result: LeaseResult,
        entropy: &mut Entropy,
    ) -> Next {
        if result.request_id == self.request_id {
            self.sent = self.first_sent;
        }
        self.answered(now, stamped, result, entropy)
    }

    /// The answer to the newest attempt came, from an authority whose clock then said `stamped`. One to another request
    /// changes nothing.
    pub fn answered(&mut self, now: Mono, stamped: Wall, result: LeaseResult, entropy: &mut Entropy) -> Next {
        if result.request_id != self.request_id || self.phase == Phase::Resting {
            return Next::Rest;
        }
        if self.phase == Phase::Leaving {
            return Next::Done(Err(self.left));
        }
        if self.give_up.is_some_and(|give_up| give_up <= now) {
            return self.leave(now, Unanswered::WaitedInVain, entropy);
        }
        match (result.outcome, &self.ask) {
            (Outcome::Granted(lease), _) => {
                let ends = lease.expires_at.as_secs().saturating_mul(1000);
                let left = Duration::from_millis(ends.saturating_sub(stamped.as_millis()));
                // Nobody counts on more than was asked for, whatever the clock over there says.
                let left = left.min(Duration::from_secs(lease.ttl_secs));
                Next::Done(Ok(Answered::Granted { lease, certain_until: self.sent.after(left) }))
            }
            (Outcome::Queued { waiter_id, .. }, Ask::Claim { wait: Some(_), .. }) => {
                self.waiter_id = Some(waiter_id);
                self.rest(now)
            }
            (Outcome::WaiterGone, Ask::Claim { wait: Some(_), .. }) => {
                self.waiter_id = None;
                self.rest(now)
            }
            // Not every authority remembers what it did for whom: where an answer was lost, it was an earlier attempt of
            // this request that released it, since nobody else can.
            (Outcome::NotActive { status }, Ask::Release { .. })
                if self.attempt > 1 && status.as_deref() == Some(Ended::Released.as_str()) =>
            {
                Next::Done(Ok(Answered::Other(Outcome::Released)))
            }
            (outcome, _) => Next::Done(Ok(Answered::Other(outcome))),
        }
    }

    /// The attempt failed before its answer came: the next one follows when this one's time is over, so that a peer that
    /// starts again is not asked three times within a moment.
    pub fn attempt_failed(&mut self) -> Next {
        Next::Rest
    }

    /// The peer cannot be asked for leases; nothing was sent.
    pub fn unable(&mut self) -> Next {
        Next::Done(Err(Unanswered::NoLeases))
    }

    /// The deadline has come.
    pub fn due(&mut self, now: Mono, entropy: &mut Entropy) -> Next {
        match self.phase {
            Phase::Asked | Phase::Resting if self.give_up.is_some_and(|give_up| give_up <= now) => {
                self.leave(now, Unanswered::WaitedInVain, entropy)
            }
            Phase::Asked | Phase::Resting | Phase::Leaving if self.deadline > now => Next::Rest,
            Phase::Asked if self.attempt < ATTEMPTS => self.send(now),
            Phase::Asked => Next::Done(Err(Unanswered::NoAnswer)),
            Phase::Resting => self.ask_anew(now, entropy),
            Phase::Leaving if self.attempt < ATTEMPTS => self.send(now),
            Phase::Leaving => Next::Done(Err(self.left)),
        }
    }

    /// The owner does not want it any more.
    pub fn give_up(&mut self, now: Mono, entropy: &mut Entropy) -> Next {
        match self.phase {
            Phase::Leaving => Next::Rest,
            Phase::Asked | Phase::Resting => self.leave(now, Unanswered::GivenUp, entropy),
        }
    }

    fn rest(&mut self, now: Mono) -> Next {
        self.phase = Phase::Resting;
        self.deadline = now.after(POLL_EVERY);
        Next::Rest
    }

    /// Gives back what may have been got, or waited for.
    fn leave(&mut self, now: Mono, why: Unanswered, entropy: &mut Entropy) -> Next {
        let Ask::Claim { lease_id, session, .. } = &self.ask else { return Next::Done(Err(why)) };
        self.ask = Ask::Release { lease_id: lease_id.clone(), session: session.clone() };
        let next = self.ask_anew(now, entropy);
        self.phase = Phase::Leaving;
        self.left = why;
        next
    }

    fn ask_anew(&mut self, now: Mono, entropy: &mut Entropy) -> Next {
        self.request_id = alloc::format!("req_{:016x}{:016x}", entropy.draw_u64(), entropy.draw_u64());
        self.phase = Phase::Asked;
        self.attempt = 0;
        self.first_sent = now;
        self.send(now)
    }

    fn send(&mut self, now: Mono) -> Next {
        self.attempt += 1;
        self.sent = now;
        self.deadline = now.after(ATTEMPT_TIME);
        let request_id = self.request_id.clone();
        Next::Send(match &self.ask {
            Ask::Claim { lease_id, session, kind, value, mode, ttl_secs, reason, wait } => {
                LeaseRequest::Claim(LeaseClaim {
                    request_id,
                    lease_id: lease_id.clone(),
                    session: session.clone(),
                    kind: kind.clone(),
                    value: value.clone(),
                    mode: *mode,
                    ttl_secs: *ttl_secs,
                    reason: clip_reason(reason),
                    wait: wait.is_some(),
                    waiter_id: self.waiter_id.clone(),
                })
            }
            Ask::Release { lease_id, session } => LeaseRequest::Release(LeaseRelease {
                request_id,
                lease_id: lease_id.clone(),
                session: session.clone(),
            }),
            Ask::List => LeaseRequest::List(LeaseList { request_id }),
        })
    }
}

#[cfg(test)]
mod tests;
