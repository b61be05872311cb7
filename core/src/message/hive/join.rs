//! Joining a hive.

use alloc::borrow::Cow;
use alloc::string::String;

use serde::Serialize;

use super::super::{Object, RawValue};
use super::MAX_REASON;
use crate::text::clip;

/// `hive_join_request`: asks to be let in. Reading it never fails: what cannot be read is an empty request.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct HiveJoinRequest {
    /// Which hive; refused where it is another.
    pub hive_id: Option<String>,
    /// A name for the owner's queue, clipped. Advisory.
    pub label: Option<String>,
    /// A token that admits as a reader.
    pub grant: Option<String>,
}

impl HiveJoinRequest {
    /// Longest hive id and label that is kept, in bytes.
    pub const MAX_NAME: usize = 128;
    /// Longest grant that is kept, in bytes.
    pub const MAX_GRANT: usize = 256;

    /// Reads a payload.
    #[must_use]
    pub fn parse(payload: &RawValue) -> Self {
        let object = Object::new(payload, &["hive_id", "label", "grant"]);
        Self {
            hive_id: object.str("hive_id").map(|id| bounded(id, Self::MAX_NAME)),
            label: object.str("label").map(|label| clip(&label, Self::MAX_NAME)),
            grant: object.str("grant").map(|grant| bounded(grant, Self::MAX_GRANT)),
        }
    }
}

/// `hive_join_result`: the host's answer, at once or later.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct HiveJoinResult {
    /// What came of it.
    pub state: JoinState,
    /// The hive: given with [`JoinState::Member`] and [`JoinState::Pending`].
    pub hive_id: Option<String>,
    /// Its name, clipped.
    pub name: Option<String>,
    /// Why, clipped.
    pub reason: Option<String>,
    /// What the joiner may do.
    pub role: Role,
}

/// What came of a request to join.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum JoinState {
    /// Let in.
    Member,
    /// Queued for the owner.
    Pending,
    /// Turned away.
    Refused,
}

/// What a member may do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Receive knowledge.
    Reader,
    /// Receive and send it.
    Contributor,
}

impl HiveJoinResult {
    /// Reads a payload; `None` with a state that we do not know, or without a hive id where the state needs one.
    ///
    /// An absent role is a contributor's, one that we do not know a reader's.
    #[must_use]
    pub fn parse(payload: &RawValue) -> Option<Self> {
        let object = Object::new(payload, &["state", "hive_id", "name", "reason", "role"]);
        let state = match &*object.str("state")? {
            "member" => JoinState::Member,
            "pending" => JoinState::Pending,
            "refused" => JoinState::Refused,
            _ => return None,
        };
        let hive_id = object.str("hive_id").map(|id| bounded(id, HiveJoinRequest::MAX_NAME));
        if hive_id.is_none() && state != JoinState::Refused {
            return None;
        }
        let role = match object.value("role") {
            None => Role::Contributor,
            Some(_) if object.str("role").as_deref() == Some("contributor") => Role::Contributor,
            Some(_) => Role::Reader,
        };
        Some(Self {
            state,
            hive_id,
            name: object.str("name").map(|name| clip(&name, HiveJoinRequest::MAX_NAME)),
            reason: object.str("reason").map(|reason| clip(&reason, MAX_REASON)),
            role,
        })
    }
}

/// A text that is compared with ours: as it came, or clipped where it is too long to be equal to anything.
fn bounded(text: Cow<'_, str>, max_bytes: usize) -> String {
    if text.len() <= max_bytes { text.into_owned() } else { clip(&text, max_bytes) }
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::*;

    fn raw(text: &str) -> &RawValue {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_request_sends_nulls() {
        let text = r#"{"hive_id":null,"label":null,"grant":null}"#;
        assert_eq!(serde_json::to_string(&HiveJoinRequest::default()).unwrap(), text);
        for empty in [text, "{}", "null", "[]", r#"{"hive_id":7,"label":[],"grant":{}}"#] {
            assert_eq!(HiveJoinRequest::parse(raw(empty)), HiveJoinRequest::default(), "{empty}");
        }
    }

    #[test]
    fn a_hive_id_is_compared_as_it_came() {
        let id =
            |id: &str| HiveJoinRequest::parse(raw(&format!("{{\"hive_id\":\"{id}\"}}"))).hive_id.unwrap();
        assert_eq!(id("hv_\\nabc"), "hv_\nabc");
        assert_eq!(id(&"x".repeat(129)).len(), 128);
        assert_eq!(id(""), "");
    }

    #[test]
    fn a_result_has_a_known_state_and_the_hive_it_is_about() {
        let state = |text: &str| HiveJoinResult::parse(raw(text)).map(|result| result.state);
        assert_eq!(state(r#"{"state":"member","hive_id":"h"}"#), Some(JoinState::Member));
        assert_eq!(state(r#"{"state":"pending","hive_id":"h"}"#), Some(JoinState::Pending));
        assert_eq!(state(r#"{"state":"refused"}"#), Some(JoinState::Refused));
        for bad in [
            r#"{"state":"member"}"#,
            r#"{"state":"pending","hive_id":null}"#,
            r#"{"state":"Member","hive_id":"h"}"#,
            r#"{"state":7}"#,
            "{}",
        ] {
            assert_eq!(state(bad), None, "{bad}");
        }
    }

    #[test]
    fn an_absent_role_contributes_and_an_unknown_one_reads() {
        for (role, read) in [
            ("null", Role::Contributor),
            ("\"contributor\"", Role::Contributor),
            ("\"reader\"", Role::Reader),
            ("\"admin\"", Role::Reader),
            ("7", Role::Reader),
        ] {
            let text = format!("{{\"state\":\"refused\",\"role\":{role}}}");
            assert_eq!(HiveJoinResult::parse(raw(&text)).unwrap().role, read, "{role}");
        }
        assert_eq!(HiveJoinResult::parse(raw(r#"{"state":"refused"}"#)).unwrap().role, Role::Contributor);
    }
}
