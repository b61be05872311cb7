//! Leases, as commands ask for them and as they are told.

use core::time::Duration;

use relay_core::lease::{ATTEMPT_TIME, ATTEMPTS, Answered, Ask, Patience, Unanswered};
use relay_core::message::Utc;
use relay_core::message::lease::{Blocker, Lease, Mode, Outcome};
use relay_core::peer::{Answer, Command};
use relay_core::text::PeerId;
use relay_core::time::Wall;
use relay_runtime::Clock;
use serde::{Deserialize, Serialize};

use super::{Desk, Resource, explain};
use crate::clock;
use crate::failure::Failure;

/// The longest a request may take that waits for no lease: its attempts, and those of giving it back.
const AN_ANSWER: Duration = Duration::from_secs(2 * ATTEMPTS as u64 * ATTEMPT_TIME.as_secs() + 10);
/// The longest a claim may wait that waits for ever: a hundred years.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// A lease, as every command shows it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LeaseView {
    /// Its name.
    pub id: String,
    /// `kind:value`.
    pub resource: String,
    /// `session@peer`.
    pub owner: String,
    /// `exclusive` or `advisory`.
    pub mode: String,
    /// Why, for people; may be empty.
    pub reason: String,
    /// When it was granted, by the authority's clock.
    pub acquired_at: String,
    /// When it ends unless it is renewed, by the authority's clock.
    pub expires_at: String,
    /// What a renewal gives, in seconds.
    pub ttl: u64,
    /// Of two leases on one resource the later has the higher; null from an authority without such tokens.
    pub fencing_token: Option<u64>,
}

/// What came of a claim.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Claimed {
    /// The lease is held.
    Granted(Granted),
    /// Something is in its way.
    Conflict {
        /// Who says so.
        authority: String,
        /// Who holds what is in the way; null where it is the queue alone.
        holder: Option<String>,
        /// The id of that lease.
        holder_lease: Option<String>,
        /// When that one ends unless it is renewed.
        expires_at: Option<String>,
        /// How many wait before this claim, where it is the queue alone.
        ahead: Option<u64>,
    },
    /// The time to wait was over first; the place in the queue was left.
    WaitedInVain {
        /// Who keeps the queue.
        authority: String,
    },
    /// The authority does not serve it.
    Refused {
        /// Who says so.
        authority: String,
        /// Why.
        message: String,
        /// What to try next; may be empty.
        hint: String,
    },
}

/// A lease that is held.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Granted {
    /// Who granted it.
    pub authority: String,
    /// The lease.
    pub lease: LeaseView,
    /// As in the lease.
    pub fencing_token: Option<u64>,
    /// Until when it is held for certain, whatever comes: nanoseconds of this machine's clock that counts suspend
    /// (`CLOCK_BOOTTIME`).
    pub certain_until: u64,
    /// Seconds until then, when this was answered.
    pub certain_for: f64,
}

/// A lease was given back.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Released {
    /// Who kept it.
    pub authority: String,
    /// The lease.
    pub id: String,
}

/// The leases of an authority.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Leases {
    /// Who keeps them.
    pub authority: String,
    /// The newest first.
    pub leases: Vec<LeaseView>,
    /// Whether there are more, which do not fit an answer.
    pub truncated: bool,
}

impl Claimed {
    /// The lease.
    ///
    /// # Errors
    /// Why there is none, as a command about `resource` says it.
    pub fn held(self, resource: &Resource) -> Result<Granted, Failure> {
        let show = "Or see whose it is: relay lease list.";
        match self {
            Self::Granted(granted) => Ok(granted),
            Self::Conflict { holder: Some(holder), holder_lease, expires_at, .. } => {
                let lease = holder_lease.map(|id| format!(" (lease {id})")).unwrap_or_default();
                let until =
                    expires_at.map(|at| format!(" until {at}, unless it is renewed")).unwrap_or_default();
                Err(Failure::refused(
                    format!("{resource} is held by {holder}{until}{lease}"),
                    format!("Wait for it: --wait. {show}"),
                ))
            }
            Self::Conflict { ahead, .. } => {
                let ahead = ahead.map_or_else(|| "some".to_owned(), |ahead| ahead.to_string());
                Err(Failure::refused(
                    format!("{resource} is awaited by {ahead} that came before"),
                    format!("Wait behind them: --wait. {show}"),
                ))
            }
            Self::WaitedInVain { .. } => Err(Failure::unreachable(
                format!("{resource} was still held when the time to wait was over; nothing waits any more"),
                format!("Wait longer: --timeout D. {show}"),
            )),
            Self::Refused { authority, message, hint } => {
                Err(Failure::refused(format!("authority \"{authority}\" refused the claim: {message}"), hint))
            }
        }
    }
}

