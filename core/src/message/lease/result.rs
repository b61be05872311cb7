//! What the authority answers.

use alloc::string::String;
use alloc::vec::Vec;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::super::object::each;
use super::super::{Object, RawValue, Utc};
#[cfg(doc)]
use super::LeaseClaim;
use super::{LeaseFault, MAX_ID, MAX_KIND, MAX_MESSAGE, MAX_SESSION, MAX_VALUE, clip_reason, is_id};
use crate::text::{PeerId, clip};

/// A lease as messages describe it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Lease {
    /// The requester's name for it.
    pub id: String,
    /// `session@peer` for a fleet lease.
    pub owner_session_id: String,
    /// The kind of agent, `claude-code` from the existing peer.
    pub owner_agent: String,
    /// As [`LeaseClaim::kind`].
    pub resource_kind: String,
    /// As [`LeaseClaim::value`].
    pub resource_value: String,
    /// As claimed. Text, since a peer's store may hold modes that we do not grant.
    pub mode: String,
    /// As [`LeaseClaim::reason`].
    pub reason: String,
    /// When it was granted, by the authority's clock.
    pub acquired_at: Utc,
    /// When it ends unless it is renewed, by the authority's clock.
    pub expires_at: Utc,
    /// `active`, `released` or `expired`.
    pub status: String,
    /// What a renewal gives, in seconds.
    pub ttl_secs: u64,
    /// The sequence number of the grant, where the authority speaks `lease-fence`: of two leases on one resource
    /// the later has the higher.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fencing_token: Option<u64>,
}

impl Lease {
    /// Longest owner that is read: a session, `@` and a peer, in bytes.
    pub const MAX_OWNER: usize = MAX_SESSION + 1 + PeerId::MAX_BYTES;

    /// Reads a lease. Id and `expires_at` are needed; what else is missing reads as empty. Strings are clipped.
    #[must_use]
    pub fn parse(lease: &RawValue) -> Option<Self> {
        let object = Object::new(
            lease,
            &[
                "id",
                "owner_session_id",
                "owner_agent",
                "resource_kind",
                "resource_value",
                "mode",
                "reason",
                "acquired_at",
                "expires_at",
                "status",
                "ttl_secs",
                "fencing_token",
            ],
        );
        let text = |key, max| object.str(key).map(|text| clip(&text, max)).unwrap_or_default();
        Some(Self {
            id: object.string("id").filter(|id| is_id(id))?,
            owner_session_id: text("owner_session_id", Self::MAX_OWNER),
            owner_agent: text("owner_agent", MAX_ID),
            resource_kind: text("resource_kind", MAX_KIND),
            resource_value: text("resource_value", MAX_VALUE),
            mode: text("mode", MAX_KIND),
            reason: object.str("reason").map(|reason| clip_reason(&reason)).unwrap_or_default(),
            acquired_at: object.get("acquired_at").unwrap_or_default(),
            expires_at: object.get("expires_at")?,
            status: text("status", MAX_KIND),
            ttl_secs: object.u64("ttl_secs").unwrap_or_default(),
            fencing_token: object.u64("fencing_token"),
        })
    }
}

/// `lease_result`: the authority's answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeaseResult {
    /// From the request; empty where that one was out of its bounds.
    pub request_id: String,
    /// What came of it.
    pub outcome: Outcome,
}

/// What came of a lease request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The claim holds.
    Granted(Lease),
    /// It does not.
    Conflict(Blocker),
    /// It waits, and is to poll.
    Queued {
        /// What it waits for.
        blocker: Blocker,
        /// The place in the queue.
        waiter_id: String,
    },
    /// The place in the queue is no more.
    WaiterGone,
    /// The lease was given back.
    Released,
    /// It is another's.
    NotOwner {
        /// Whose, where the authority says so.
        holder: Option<String>,
    },
    /// There is none of that id.
    NotFound,
    /// It had ended before.
    NotActive {
        /// How, where the authority says so.
        status: Option<String>,
    },
    /// The active fleet leases, newest first.
    List {
        /// Those that fit.
        leases: Vec<Lease>,
        /// Whether there are more.
        truncated: bool,
    },
    /// The request cannot be served; the text is prose, not to be matched on.
    Error(String),
}

/// What is in a claim's way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Blocker {
    /// A lease.
    Lease {
        /// Its owner.
        holder: String,
        /// Its id.
        lease_id: String,
        /// When it ends unless it is renewed; `None` where the authority did not say so readably.
        expires_at: Option<Utc>,
    },
    /// Only the queue, with so many before the claim.
    Queue {
        /// How many.
        ahead: u64,
    },
}

impl From<LeaseFault> for LeaseResult {
    fn from(fault: LeaseFault) -> Self {
        let outcome = Outcome::Error(alloc::string::ToString::to_string(&fault));
        Self { request_id: fault.request_id, outcome }
    }
}

