//! What a requester asks of the authority.

use alloc::string::String;
use core::fmt;

use serde::Serialize;

use super::super::{Kind, Object, RawValue};
use super::{MAX_TTL_SECS, Mode, clip_reason, is_id, is_kind, is_session, is_value};

/// `lease_claim`: asks for a lease, or repeats a claim.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct LeaseClaim {
    /// Echoed in the answer.
    pub request_id: String,
    /// Chosen by the requester and kept across its retries.
    pub lease_id: String,
    /// The session that is to hold the lease, on the requesting peer.
    pub session: String,
    /// What kind of resource: `path_glob` overlaps, every other kind matches exactly.
    pub kind: String,
    /// The resource.
    pub value: String,
    /// Whether it excludes others.
    pub mode: Mode,
    /// Time to live, in seconds: 1 to [`MAX_TTL_SECS`].
    pub ttl_secs: u64,
    /// For people: printable, at most [`MAX_REASON`](super::MAX_REASON) characters; empty where none was given.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Queue instead of failing where the resource is held.
    #[serde(skip_serializing_if = "core::ops::Not::not")]
    pub wait: bool,
    /// The place in the queue, on every poll after the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiter_id: Option<String>,
}

impl LeaseClaim {
    /// Reads a payload.
    ///
    /// # Errors
    ///
    /// The first field out of its bounds, in the order of [`Field`]. The answer is an `error` outcome.
    pub fn parse(payload: &RawValue) -> Result<Self, LeaseFault> {
        let object = Object::new(
            payload,
            &[
                "request_id",
                "lease_id",
                "session",
                "kind",
                "value",
                "mode",
                "ttl_secs",
                "reason",
                "wait",
                "waiter_id",
            ],
        );
        let asker = Asker::of(&object)?;
        Ok(Self {
            lease_id: asker.field(&object, "lease_id", Field::LeaseId, is_id)?,
            session: asker.field(&object, "session", Field::Session, is_session)?,
            kind: asker.field(&object, "kind", Field::Kind, is_kind)?,
            value: asker.field(&object, "value", Field::Value, is_value)?,
            mode: object.str("mode").and_then(|m| Mode::parse(&m)).ok_or_else(|| asker.fault(Field::Mode))?,
            ttl_secs: object
                .u64("ttl_secs")
                .filter(|ttl| (1..=MAX_TTL_SECS).contains(ttl))
                .ok_or_else(|| asker.fault(Field::Ttl))?,
            reason: object.str("reason").map(|reason| clip_reason(&reason)).unwrap_or_default(),
            wait: object.bool_true("wait"),
            waiter_id: match object.string("waiter_id") {
                Some(id) if !is_id(&id) => return Err(asker.fault(Field::WaiterId)),
                id => id,
            },
            request_id: asker.request_id,
        })
    }
}

/// `lease_release`: gives a lease back.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct LeaseRelease {
    /// Echoed in the answer.
    pub request_id: String,
    /// The lease.
    pub lease_id: String,
    /// The session that holds it, on the requesting peer.
    pub session: String,
}

impl LeaseRelease {
    /// Reads a payload.
    ///
    /// # Errors
    ///
    /// The first field out of its bounds, in the order of [`Field`].
    pub fn parse(payload: &RawValue) -> Result<Self, LeaseFault> {
        let object = Object::new(payload, &["request_id", "lease_id", "session"]);
        let asker = Asker::of(&object)?;
        Ok(Self {
            lease_id: asker.field(&object, "lease_id", Field::LeaseId, is_id)?,
            session: asker.field(&object, "session", Field::Session, is_session)?,
            request_id: asker.request_id,
        })
    }
}

/// `lease_list`: asks for the active fleet leases.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct LeaseList {
    /// Echoed in the answer.
    pub request_id: String,
}

impl LeaseList {
    /// Reads a payload.
    ///
    /// # Errors
    ///
    /// The request id is out of its bounds.
    pub fn parse(payload: &RawValue) -> Result<Self, LeaseFault> {
        Asker::of(&Object::new(payload, &["request_id"])).map(|asker| Self { request_id: asker.request_id })
    }
}

/// One of the three requests.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(untagged)]
pub enum LeaseRequest {
    /// A lease is asked for.
    Claim(LeaseClaim),
    /// A lease is given back.
    Release(LeaseRelease),
    /// All leases are asked for.
    List(LeaseList),
}

