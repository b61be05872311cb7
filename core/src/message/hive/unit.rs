//! One unit of knowledge.

use alloc::string::String;
use alloc::vec::Vec;

use serde::Serialize;

use super::super::{Object, RawValue};
use super::Content;
use crate::text::{PeerId, clip};

/// A unit of knowledge.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct KnowledgeUnit {
    /// Its id: 1 to [`Self::MAX_ID`] bytes without control characters.
    pub id: String,
    /// Where it applies.
    pub scope: Scope,
    /// What sort it is; a best practice where none was given.
    pub category: Category,
    /// What it says.
    pub content: Content,
    /// How often it was seen.
    pub evidence_count: u32,
    /// How many hops it made.
    pub propagation_count: u32,
    /// Rises with every change.
    pub version: u32,
    /// How sure its source is, within 0 and 1 whatever was sent. Data: nothing decides on it but the merge rule.
    pub confidence: f64,
    /// Who says so, clipped. Free text, and no evidence of it.
    pub source_peer: String,
    /// Epoch seconds.
    pub originated_at: u64,
    /// Epoch seconds.
    pub last_validated_at: u64,
    /// How long it stays valid, in seconds; 0, also where it was absent, leaves that to its content's type.
    pub revalidation_interval_secs: u64,
    /// How far it is in use at its sender; live where none was given.
    pub injection_state: InjectionState,
    /// What came of its use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub injection_stats: Option<InjectionStats>,
    /// To whom it may be sent on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sharing_consent: Option<Consent>,
    /// The agents that it came from.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub origin_agents: Vec<String>,
}

impl KnowledgeUnit {
    /// Longest id, in bytes.
    pub const MAX_ID: usize = 128;

    /// Reads a unit; `None` where it has to be dropped: a required key is missing, a key is of another type, or a
    /// word is unknown.
    #[must_use]
    pub fn parse(unit: &RawValue) -> Option<Self> {
        let object = Object::new(
            unit,
            &[
                "id",
                "scope",
                "category",
                "content",
                "evidence_count",
                "propagation_count",
                "version",
                "confidence",
                "source_peer",
                "originated_at",
                "last_validated_at",
                "revalidation_interval_secs",
                "injection_state",
                "injection_stats",
                "sharing_consent",
                "origin_agents",
            ],
        );
        Some(Self {
            id: object.string("id").filter(|id| is_unit_id(id))?,
            scope: Scope::parse(object.raw("scope")?)?,
            category: word(&object, "category", Category::BestPractice, Category::parse)?,
            content: Content::parse(object.raw("content")?)?,
            evidence_count: object.u32("evidence_count")?,
            propagation_count: object.u32("propagation_count")?,
            version: object.u32("version")?,
            confidence: object.f64("confidence")?.clamp(0.0, 1.0),
            source_peer: clip(&object.str("source_peer")?, PeerId::MAX_BYTES),
            originated_at: object.u64("originated_at")?,
            last_validated_at: object.u64("last_validated_at")?,
            revalidation_interval_secs: object.defaulted("revalidation_interval_secs")?,
            injection_state: word(&object, "injection_state", InjectionState::Live, InjectionState::parse)?,
            injection_stats: nested(&object, "injection_stats", InjectionStats::parse)?,
            sharing_consent: nested(&object, "sharing_consent", Consent::parse)?,
            origin_agents: object.defaulted("origin_agents")?,
        })
    }
}

/// Where a unit applies.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(tag = "type", content = "value", rename_all = "lowercase")]
pub enum Scope {
    /// Everywhere.
    Universal,
    /// In a programming language.
    Language(String),
    /// In a project.
    Project(String),
}

impl Scope {
    fn parse(scope: &RawValue) -> Option<Self> {
        let object = Object::new(scope, &["type", "value"]);
        match &*object.str("type")? {
            "universal" => Some(Self::Universal),
            "language" => object.string("value").map(Self::Language),
            "project" => object.string("value").map(Self::Project),
            _ => None,
        }
    }
}