impl From<&Lease> for LeaseView {
    fn from(lease: &Lease) -> Self {
        Self {
            id: lease.id.clone(),
            resource: format!("{}:{}", lease.resource_kind, lease.resource_value),
            owner: lease.owner_session_id.clone(),
            mode: lease.mode.clone(),
            reason: lease.reason.clone(),
            acquired_at: shown(lease.acquired_at),
            expires_at: shown(lease.expires_at),
            ttl: lease.ttl_secs,
            fencing_token: lease.fencing_token,
        }
    }
}

/// What a claim asks for.
pub(super) struct Claim {
    pub(super) lease_id: String,
    pub(super) session: String,
    pub(super) resource: String,
    pub(super) mode: String,
    pub(super) ttl: u64,
    pub(super) reason: String,
    pub(super) wait: bool,
    pub(super) wait_within: Option<u64>,
}

impl Desk {
    pub(super) fn claim(
        &self,
        authority: Option<PeerId>,
        claim: Claim,
        wanted: &dyn Fn() -> bool,
    ) -> Result<Claimed, Failure> {
        let Claim { lease_id, session, resource, mode, ttl, reason, wait, wait_within } = claim;
        let Resource { kind, value } = Resource::parse(&resource)
            .map_err(|rule| Failure::usage(rule, "It is kind:value, or a path alone."))?;
        let mode = Mode::parse(&mode).ok_or_else(|| {
            Failure::usage(format!("{mode:?} is no mode of a lease"), "It is exclusive or advisory.")
        })?;
        let patience = wait_within.map_or(Patience::Endless, |secs| Patience::For(Duration::from_secs(secs)));
        let wait = wait.then_some(patience);
        let within = match wait {
            None => AN_ANSWER,
            Some(Patience::Endless) => FOR_EVER,
            Some(Patience::For(span)) => AN_ANSWER + span.min(FOR_EVER),
        };
        let ask = Ask::Claim { lease_id, session, kind, value, mode, ttl_secs: ttl, reason, wait };
        let (authority, answered) = self.ask_authority(authority, ask, within, wanted)?;
        Ok(match answered {
            Err(Unanswered::WaitedInVain) => Claimed::WaitedInVain { authority },
            Err(why) => return Err(unanswered(&authority, why)),
            Ok(Answered::Granted { lease, certain_until }) => {
                let left = certain_until.since(Clock.now().mono);
                Claimed::Granted(Granted {
                    authority,
                    lease: LeaseView::from(&lease),
                    fencing_token: lease.fencing_token,
                    certain_until: certain_until.as_nanos(),
                    certain_for: super::line::seconds(left),
                })
            }
            Ok(Answered::Other(Outcome::Conflict(blocker) | Outcome::Queued { blocker, .. })) => {
                let (holder, holder_lease, expires_at, ahead) = match blocker {
                    Blocker::Lease { holder, lease_id, expires_at } => {
                        (Some(holder), Some(lease_id), expires_at.map(shown), None)
                    }
                    Blocker::Queue { ahead } => (None, None, None, Some(ahead)),
                };
                Claimed::Conflict { authority, holder, holder_lease, expires_at, ahead }
            }
            Ok(Answered::Other(outcome)) => {
                let (message, hint) = self.refusal(&authority, &outcome);
                Claimed::Refused { authority, message, hint }
            }
            Ok(_) => return Err(unexpected(&authority)),
        })
    }

    pub(super) fn release(
        &self,
        authority: Option<PeerId>,
        lease_id: String,
        session: String,
        wanted: &dyn Fn() -> bool,
    ) -> Result<Released, Failure> {
        let ask = Ask::Release { lease_id: lease_id.clone(), session };
        let (authority, answered) = self.ask_authority(authority, ask, AN_ANSWER, wanted)?;
        let see = "relay lease list shows those that are held.";
        match answered {
            Err(why) => Err(unanswered(&authority, why)),
            Ok(Answered::Other(Outcome::Released)) => Ok(Released { authority, id: lease_id }),
            Ok(Answered::Other(Outcome::NotOwner { holder })) => {
                let holder = holder.unwrap_or_else(|| "another owner".to_owned());
                Err(Failure::refused(
                    format!("lease {lease_id} is held by {holder}"),
                    "Release it on that machine, with the session that holds it: --session S.",
                ))
            }
            Ok(Answered::Other(Outcome::NotFound)) => Err(not_found(&authority, &lease_id)),
            Ok(Answered::Other(Outcome::NotActive { status })) => {
                let status = status.map(|status| format!(": {status}")).unwrap_or_default();
                Err(Failure::refused(format!("lease {lease_id} had ended before{status}"), see))
            }
            Ok(Answered::Other(outcome)) => {
                let (message, hint) = self.refusal(&authority, &outcome);
                Err(Failure::refused(
                    format!("authority \"{authority}\" refused the release: {message}"),
                    hint,
                ))
            }
            Ok(_) => Err(unexpected(&authority)),
        }
    }