impl LeaseResult {
    /// Reads a payload; `None` without a request id or with an outcome that we do not know, or that lacks what it
    /// is about. Leases of a list that do not read are dropped alone.
    #[must_use]
    pub fn parse(payload: &RawValue) -> Option<Self> {
        let object = Object::new(
            payload,
            &[
                "request_id",
                "outcome",
                "lease",
                "holder",
                "holder_lease",
                "expires_at",
                "ahead",
                "waiter_id",
                "status",
                "leases",
                "truncated",
                "message",
            ],
        );
        let text = |key, max| object.str(key).map(|text| clip(&text, max));
        let blocker = || match text("holder", Lease::MAX_OWNER) {
            Some(holder) => Blocker::Lease {
                holder,
                lease_id: text("holder_lease", MAX_ID).unwrap_or_default(),
                expires_at: object.get("expires_at"),
            },
            None => Blocker::Queue { ahead: object.u64("ahead").unwrap_or_default() },
        };
        let outcome = match &*object.str("outcome")? {
            "granted" => Outcome::Granted(Lease::parse(object.raw("lease")?)?),
            "conflict" => Outcome::Conflict(blocker()),
            "queued" => {
                let waiter_id = object.string("waiter_id").filter(|id| is_id(id))?;
                Outcome::Queued { blocker: blocker(), waiter_id }
            }
            "waiter_gone" => Outcome::WaiterGone,
            "released" => Outcome::Released,
            "not_owner" => Outcome::NotOwner { holder: text("holder", Lease::MAX_OWNER) },
            "not_found" => Outcome::NotFound,
            "not_active" => Outcome::NotActive { status: text("status", MAX_KIND) },
            "list" => {
                let mut leases = Vec::new();
                let is_array = each(object.raw("leases")?, |lease| leases.extend(Lease::parse(lease)));
                is_array.then(|| Outcome::List { leases, truncated: object.bool_true("truncated") })?
            }
            "error" => Outcome::Error(text("message", MAX_MESSAGE).unwrap_or_default()),
            _ => return None,
        };
        let request_id = object.string("request_id").filter(|id| id.is_empty() || is_id(id))?;
        Some(Self { request_id, outcome })
    }
}

impl Outcome {
    /// The outcome's name on the wire.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Granted(_) => "granted",
            Self::Conflict(_) => "conflict",
            Self::Queued { .. } => "queued",
            Self::WaiterGone => "waiter_gone",
            Self::Released => "released",
            Self::NotOwner { .. } => "not_owner",
            Self::NotFound => "not_found",
            Self::NotActive { .. } => "not_active",
            Self::List { .. } => "list",
            Self::Error(_) => "error",
        }
    }
}

impl Serialize for LeaseResult {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("request_id", &self.request_id)?;
        map.serialize_entry("outcome", self.outcome.as_str())?;
        match &self.outcome {
            Outcome::Granted(lease) => map.serialize_entry("lease", lease)?,
            Outcome::Conflict(blocker) => blocker.serialize_into(&mut map)?,
            Outcome::Queued { blocker, waiter_id } => {
                blocker.serialize_into(&mut map)?;
                map.serialize_entry("waiter_id", waiter_id)?;
            }
            Outcome::NotOwner { holder } => {
                if let Some(holder) = holder {
                    map.serialize_entry("holder", holder)?;
                }
            }
            Outcome::NotActive { status } => {
                if let Some(status) = status {
                    map.serialize_entry("status", status)?;
                }
            }
            Outcome::List { leases, truncated } => {
                map.serialize_entry("leases", leases)?;
                if *truncated {
                    map.serialize_entry("truncated", truncated)?;
                }
            }
            Outcome::Error(message) => map.serialize_entry("message", message)?,
            Outcome::WaiterGone | Outcome::Released | Outcome::NotFound => {}
        }
        map.end()
    }
}

impl Blocker {
    fn serialize_into<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        match self {
            Self::Lease { holder, lease_id, expires_at } => {
                map.serialize_entry("holder", holder)?;
                map.serialize_entry("holder_lease", lease_id)?;
                expires_at.as_ref().map_or(Ok(()), |at| map.serialize_entry("expires_at", at))
            }
            Self::Queue { ahead } => map.serialize_entry("ahead", ahead),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> &RawValue {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_result_that_lacks_what_it_is_about_is_none() {
        for bad in [
            r#"{"outcome":"released"}"#,
            r#"{"request_id":"r"}"#,
            r#"{"request_id":"r","outcome":"new"}"#,
            r#"{"request_id":"r","outcome":"granted"}"#,
            r#"{"request_id":"r","outcome":"granted","lease":{"id":"l"}}"#,
            r#"{"request_id":"r","outcome":"queued","ahead":1}"#,
            r#"{"request_id":"r","outcome":"list"}"#,
            r#"{"request_id":"r","outcome":"list","leases":{}}"#,
            r#"{"request_id":"a b","outcome":"released"}"#,
        ] {
            assert_eq!(LeaseResult::parse(raw(bad)), None, "{bad}");
        }
    }

    #[test]
    fn a_lease_of_an_authority_without_fencing_has_no_token() {
        let text = r#"{"id":"l1","owner_session_id":"s@p","owner_agent":"claude-code","resource_kind":"file","resource_value":"a","mode":"shared_read","reason":"","acquired_at":"2024-01-01T00:00:00Z","expires_at":"2024-01-01T00:01:00Z","status":"active","ttl_secs":60}"#;
        let lease = Lease::parse(raw(text)).unwrap();
        assert_eq!(lease.fencing_token, None);
        assert_eq!(serde_json::to_string(&lease).unwrap(), text);
    }

    #[test]
    fn what_stands_in_the_way_is_a_lease_or_the_queue() {
        let of = |text: &str| LeaseResult::parse(raw(text)).unwrap().outcome;
        assert_eq!(
            of(
                r#"{"request_id":"r","outcome":"conflict","holder":"s@p","holder_lease":"l","expires_at":"x"}"#
            ),
            Outcome::Conflict(Blocker::Lease {
                holder: "s@p".into(),
                lease_id: "l".into(),
                expires_at: None
            })
        );
        assert_eq!(
            of(r#"{"request_id":"","outcome":"queued","ahead":2,"waiter_id":"w"}"#),
            Outcome::Queued { blocker: Blocker::Queue { ahead: 2 }, waiter_id: "w".into() }
        );
    }
}