/// What sort of knowledge a unit is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Category {
    /// How things are well done.
    BestPractice,
    /// A way of doing one.
    Technique,
    /// An order of steps.
    WorkflowPattern,
    /// The owner's own, never sent on.
    Personal,
}

impl Category {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "best_practice" => Some(Self::BestPractice),
            "technique" => Some(Self::Technique),
            "workflow_pattern" => Some(Self::WorkflowPattern),
            "personal" => Some(Self::Personal),
            _ => None,
        }
    }
}

/// How far a unit is in use.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum InjectionState {
    /// Not at all.
    Draft,
    /// On trial.
    Canary,
    /// Ready.
    Staged,
    /// In full.
    Live,
}

impl InjectionState {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "draft" => Some(Self::Draft),
            "canary" => Some(Self::Canary),
            "staged" => Some(Self::Staged),
            "live" => Some(Self::Live),
            _ => None,
        }
    }
}

/// What came of a unit's use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct InjectionStats {
    /// How often it was used.
    pub injected_count: u64,
    /// How often that was heeded.
    pub accepted_count: u64,
    /// How often it was overruled.
    pub overridden_count: u64,
    /// Epoch seconds.
    pub last_injected_at: u64,
    /// Epoch seconds.
    pub last_outcome_at: u64,
}

impl InjectionStats {
    fn parse(stats: &RawValue) -> Option<Self> {
        let keys =
            &["injected_count", "accepted_count", "overridden_count", "last_injected_at", "last_outcome_at"];
        let object = Object::new(stats, keys);
        let count = |key| object.optional::<u64>(key).map(Option::unwrap_or_default);
        Some(Self {
            injected_count: count("injected_count")?,
            accepted_count: count("accepted_count")?,
            overridden_count: count("overridden_count")?,
            last_injected_at: count("last_injected_at")?,
            last_outcome_at: count("last_outcome_at")?,
        })
    }
}

/// To whom a unit may be sent on.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Consent {
    /// Until when, in epoch seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<u64>,
    /// Only to these peers, where there are any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allow_peers: Vec<String>,
    /// Not to these.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exclude_peers: Vec<String>,
    /// Only to peers trusted so far.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_trust_tier: Option<TrustTier>,
}

/// How far a peer is trusted, least first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TrustTier {
    /// Not at all: every peer is.
    Any,
    /// Little.
    Unverified,
    /// Middling.
    Suggested,
    /// Well.
    Confirmed,
}

impl TrustTier {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "any" => Some(Self::Any),
            "unverified" => Some(Self::Unverified),
            "suggested" => Some(Self::Suggested),
            "confirmed" => Some(Self::Confirmed),
            _ => None,
        }
    }
}

impl Consent {
    fn parse(consent: &RawValue) -> Option<Self> {
        let object = Object::new(consent, &["expires_at", "allow_peers", "exclude_peers", "min_trust_tier"]);
        Some(Self {
            expires_at: object.optional("expires_at")?,
            allow_peers: object.optional("allow_peers")?.unwrap_or_default(),
            exclude_peers: object.optional("exclude_peers")?.unwrap_or_default(),
            min_trust_tier: match object.value("min_trust_tier") {
                Some(_) => Some(TrustTier::parse(&object.str("min_trust_tier")?)?),
                None => None,
            },
        })
    }
}

/// An object that may be absent or null, and voids the unit where it does not read.
pub(super) fn nested<T, const N: usize>(
    object: &Object<'_, N>,
    key: &str,
    parse: impl Fn(&RawValue) -> Option<T>,
) -> Option<Option<T>> {
    match object.value(key) {
        Some(raw) if raw.get().starts_with('{') => parse(raw).map(Some),
        Some(_) => None,
        None => Some(None),
    }
}

/// One of a set of words, with a default where it is absent.
fn word<T, const N: usize>(
    object: &Object<'_, N>,
    key: &str,
    default: T,
    parse: fn(&str) -> Option<T>,
) -> Option<T> {
    if object.raw(key).is_none() { Some(default) } else { parse(&object.str(key)?) }
}

fn is_unit_id(id: &str) -> bool {
    (1..=KnowledgeUnit::MAX_ID).contains(&id.len()) && !id.chars().any(char::is_control)
}