impl LeaseRequest {
    /// The type of the message that carries it.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Claim(_) => Kind::LeaseClaim,
            Self::Release(_) => Kind::LeaseRelease,
            Self::List(_) => Kind::LeaseList,
        }
    }

    /// What the answer is given under.
    #[must_use]
    pub fn request_id(&self) -> &str {
        match self {
            Self::Claim(claim) => &claim.request_id,
            Self::Release(release) => &release.request_id,
            Self::List(list) => &list.request_id,
        }
    }
}

/// A field of a lease request, in the order in which they are checked.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Field {
    /// 1 to [`MAX_ID`](super::MAX_ID) bytes of printable ASCII without space and `@`.
    RequestId,
    /// As the request id.
    LeaseId,
    /// 1 to [`MAX_SESSION`](super::MAX_SESSION) bytes without control characters and `@`.
    Session,
    /// 1 to [`MAX_KIND`](super::MAX_KIND) bytes of `a-z 0-9 _ -`.
    Kind,
    /// 1 to [`MAX_VALUE`](super::MAX_VALUE) bytes without control characters.
    Value,
    /// One of [`Mode`].
    Mode,
    /// An integer of 1 to [`MAX_TTL_SECS`].
    Ttl,
    /// As the request id, where it is a string at all.
    WaiterId,
}

/// A lease request out of its bounds: the peer's fault, which is answered with an `error` outcome.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeaseFault {
    /// The request id to answer under; empty where that is what is wrong.
    pub request_id: String,
    /// The first field that is wrong.
    pub field: Field,
}

impl fmt::Display for LeaseFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = "must be 1 to 96 printable ASCII characters without space and @";
        match self.field {
            Field::RequestId => write!(f, "request_id {id}"),
            Field::LeaseId => write!(f, "lease_id {id}"),
            Field::Session => f.write_str("session must be 1 to 128 bytes without control characters and @"),
            Field::Kind => f.write_str("kind must be 1 to 32 of a-z, 0-9, _ and -"),
            Field::Value => f.write_str("value must be 1 to 512 bytes without control characters"),
            Field::Mode => f.write_str("mode must be exclusive or advisory"),
            Field::Ttl => f.write_str("ttl_secs must be an integer of 1 to 604800"),
            Field::WaiterId => write!(f, "waiter_id {id}"),
        }
    }
}

impl core::error::Error for LeaseFault {}

/// Who asks: the request id, which every fault is answered under.
struct Asker {
    request_id: String,
}

impl Asker {
    fn of<const N: usize>(object: &Object<'_, N>) -> Result<Self, LeaseFault> {
        let request_id = object.string("request_id").filter(|id| is_id(id));
        request_id
            .map(|request_id| Self { request_id })
            .ok_or_else(|| LeaseFault { request_id: String::new(), field: Field::RequestId })
    }

    fn field<const N: usize>(
        &self,
        object: &Object<'_, N>,
        key: &str,
        field: Field,
        is_valid: fn(&str) -> bool,
    ) -> Result<String, LeaseFault> {
        object.string(key).filter(|text| is_valid(text)).ok_or_else(|| self.fault(field))
    }

