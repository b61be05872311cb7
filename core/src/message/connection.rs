//! Setting up a connection: challenge, handshake and ack.

use alloc::string::String;
use core::fmt;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::{FeatureSet, Object, RawValue};
use crate::text;

/// `challenge`: the listener's first frame.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Challenge {
    /// What the dialler has to prove its key over: 64 hex digits from us, any string from a peer. The proof covers
    /// its characters as they are.
    pub nonce: String,
}

impl Challenge {
    /// Longest nonce that is answered, in bytes.
    pub const MAX_NONCE: usize = 1024;

    /// Reads a payload; `None` without a nonce, or with one above [`Self::MAX_NONCE`].
    #[must_use]
    pub fn parse(payload: &RawValue) -> Option<Self> {
        let nonce = Object::new(payload, &["nonce"]).str("nonce")?;
        (nonce.len() <= Self::MAX_NONCE).then(|| Self { nonce: nonce.into_owned() })
    }
}

/// `handshake`: the dialler's answer to a challenge.
///
/// Reading it never fails: what is wrong with a proof is found where it is verified, and then denied.
#[derive(Clone, PartialEq, Eq, Serialize)]
pub struct Handshake {
    /// HMAC-SHA256 over the nonce, 64 lower-case hex digits. Empty, which proves nothing, where it was absent, no
    /// string or longer.
    pub proof: String,
    /// The dialler's version, clipped: logged, never compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The protocol version; `None` for a peer from before there was one, or one that no `u64` holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proto: Option<u64>,
    /// What the dialler advertised. Nothing without `proto`.
    #[serde(skip_serializing_if = "FeatureSet::is_empty_ref")]
    pub features: FeatureSet,
    /// Where the dialler accepts connections, never 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen_port: Option<u16>,
    /// A one-shot delivery, never registered as the link.
    #[serde(skip_serializing_if = "is_false")]
    pub transient: bool,
}

/// Shows all but the proof.
impl fmt::Debug for Handshake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handshake")
            .field("version", &self.version)
            .field("proto", &self.proto)
            .field("features", &self.features)
            .field("listen_port", &self.listen_port)
            .field("transient", &self.transient)
            .finish_non_exhaustive()
    }
}

impl Handshake {
    /// Length of a proof, in bytes.
    pub const PROOF: usize = 64;

    /// Reads a payload. Every key that is not as it should be counts as absent.
    #[must_use]
    pub fn parse(payload: &RawValue) -> Self {
        let keys = &["proof", "version", "proto", "features", "listen_port", "transient"];
        let object = Object::new(payload, keys);
        let proto = object.u64("proto");
        Self {
            // Clipping would turn 64 good digits and a space into a proof.
            proof: object.string("proof").filter(|proof| proof.len() <= Self::PROOF).unwrap_or_default(),
            version: object.str("version").map(|version| text::version(&version)),
            proto,
            features: proto.and_then(|_| FeatureSet::read(object.raw("features")?)).unwrap_or_default(),
            listen_port: object.u16("listen_port").filter(|&port| port != 0),
            transient: object.bool_true("transient"),
        }
    }
}

/// `handshake_ack`: the listener's last frame before the link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HandshakeAck {
    /// Refused, for whatever reason: exactly `{"status":"denied"}`.
    Denied,
    /// Accepted. Without terms, for a dialler that sent no `proto`, exactly `{"status":"ok"}`.
    Accepted(Option<Terms>),
}

/// What two ends agreed on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Terms {
    /// The lower of both protocol versions.
    pub proto: u64,
    /// As sent by the listener: what both advertised. The dialler keeps only what it has too.
    pub features: FeatureSet,
}

impl HandshakeAck {
    /// Reads a payload. Any status but `ok` is a denial; features without a readable `proto` do not count.
    #[must_use]
    pub fn parse(payload: &RawValue) -> Self {
        let object = Object::new(payload, &["status", "proto", "features"]);
        if object.str("status").as_deref() != Some("ok") {
            return Self::Denied;
        }
        Self::Accepted(object.u64("proto").map(|proto| Terms {
            proto,
            features: object.raw("features").and_then(FeatureSet::read).unwrap_or_default(),
        }))
    }
}

