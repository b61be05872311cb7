//! Moving a conversation to another machine.

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Serialize, Serializer};

use super::{Object, RawValue};
use crate::secret::{decode_hex, encode_hex};
use crate::text::SessionId;

/// Bytes of a transcript in every chunk but the last: 512 KiB.
pub const CHUNK: usize = 512 * 1024;
/// Longest directory and path that is taken, in bytes.
pub const MAX_PATH: usize = 4096;

/// `session_transfer`: one chunk of a transcript.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct SessionTransfer<'a> {
    /// The conversation.
    pub session_id: SessionId,
    /// The sender's directory, into which it goes: at most [`MAX_PATH`] bytes, no control characters.
    pub cwd: String,
    /// Which chunk, counted from 0.
    pub seq: u32,
    /// How many there are.
    pub total: u32,
    /// Of the whole transcript.
    pub digest: Digest,
    /// Standard padded base64 of the chunk, as it came: see [`SessionTransfer::decode`].
    pub data: Cow<'a, str>,
}

impl<'a> SessionTransfer<'a> {
    /// Reads a payload.
    ///
    /// # Errors
    ///
    /// The first key that is missing or out of its bounds; the chunk is dropped.
    pub fn parse(payload: &'a RawValue) -> Result<Self, TransferFault> {
        let object = Object::new(payload, &["session_id", "cwd", "seq", "total", "digest", "data"]);
        let session_id = object.str("session_id").and_then(|id| SessionId::parse(&id));
        let total = object.u32("total");
        let seq = object.u32("seq").filter(|&seq| total.is_none_or(|total| seq < total));
        Ok(Self {
            session_id: session_id.ok_or(TransferFault("session_id"))?,
            cwd: object.string("cwd").filter(|cwd| is_path(cwd)).ok_or(TransferFault("cwd"))?,
            seq: seq.ok_or(TransferFault("seq"))?,
            total: total.ok_or(TransferFault("total"))?,
            digest: object.str("digest").and_then(|d| Digest::parse(&d)).ok_or(TransferFault("digest"))?,
            data: object.str("data").ok_or(TransferFault("data"))?,
        })
    }

    /// The chunk's bytes.
    ///
    /// # Errors
    ///
    /// The text is no standard padded base64.
    pub fn decode(&self) -> Result<Vec<u8>, TransferFault> {
        STANDARD.decode(&*self.data).map_err(|_| TransferFault("data"))
    }

    /// The text of a chunk's bytes.
    #[must_use]
    pub fn encode(chunk: &[u8]) -> String {
        STANDARD.encode(chunk)
    }
}

/// `session_received`: the whole transcript arrived and was placed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct SessionReceived {
    /// The conversation.
    pub session_id: SessionId,
    /// Where it was placed.
    pub path: String,
    /// The directory it was placed for. Not read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// The command that resumes it, for people: never run by a program.
    pub resume: String,
}

impl SessionReceived {
    /// Reads a payload.
    ///
    /// # Errors
    ///
    /// The first key that is missing or out of its bounds.
    pub fn parse(payload: &RawValue) -> Result<Self, TransferFault> {
        let object = Object::new(payload, &["session_id", "path", "cwd", "resume"]);
        let path = |key| object.string(key).filter(|path| is_path(path));
        let session_id = object.str("session_id").and_then(|id| SessionId::parse(&id));
        Ok(Self {
            session_id: session_id.ok_or(TransferFault("session_id"))?,
            path: path("path").ok_or(TransferFault("path"))?,
            cwd: path("cwd"),
            resume: object
                .string("resume")
                .filter(|command| command.len() <= 4 * MAX_PATH && !command.chars().any(char::is_control))
                .ok_or(TransferFault("resume"))?,
        })
    }
}

/// A SHA-256 digest: 64 hex digits, of either case where they come in, lower case where they go out.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// Takes a digest's bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The digest of `bytes`.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(<sha2::Sha256 as sha2::Digest>::digest(bytes).into())
    }

    /// Reads 64 hex digits; `None` for anything else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        decode_hex(text, &mut bytes).then_some(Self(bytes))
    }

    /// The digest's bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&encode_hex(&self.0))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

/// A transfer's message with a key that is missing or out of its bounds: the peer's fault. It holds the key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TransferFault(pub &'static str);

