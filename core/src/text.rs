//! Bounded, filtered strings that a peer supplied, and ids.
//!
//! Nothing that a peer said is kept, logged or used before it went through here: a name is parsed into a type or
//! refused, prose is clipped.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::string::String;
use core::borrow::Borrow;
use core::fmt;

/// Longest feature name, in bytes.
pub const MAX_FEATURE_NAME: usize = 32;
/// Longest version string that is kept, in bytes; a longer one is clipped.
pub const MAX_VERSION: usize = 64;
/// Longest headroom tag, in bytes.
pub const MAX_TAG: usize = 40;

/// A relay's identity: 1 to [`PeerId::MAX_BYTES`] bytes of `A-Z a-z 0-9 - _`, and not [`PeerId::PENDING`].
///
/// Ordered by bytes, which is the order that decides between two links of one pair. Safe as a file name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(Box<str>);

impl PeerId {
    /// Longest id, in bytes.
    pub const MAX_BYTES: usize = 128;
    /// The name under which an outstanding pairing key is stored, so no peer may bear it.
    pub const PENDING: &'static str = "_pending";

    /// Reads an id; `None` for another length, another character or the reserved name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        (is_id(text, Self::MAX_BYTES) && text != Self::PENDING).then(|| Self(text.into()))
    }
}

/// A delegated task's id: 1 to [`TaskId::MAX_BYTES`] bytes of `A-Z a-z 0-9 - _`. Safe as a file name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(Box<str>);

impl TaskId {
    /// Longest id, in bytes.
    pub const MAX_BYTES: usize = 128;

    /// Reads an id; `None` for another length or character.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        is_id(text, Self::MAX_BYTES).then(|| Self(text.into()))
    }
}

/// A conversation's id: 1 to [`SessionId::MAX_BYTES`] bytes of `A-Z a-z 0-9 - _`. Safe as a file name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(Box<str>);

impl SessionId {
    /// Longest id, in bytes.
    pub const MAX_BYTES: usize = 128;

    /// Reads an id; `None` for another length or character.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        is_id(text, Self::MAX_BYTES).then(|| Self(text.into()))
    }
}

/// What every id has beside its own `parse`.
macro_rules! id_text {
    ($id:ident) => {
        impl $id {
            /// The id as it goes on the wire.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl Borrow<str> for $id {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl AsRef<str> for $id {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $id {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $id {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($id), self.0)
            }
        }

        impl serde::Serialize for $id {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_str(&self.0)
            }
        }
    };
}

id_text!(PeerId);
id_text!(TaskId);
id_text!(SessionId);

/// Whether `text` is a feature name: 1 to [`MAX_FEATURE_NAME`] bytes of `a-z 0-9 -`.
#[must_use]
pub fn is_feature_name(text: &str) -> bool {
    (1..=MAX_FEATURE_NAME).contains(&text.len())
        && text.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-'))
}

/// Whether `text` is a headroom tag: 1 to [`MAX_TAG`] bytes of `A-Z a-z 0-9 - _ .`.
#[must_use]
pub fn is_tag(text: &str) -> bool {
    (1..=MAX_TAG).contains(&text.len()) && text.bytes().all(|b| is_id_byte(b) || b == b'.')
}

/// A version string fit to be shown: [`clip`] to [`MAX_VERSION`] bytes.
#[must_use]
pub fn version(text: &str) -> String {
    clip(text, MAX_VERSION)
}

/// The printable part of `text`, at most `max_bytes` of it, cut at a character's boundary.
///
/// Control characters and those that reorder or break a line are dropped, so that a peer's words can neither forge
/// a log line nor move a terminal's cursor.
#[must_use]
pub fn clip(text: &str, max_bytes: usize) -> String {
    if text.len() <= max_bytes && text.chars().all(is_shown) {
        return text.to_owned();
    }
    let mut kept = String::new();
    for c in text.chars().filter(|&c| is_shown(c)) {
        if kept.len() + c.len_utf8() > max_bytes {
            break;
        }
        kept.push(c);
    }
    kept
}