#[cfg(test)]
pub(super) mod tests {
    use alloc::format;

    use super::*;

    pub(in super::super) const UNIT: &str = r#"{"id":"ku_1_1","scope":{"type":"universal"},"content":{"type":"insight","category":"c","severity":"s","summary":"t"},"evidence_count":1,"propagation_count":0,"version":1,"confidence":0.5,"source_peer":"p","originated_at":1,"last_validated_at":2}"#;

    fn raw(text: &str) -> &RawValue {
        serde_json::from_str(text).unwrap()
    }

    /// A good unit but for one key.
    fn with(key: &str, value: &str) -> Option<KnowledgeUnit> {
        let text = format!("{},\"{key}\":{value}}}", &UNIT[..UNIT.len() - 1]);
        KnowledgeUnit::parse(raw(&text))
    }

    #[test]
    fn absent_keys_take_their_defaults() {
        let unit = KnowledgeUnit::parse(raw(UNIT)).unwrap();
        assert_eq!((unit.category, unit.injection_state), (Category::BestPractice, InjectionState::Live));
        assert_eq!((unit.revalidation_interval_secs, unit.injection_stats), (0, None));
        assert!(unit.sharing_consent.is_none() && unit.origin_agents.is_empty());
    }

    #[test]
    fn each_required_key_is_needed() {
        for key in [
            "id",
            "scope",
            "content",
            "evidence_count",
            "propagation_count",
            "version",
            "confidence",
            "source_peer",
            "originated_at",
            "last_validated_at",
        ] {
            let text = UNIT.replacen(&format!("\"{key}\":"), "\"other\":", 1);
            assert_eq!(KnowledgeUnit::parse(raw(&text)), None, "{key}");
            assert_eq!(with(key, "null"), None, "{key}");
        }
    }

    #[test]
    fn a_mistyped_or_unknown_value_voids_the_unit() {
        for (key, value) in [
            ("id", "\"\""),
            ("id", r#""a\nb""#),
            ("id", &format!("\"{}\"", "x".repeat(129))),
            ("scope", r#"{"type":"galaxy"}"#),
            ("scope", r#"{"type":"language"}"#),
            ("category", "\"new\""),
            ("category", "null"),
            ("evidence_count", "4294967296"),
            ("version", "1.0"),
            ("confidence", "\"1\""),
            ("revalidation_interval_secs", "null"),
            ("injection_state", "\"on\""),
            ("injection_stats", r#"{"injected_count":"1"}"#),
            ("injection_stats", "[]"),
            ("sharing_consent", r#"{"min_trust_tier":"full"}"#),
            ("sharing_consent", r#"{"allow_peers":[1]}"#),
            ("origin_agents", "[1]"),
        ] {
            assert_eq!(with(key, value), None, "{key}: {value}");
        }
    }

    #[test]
    fn confidence_is_clamped() {
        for (sent, kept) in [("99", 1.0), ("-3", 0.0), ("0.25", 0.25), ("1e308", 1.0)] {
            assert_eq!(with("confidence", sent).unwrap().confidence.to_bits(), f64::to_bits(kept));
        }
    }

    #[test]
    fn the_source_is_free_text_and_clipped() {
        assert_eq!(with("source_peer", r#""a b\n""#).unwrap().source_peer, "a b");
        let long = format!("\"{}\"", "x".repeat(200));
        assert_eq!(with("source_peer", &long).unwrap().source_peer.len(), 128);
    }

    #[test]
    fn scopes_and_consent_are_written_as_they_are_read() {
        for scope in [r#"{"type":"universal"}"#, r#"{"type":"language","value":"rust"}"#] {
            let unit = with("scope", scope).unwrap();
            assert_eq!(serde_json::to_string(&unit.scope).unwrap(), scope);
        }
        let consent = r#"{"expires_at":1,"allow_peers":["a"],"min_trust_tier":"suggested"}"#;
        let unit = with("sharing_consent", consent).unwrap();
        assert_eq!(serde_json::to_string(&unit.sharing_consent).unwrap(), consent);
        assert!(TrustTier::Any < TrustTier::Confirmed);
    }
}