impl fmt::Display for TransferFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "peer sent a transfer whose `{}` is missing or out of bounds", self.0)
    }
}

impl core::error::Error for TransferFault {}

fn is_path(path: &str) -> bool {
    (1..=MAX_PATH).contains(&path.len()) && !path.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::string::ToString;

    use super::*;

    fn raw(text: &str) -> &RawValue {
        serde_json::from_str(text).unwrap()
    }

    fn chunk() -> String {
        let digest = Digest::of(b"abc");
        format!(
            r#"{{"session_id":"s1","cwd":"/a","seq":0,"total":1,"digest":"{digest}","data":"{}"}}"#,
            SessionTransfer::encode(b"abc")
        )
    }

    /// The fault of a good chunk with one key of another value.
    fn fault(key: &str, value: &str) -> Option<&'static str> {
        let text = chunk().replacen('}', &format!(",\"{key}\":{value}}}"), 1);
        SessionTransfer::parse(raw(&text)).err().map(|fault| fault.0)
    }

    #[test]
    fn a_chunk_is_written_as_it_is_read() {
        let text = chunk();
        let read = SessionTransfer::parse(raw(&text)).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), text);
        assert_eq!(read.decode().unwrap(), b"abc");
        assert!(matches!(read.data, Cow::Borrowed(_)));
    }

    #[test]
    fn a_chunk_that_lacks_a_key_is_dropped() {
        for key in ["session_id", "cwd", "seq", "total", "digest", "data"] {
            assert_eq!(fault(key, "null"), Some(key));
            assert_eq!(fault(key, "[]"), Some(key));
        }
    }

    #[test]
    fn a_session_id_is_safe_as_a_file_name() {
        assert_eq!(fault("session_id", "\"../x\""), Some("session_id"));
        assert_eq!(fault("session_id", &format!("\"{}\"", "x".repeat(129))), Some("session_id"));
        assert_eq!(fault("session_id", &format!("\"{}\"", "x".repeat(128))), None);
    }

    #[test]
    fn a_directory_is_bounded_and_has_no_control_characters() {
        assert_eq!(fault("cwd", "\".\""), None);
        assert_eq!(fault("cwd", &format!("\"{}\"", "x".repeat(4096))), None);
        for bad in ["\"\"", r#""a\nb""#, r#""a\u0000""#, &format!("\"{}\"", "x".repeat(4097))] {
            assert_eq!(fault("cwd", bad), Some("cwd"));
        }
    }

    #[test]
    fn seq_is_below_total_and_both_are_u32() {
        for (seq, bad) in [("0", false), ("1", true), ("-1", true), ("0.0", true)] {
            assert_eq!(fault("seq", seq).is_some(), bad, "{seq}");
        }
        assert_eq!(fault("total", "4294967295"), None);
        assert_eq!(fault("total", "4294967296"), Some("total"));
        assert_eq!(fault("total", "0"), Some("seq"));
    }

    #[test]
    fn a_digest_is_64_hex_digits_of_either_case() {
        let upper = Digest::of(b"abc").to_string().to_uppercase();
        assert_eq!(fault("digest", &format!("\"{upper}\"")), None);
        assert_eq!(fault("digest", &format!("\"{}\"", &upper[1..])), Some("digest"));
        assert_eq!(fault("digest", &format!("\"{upper}0\"")), Some("digest"));
        assert_eq!(Digest::parse(&"g".repeat(64)), None);
    }

    #[test]
    fn data_is_standard_padded_base64_checked_when_it_is_decoded() {
        for bad in ["YWI", "YW-_", "YWJj\\n", "é"] {
            let text = chunk().replacen('}', &format!(",\"data\":\"{bad}\"}}"), 1);
            assert_eq!(SessionTransfer::parse(raw(&text)).unwrap().decode(), Err(TransferFault("data")));
        }
    }

    #[test]
    fn a_receipt_needs_all_but_its_directory() {
        let good = r#"{"session_id":"s1","path":"/p","resume":"cd /a"}"#;
        let read = SessionReceived::parse(raw(good)).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), good);
        for key in ["session_id", "path", "resume"] {
            let text = good.replacen('}', &format!(",\"{key}\":7}}"), 1);
            assert_eq!(SessionReceived::parse(raw(&text)), Err(TransferFault(key)));
        }
    }
}