    fn fault(&self, field: Field) -> LeaseFault {
        LeaseFault { request_id: self.request_id.clone(), field }
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::string::ToString;
    use alloc::vec::Vec;

    use super::*;

    const CLAIM: &str = r#"{"request_id":"r1","lease_id":"l1","session":"s1","kind":"path_glob","value":"src/**","mode":"exclusive","ttl_secs":60}"#;

    fn raw(text: &str) -> &RawValue {
        serde_json::from_str(text).unwrap()
    }

    /// A good claim but for one key.
    fn claim(key: &str, value: &str) -> Result<LeaseClaim, LeaseFault> {
        let text = CLAIM.replacen('}', &format!(",\"{key}\":{value}}}"), 1);
        LeaseClaim::parse(raw(&text))
    }

    fn takes(key: &str, value: &str) -> bool {
        claim(key, &format!("\"{value}\"")).is_ok()
    }

    #[test]
    fn a_claim_is_written_as_it_is_read() {
        let read = LeaseClaim::parse(raw(CLAIM)).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), CLAIM);
    }

    #[test]
    fn ids_are_1_to_96_printable_ascii_without_space_and_at() {
        for key in ["request_id", "lease_id", "waiter_id"] {
            assert!(takes(key, "!~") && takes(key, &"x".repeat(96)));
            for bad in ["", "a b", "a@b", "é", "\\u0007", &"x".repeat(97)] {
                assert!(!takes(key, bad), "{key} {bad:?}");
            }
        }
    }

    #[test]
    fn a_session_is_1_to_128_bytes_and_may_have_spaces() {
        assert!(takes("session", "a é") && takes("session", &"x".repeat(128)));
        for bad in ["", "a@b", "a\\n", "\\u0085", &"x".repeat(129), &"é".repeat(65)] {
            assert!(!takes("session", bad), "{bad:?}");
        }
    }

    #[test]
    fn a_kind_is_lower_case_and_a_value_printable() {
        assert!(takes("kind", "a-z_9") && takes("kind", &"x".repeat(32)));
        for bad in ["", "A", "a b", &"x".repeat(33)] {
            assert!(!takes("kind", bad), "{bad:?}");
        }
        assert!(takes("value", "a @é") && takes("value", &"x".repeat(512)));
        for bad in ["", "a\\t", &"x".repeat(513)] {
            assert!(!takes("value", bad), "{bad:?}");
        }
    }

    #[test]
    fn modes_are_exclusive_and_advisory_only() {
        assert_eq!(claim("mode", "\"advisory\"").unwrap().mode, Mode::Advisory);
        for bad in ["shared_read", "shared_append", "Exclusive", ""] {
            assert_eq!(claim("mode", &format!("\"{bad}\"")).unwrap_err().field, Field::Mode);
        }
    }

    #[test]
    fn a_ttl_is_an_integer_of_1_second_to_7_days() {
        for (ttl, taken) in [
            ("1", true),
            ("604800", true),
            ("0", false),
            ("604801", false),
            ("1.0", false),
            ("\"60\"", false),
        ] {
            assert_eq!(claim("ttl_secs", ttl).is_ok(), taken, "{ttl}");
        }
    }

    #[test]
    fn a_reason_is_filtered_and_never_a_fault() {
        assert_eq!(claim("reason", "\"a\\nb\"").unwrap().reason, "ab");
        assert_eq!(claim("reason", "7").unwrap().reason, "");
        for (chars, kept) in [(256, 256), (257, 256)] {
            let reason = claim("reason", &format!("\"{}\"", "é".repeat(chars))).unwrap().reason;
            assert_eq!(reason.chars().count(), kept);
        }
    }

    #[test]
    fn only_true_waits_and_a_waiter_id_of_another_type_is_absent() {
        assert!(claim("wait", "true").unwrap().wait);
        assert!(!claim("wait", "1").unwrap().wait);
        for other in ["7", "null", "[]"] {
            assert_eq!(claim("waiter_id", other).unwrap().waiter_id, None);
        }
    }

    #[test]
    fn the_first_field_that_fails_is_named_in_the_stated_order() {
        let keys = ["request_id", "lease_id", "session", "kind", "value", "mode", "ttl_secs", "waiter_id"];
        let fields = [
            Field::RequestId,
            Field::LeaseId,
            Field::Session,
            Field::Kind,
            Field::Value,
            Field::Mode,
            Field::Ttl,
            Field::WaiterId,
        ];
        for (at, field) in fields.into_iter().enumerate() {
            let bad: Vec<_> = keys[at..].iter().map(|key| format!("\"{key}\":\"\"")).collect();
            let text = CLAIM.replacen('}', &format!(",{}}}", bad.join(",")), 1);
            let fault = LeaseClaim::parse(raw(&text)).unwrap_err();
            assert_eq!(fault.field, field);
            assert_eq!(fault.request_id, if at == 0 { "" } else { "r1" });
            assert!(fault.to_string().starts_with(keys[at]), "{fault}");
        }
    }

    #[test]
    fn a_payload_without_keys_lacks_its_request_id() {
        for none in ["null", "[]", "{}"] {
            assert_eq!(LeaseClaim::parse(raw(none)).unwrap_err().field, Field::RequestId);
            assert_eq!(LeaseRelease::parse(raw(none)).unwrap_err().field, Field::RequestId);
            assert_eq!(LeaseList::parse(raw(none)).unwrap_err().field, Field::RequestId);
        }
        assert_eq!(LeaseRelease::parse(raw(r#"{"request_id":"r"}"#)).unwrap_err().field, Field::LeaseId);
    }
}