fn is_id(text: &str, max_bytes: usize) -> bool {
    (1..=max_bytes).contains(&text.len()) && text.bytes().all(is_id_byte)
}

fn is_id_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_'
}

fn is_shown(c: char) -> bool {
    let reorders = matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let breaks_line = matches!(c, '\u{2028}' | '\u{2029}');
    !c.is_control() && !reorders && !breaks_line
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::vec::Vec;

    use quickcheck::quickcheck;

    use super::*;

    #[test]
    fn an_id_is_taken_at_its_bound_and_refused_one_past_it() {
        for parse in [
            |t: &str| PeerId::parse(t).is_some(),
            |t: &str| TaskId::parse(t).is_some(),
            |t: &str| SessionId::parse(t).is_some(),
        ] {
            assert!(parse("a"));
            assert!(parse("Az09-_"));
            assert!(parse(&"x".repeat(128)));
            assert!(!parse(&"x".repeat(129)));
            for refused in ["", " ", "a b", "a.b", "../a", "a/b", "a@b", "é", "a\0", "a\n"] {
                assert!(!parse(refused), "{refused:?}");
            }
        }
    }

    #[test]
    fn the_pending_name_is_no_peer() {
        assert_eq!(PeerId::parse("_pending"), None);
        assert!(PeerId::parse("_pending2").is_some());
        assert!(PeerId::parse("_Pending").is_some());
    }

    #[test]
    fn peers_are_ordered_by_bytes() {
        let mut ids: Vec<_> =
            ["zzz", "aaa", "mmm-1x", "mmm-0", "Mmm-9"].map(|t| PeerId::parse(t).unwrap()).into();
        ids.sort();
        let ids: Vec<_> = ids.iter().map(PeerId::as_str).collect();
        assert_eq!(ids, ["Mmm-9", "aaa", "mmm-0", "mmm-1x", "zzz"]);
    }

    #[test]
    fn a_feature_name_is_lower_case_and_at_most_32_bytes() {
        assert!(is_feature_name("unknown-ok"));
        assert!(is_feature_name(&"a".repeat(32)));
        assert!(!is_feature_name(&"a".repeat(33)));
        for refused in ["", "A", "a_b", "a.b", "a b", "ä"] {
            assert!(!is_feature_name(refused), "{refused:?}");
        }
    }

    #[test]
    fn a_tag_takes_dots_and_at_most_40_bytes() {
        assert!(is_tag("Gpu_1.2-x"));
        assert!(is_tag(&"a".repeat(40)));
        assert!(!is_tag(&"a".repeat(41)));
        for refused in ["", "a b", "a/b", "ä"] {
            assert!(!is_tag(refused), "{refused:?}");
        }
    }

    #[test]
    fn a_version_is_clipped_and_printable() {
        assert_eq!(version("0.92.4"), "0.92.4");
        assert_eq!(version("0.9\n2\x1b[31m"), "0.92[31m");
        assert_eq!(version(&"9".repeat(64)).len(), 64);
        assert_eq!(version(&"9".repeat(65)).len(), 64);
    }

    #[test]
    fn clipping_keeps_whole_characters() {
        assert_eq!(clip("aé", 3), "aé");
        assert_eq!(clip("aé", 2), "a");
        assert_eq!(clip("\u{202e}ab\u{2028}", 9), "ab");
        assert_eq!(clip("abc", 0), "");
    }

    #[test]
    fn debug_names_the_kind_of_id() {
        assert_eq!(format!("{:?}", PeerId::parse("p1").unwrap()), "PeerId(p1)");
    }

    quickcheck! {
        fn clipped_text_is_bounded_and_printable(text: String, max: u8) -> bool {
            let kept = clip(&text, usize::from(max));
            kept.len() <= usize::from(max) && kept.chars().all(is_shown)
        }
    }
}