    pub(super) fn leases(
        &self,
        authority: Option<PeerId>,
        wanted: &dyn Fn() -> bool,
    ) -> Result<Leases, Failure> {
        let (authority, answered) = self.ask_authority(authority, Ask::List, AN_ANSWER, wanted)?;
        match answered {
            Err(why) => Err(unanswered(&authority, why)),
            Ok(Answered::Other(Outcome::List { leases, truncated })) => {
                Ok(Leases { authority, leases: leases.iter().map(LeaseView::from).collect(), truncated })
            }
            Ok(Answered::Other(outcome)) => {
                let (message, hint) = self.refusal(&authority, &outcome);
                Err(Failure::refused(format!("authority \"{authority}\" refused the list: {message}"), hint))
            }
            Ok(_) => Err(unexpected(&authority)),
        }
    }

    fn ask_authority(
        &self,
        authority: Option<PeerId>,
        ask: Ask,
        within: Duration,
        wanted: &dyn Fn() -> bool,
    ) -> Result<(String, Result<Answered, Unanswered>), Failure> {
        let who = authority.clone().or_else(|| self.authority().cloned());
        let who =
            who.map_or_else(|| "the lease authority".to_owned(), |id| format!("lease authority \"{id}\""));
        match self.call_while(Command::Lease { authority, ask }, within, wanted)? {
            Answer::Lease { authority, result: Err(Unanswered::NoAnswer), failure } => {
                let why = failure.map(|cause| explain::failure(&format!("peer \"{authority}\""), &cause));
                let why = why.map(|why| format!(": {}", why.message)).unwrap_or_default();
                Err(Failure::unreachable(
                    format!("lease authority \"{authority}\" gave no answer in {ATTEMPTS} attempts{why}"),
                    "What was asked may have been done: relay lease list. Start it there: relay serve.",
                ))
            }
            Answer::Lease { authority, result, failure: _ } => Ok((authority.to_string(), result)),
            Answer::Failed(cause) => Err(explain::failure(&who, &cause)),
            Answer::Done
            | Answer::Connected { .. }
            | Answer::Sent { .. }
            | Answer::Replied(_)
            | Answer::Pong(_)
            | Answer::Peers(_)
            | _ => Err(unexpected(&who)),
        }
    }

    /// Why an authority does not serve a request, and what to do about it.
    fn refusal(&self, authority: &str, outcome: &Outcome) -> (String, String) {
        let message = if let Outcome::Error(message) = outcome {
            message.clone()
        } else {
            outcome.as_str().replace('_', " ")
        };
        let ours = authority == self.id();
        let hint = if ours && self.journal_fails() { explain::JOURNAL_FAILS } else { "" };
        (message, hint.to_owned())
    }
}

/// Leases are kept by a service alone, and none runs here.
#[must_use]
pub fn keeps_none() -> Failure {
    Failure::refused(
        "relay serve is not running here, and this node keeps its own leases",
        "Start it: relay serve. Or name the peer that keeps them: --authority PEER.",
    )
}

/// There is no such lease.
#[must_use]
pub fn not_found(authority: &str, lease_id: &str) -> Failure {
    Failure::refused(
        format!("lease authority \"{authority}\" knows no lease {lease_id}"),
        "relay lease list shows those that are held.",
    )
}

fn unanswered(authority: &str, why: Unanswered) -> Failure {
    let hint = match why {
        Unanswered::NoLeases => "Name the peer that keeps them: --authority PEER.",
        Unanswered::NoAnswer | Unanswered::WaitedInVain | Unanswered::GivenUp => "Try again.",
        _ => "",
    };
    Failure::refused(format!("peer \"{authority}\" gave no lease: {why}"), hint)
}

fn unexpected(who: &str) -> Failure {
    Failure::refused(format!("{who}: the node answered something else"), "")
}

fn shown(at: Utc) -> String {
    clock::rfc3339(Wall::from_millis(at.as_secs().saturating_mul(1000))).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_that_is_granted_is_one_flat_object() {
        let lease = LeaseView {
            id: "l".to_owned(),
            resource: "res:x".to_owned(),
            owner: "s@p".to_owned(),
            mode: "exclusive".to_owned(),
            reason: String::new(),
            acquired_at: "A".to_owned(),
            expires_at: "E".to_owned(),
            ttl: 60,
            fencing_token: Some(7),
        };
        let granted = Granted {
            authority: "p".to_owned(),
            lease,
            fencing_token: Some(7),
            certain_until: u64::MAX,
            certain_for: 1.5,
        };
        let claimed = Claimed::Granted(granted);
        let text = serde_json::to_string(&claimed).unwrap();
        assert!(text.starts_with(r#"{"outcome":"granted","authority":"p","lease":{"id":"l","#), "{text}");
        assert_eq!(serde_json::from_str::<Claimed>(&text).unwrap(), claimed);
    }
}
