//! Fleet leases: three requests, the one answer, and the bounds of what they name.

mod request;
mod result;

use alloc::string::String;

use serde::{Deserialize, Serialize};

pub use request::{Field, LeaseClaim, LeaseFault, LeaseList, LeaseRelease, LeaseRequest};
pub use result::{Blocker, Lease, LeaseResult, Outcome};

use crate::text::clip;

/// Longest `request_id`, `lease_id` and `waiter_id`, in bytes.
pub const MAX_ID: usize = 96;
/// Longest `session`, in bytes.
pub const MAX_SESSION: usize = 128;
/// Longest resource kind, in bytes.
pub const MAX_KIND: usize = 32;
/// Longest resource value, in bytes.
pub const MAX_VALUE: usize = 512;
/// Longest `reason` that is kept, in characters.
pub const MAX_REASON: usize = 256;
/// Longest time to live: 7 days, in seconds.
pub const MAX_TTL_SECS: u64 = 7 * 24 * 60 * 60;
/// Longest free text of an answer that is kept, in bytes.
pub const MAX_MESSAGE: usize = 512;

/// Whether a lease excludes others.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// No other owner's exclusive lease may overlap.
    Exclusive,
    /// Known to others, in nobody's way.
    Advisory,
}

impl Mode {
    /// Reads a mode; `None` for any other text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "exclusive" => Some(Self::Exclusive),
            "advisory" => Some(Self::Advisory),
            _ => None,
        }
    }

    /// The mode on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Exclusive => "exclusive",
            Self::Advisory => "advisory",
        }
    }
}

/// Whether `text` is fit as a request, lease or waiter id.
#[must_use]
pub fn is_id(text: &str) -> bool {
    (1..=MAX_ID).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic() && b != b'@')
}

/// Whether `text` is fit as a session that holds leases.
#[must_use]
pub fn is_session(text: &str) -> bool {
    (1..=MAX_SESSION).contains(&text.len()) && !text.chars().any(|c| c.is_control() || c == '@')
}

/// Whether `text` is fit as the kind of a resource.
#[must_use]
pub fn is_kind(text: &str) -> bool {
    (1..=MAX_KIND).contains(&text.len())
        && text.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-'))
}

/// Whether `text` is fit to name a resource.
#[must_use]
pub fn is_value(text: &str) -> bool {
    (1..=MAX_VALUE).contains(&text.len()) && !text.chars().any(char::is_control)
}

/// The first [`MAX_REASON`] characters of the printable part of `text`.
pub(crate) fn clip_reason(text: &str) -> String {
    clip(text, MAX_REASON * 4).chars().take(MAX_REASON).collect()
}