impl Serialize for HandshakeAck {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        match self {
            Self::Denied => map.serialize_entry("status", "denied")?,
            Self::Accepted(terms) => {
                map.serialize_entry("status", "ok")?;
                if let Some(terms) = terms {
                    map.serialize_entry("proto", &terms.proto)?;
                    map.serialize_entry("features", &terms.features)?;
                }
            }
        }
        map.end()
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
fn is_false(value: &bool) -> bool {
    !value
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::string::ToString;

    use super::super::Feature;
    use super::*;

    fn raw(text: &str) -> &RawValue {
        serde_json::from_str(text).unwrap()
    }

    fn handshake(text: &str) -> Handshake {
        Handshake::parse(raw(text))
    }

    #[test]
    fn a_challenge_is_any_string_up_to_1_kib() {
        assert_eq!(Challenge::parse(raw(r#"{"nonce":"é\u0000"}"#)).unwrap().nonce, "é\0");
        for (bytes, taken) in [(1024, true), (1025, false)] {
            let payload = format!("{{\"nonce\":\"{}\"}}", "x".repeat(bytes));
            assert_eq!(Challenge::parse(raw(&payload)).is_some(), taken);
        }
        for none in ["{}", r#"{"nonce":1}"#, r#"{"nonce":null}"#, "[]", "null"] {
            assert_eq!(Challenge::parse(raw(none)), None, "{none}");
        }
    }

    #[test]
    fn a_proof_that_is_no_string_of_64_bytes_is_empty_and_never_clipped() {
        let proof = "a".repeat(64);
        assert_eq!(handshake(&format!("{{\"proof\":\"{proof}\"}}")).proof, proof);
        for none in [format!("\"{proof} \""), "1".to_string(), "null".to_string()] {
            assert_eq!(handshake(&format!("{{\"proof\":{none}}}")).proof, "");
        }
        assert_eq!(handshake("{}").proof, "");
    }

    #[test]
    fn proto_is_a_u64_or_absent_and_features_need_it() {
        for (proto, read) in [
            ("0", Some(0)),
            ("1", Some(1)),
            ("18446744073709551615", Some(u64::MAX)),
            ("-1", None),
            ("1.0", None),
            ("\"1\"", None),
            ("null", None),
            ("true", None),
            ("18446744073709551616", None),
        ] {
            let hello = handshake(&format!("{{\"proto\":{proto},\"features\":[\"frame-bin\"]}}"));
            assert_eq!(hello.proto, read, "{proto}");
            assert_eq!(hello.features.contains(Feature::FrameBin), read.is_some(), "{proto}");
        }
    }

    #[test]
    fn features_that_are_no_array_are_none() {
        assert!(handshake(r#"{"proto":1,"features":"frame-bin"}"#).features.is_empty());
        assert!(handshake(r#"{"proto":1}"#).features.is_empty());
    }

    #[test]
    fn listen_port_is_an_integer_of_1_to_65535() {
        for (port, read) in
            [("1", Some(1)), ("65535", Some(65535)), ("0", None), ("65536", None), ("1.0", None)]
        {
            assert_eq!(handshake(&format!("{{\"listen_port\":{port}}}")).listen_port, read, "{port}");
        }
        assert_eq!(handshake(r#"{"listen_port":"9847"}"#).listen_port, None);
    }

    #[test]
    fn only_true_is_transient() {
        assert!(handshake(r#"{"transient":true}"#).transient);
        for other in ["false", "1", "\"true\"", "null"] {
            assert!(!handshake(&format!("{{\"transient\":{other}}}")).transient);
        }
    }

    #[test]
    fn a_version_is_clipped_and_filtered() {
        let hello = handshake(&format!("{{\"version\":\"\\n{}\"}}", "9".repeat(100)));
        assert_eq!(hello.version, Some("9".repeat(64)));
    }

    #[test]
    fn an_ack_without_terms_and_a_denial_are_exactly_the_old_ones() {
        assert_eq!(serde_json::to_string(&HandshakeAck::Accepted(None)).unwrap(), r#"{"status":"ok"}"#);
        assert_eq!(serde_json::to_string(&HandshakeAck::Denied).unwrap(), r#"{"status":"denied"}"#);
        let terms = Terms { proto: 1, features: FeatureSet::EMPTY.with(Feature::UnknownOk) };
        assert_eq!(
            serde_json::to_string(&HandshakeAck::Accepted(Some(terms))).unwrap(),
            r#"{"status":"ok","proto":1,"features":["unknown-ok"]}"#
        );
    }

    #[test]
    fn any_status_but_ok_is_a_denial() {
        for denied in [r#"{"status":"OK"}"#, r#"{"status":"denied"}"#, r#"{"status":1}"#, "{}", "null"] {
            assert_eq!(HandshakeAck::parse(raw(denied)), HandshakeAck::Denied, "{denied}");
        }
        let bare = r#"{"status":"ok","proto":-1,"features":["frame-bin"]}"#;
        assert_eq!(HandshakeAck::parse(raw(bare)), HandshakeAck::Accepted(None));
        let nine = r#"{"status":"ok","proto":9,"features":["frame-bin","new"]}"#;
        let terms = Terms { proto: 9, features: FeatureSet::EMPTY.with(Feature::FrameBin) };
        assert_eq!(HandshakeAck::parse(raw(nine)), HandshakeAck::Accepted(Some(terms)));
    }
}
