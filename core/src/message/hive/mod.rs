//! The hive: joining it, and passing units of knowledge round.

mod content;
mod join;
mod unit;

use alloc::string::String;
use alloc::vec::Vec;

use serde::Serialize;

pub use content::{Content, Requires, Variant};
pub use join::{HiveJoinRequest, HiveJoinResult, JoinState, Role};
pub use unit::{Category, Consent, InjectionState, InjectionStats, KnowledgeUnit, Scope, TrustTier};

use super::object::each;
use super::{Object, RawValue};
use crate::text::clip;

/// Longest text for people that is kept of these messages, in bytes.
pub const MAX_REASON: usize = 512;

/// `knowledge_sync`: units, pushed. Reading it never fails.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct KnowledgeSync {
    /// The units that read; a bad one is dropped alone.
    pub units: Vec<KnowledgeUnit>,
    /// Not acted on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sync_epoch: Option<u64>,
}

impl KnowledgeSync {
    /// Reads a payload.
    #[must_use]
    pub fn parse(payload: &RawValue) -> Self {
        let object = Object::new(payload, &["units", "sync_epoch"]);
        Self { units: units(object.raw("units")), sync_epoch: object.u64("sync_epoch") }
    }
}

/// `knowledge_request`: asks for a snapshot. Reading it never fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct KnowledgeRequest {
    /// From when on; 0, also where it was absent, asks for all.
    pub since_epoch: u64,
}

impl KnowledgeRequest {
    /// Reads a payload.
    #[must_use]
    pub fn parse(payload: &RawValue) -> Self {
        let since_epoch = Object::new(payload, &["since_epoch"]).u64("since_epoch");
        Self { since_epoch: since_epoch.unwrap_or_default() }
    }
}

/// `knowledge_snapshot`: answers a `knowledge_request`, a page a message. Reading it never fails.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct KnowledgeSnapshot {
    /// The units that read; a bad one is dropped alone.
    pub units: Vec<KnowledgeUnit>,
    /// Which page, counted from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page: Option<u64>,
    /// How many there are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_pages: Option<u64>,
}

impl KnowledgeSnapshot {
    /// Reads a payload.
    #[must_use]
    pub fn parse(payload: &RawValue) -> Self {
        let object = Object::new(payload, &["units", "page", "total_pages"]);
        Self {
            units: units(object.raw("units")),
            page: object.u64("page"),
            total_pages: object.u64("total_pages"),
        }
    }
}

/// `knowledge_rejected`: the sender's knowledge was refused. Reading it never fails.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct KnowledgeRejected {
    /// Why, clipped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// How many units were dropped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub units: Option<u64>,
}

impl KnowledgeRejected {
    /// Reads a payload.
    #[must_use]
    pub fn parse(payload: &RawValue) -> Self {
        let object = Object::new(payload, &["reason", "units"]);
        Self {
            reason: object.str("reason").map(|reason| clip(&reason, MAX_REASON)),
            units: object.u64("units"),
        }
    }
}

/// The units of a list that read; none where it is no list.
fn units(list: Option<&RawValue>) -> Vec<KnowledgeUnit> {
    let mut units = Vec::new();
    if let Some(list) = list {
        // What is no array has no units.
        let _ = each(list, |unit| units.extend(KnowledgeUnit::parse(unit)));
    }
    units
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::unit::tests::UNIT;
    use super::*;

    fn raw(text: &str) -> &RawValue {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_bad_unit_is_dropped_alone() {
        let new = UNIT.replace("\"insight\"", "\"brand_new\"");
        let text = format!("{{\"units\":[{UNIT},7,{{}},{new},{UNIT}]}}");
        assert_eq!(KnowledgeSync::parse(raw(&text)).units.len(), 2);
        assert_eq!(KnowledgeSnapshot::parse(raw(&text)).units.len(), 2);
    }

    #[test]
    fn units_that_are_no_list_are_none() {
        for none in ["{}", "null", r#"{"units":null}"#, r#"{"units":{}}"#, r#"{"units":"x"}"#] {
            assert_eq!(KnowledgeSync::parse(raw(none)), KnowledgeSync::default());
            assert_eq!(KnowledgeSnapshot::parse(raw(none)), KnowledgeSnapshot::default());
        }
    }

    #[test]
    fn a_request_without_an_epoch_asks_for_all() {
        for all in ["{}", "null", r#"{"since_epoch":0}"#, r#"{"since_epoch":"7"}"#, r#"{"since_epoch":-1}"#] {
            assert_eq!(KnowledgeRequest::parse(raw(all)).since_epoch, 0);
        }
        assert_eq!(KnowledgeRequest::parse(raw(r#"{"since_epoch":7}"#)).since_epoch, 7);
    }

    #[test]
    fn a_rejection_says_what_it_says() {
        let text = r#"{"reason":"no\nmember","units":3}"#;
        let read = KnowledgeRejected::parse(raw(text));
        assert_eq!((read.reason.as_deref(), read.units), (Some("nomember"), Some(3)));
        assert_eq!(KnowledgeRejected::parse(raw("[]")), KnowledgeRejected::default());
    }
}
