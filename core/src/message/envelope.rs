//! The envelope that every frame holds.

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use serde::de::{Deserializer, EnumAccess, VariantAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::error::Category;

use super::object::Text;
use super::scan::{Parts, Scan, column};
use super::{Kind, MsgType, RawValue, raw};

/// A `RelayMessage`, borrowed from its frame.
#[derive(Clone, Debug)]
pub struct Envelope<'a> {
    /// The sender's id for the message: any string, of any length.
    pub id: Cow<'a, str>,
    /// What the payload is.
    pub msg_type: MsgType<'a>,
    /// The identity that the sender gives itself: any string. Never evidence of who sent it.
    pub from_peer: Cow<'a, str>,
    /// Epoch milliseconds at sending, by the sender's clock.
    pub timestamp: u64,
    /// The payload: any JSON value, checked in full.
    pub payload: &'a RawValue,
}

impl<'a> Envelope<'a> {
    /// Reads a frame's text.
    ///
    /// All five keys are required, each once; others are ignored, however often they come. An array of the five
    /// values in the order of the fields does as well. Unicode white space round the whole is trimmed. Numbers
    /// that no `f64` can hold, escapes of lone surrogates and nesting deeper than 127 are refused wherever they
    /// stand.
    ///
    /// # Errors
    ///
    /// The peer sent something else, after which its connection closes.
    pub fn parse(frame: &'a [u8]) -> Result<Self, MessageFault> {
        let text = core::str::from_utf8(frame).map_err(|e| MessageFault::NotUtf8 { at: e.valid_up_to() })?;
        let text = text.trim();
        let mut scan = Scan::default();
        scan.advance(text, usize::MAX)?;
        Self::of_parts(text, scan.parts())
    }

    /// What the walk over a text found.
    fn of_parts(text: &'a str, parts: &Parts) -> Result<Self, MessageFault> {
        let part = |key: Key| {
            let range = parts.values[key as usize].clone().ok_or(MessageFault::Missing(key))?;
            Ok(Part { whole: text, start: range.start, text: &text[range] })
        };
        let [id, msg_type, from_peer, timestamp, payload] = Key::ALL.map(part);
        Ok(Self {
            id: id?.read::<Text<'a>>()?.0,
            msg_type: msg_type?.read()?,
            from_peer: from_peer?.read::<Text<'a>>()?.0,
            timestamp: timestamp?.read()?,
            payload: payload?.raw()?,
        })
    }
}

/// One of the envelope's values, where it stands.
struct Part<'a> {
    whole: &'a str,
    start: usize,
    text: &'a str,
}

impl<'a> Part<'a> {
    fn read<T: Deserialize<'a>>(&self) -> Result<T, MessageFault> {
        serde_json::from_str(self.text).map_err(|error| {
            let at = column(self.whole.as_bytes(), self.start);
            match error.classify() {
                Category::Data => MessageFault::NotMessage { at },
                Category::Io | Category::Syntax | Category::Eof => MessageFault::NotJson { at },
            }
        })
    }

    fn raw(&self) -> Result<&'a RawValue, MessageFault> {
        let at = || column(self.whole.as_bytes(), self.start);
        raw::raw(self.text).ok_or_else(|| MessageFault::NotJson { at: at() })
    }
}

/// A frame's text whose check is done in pieces, so that a large one holds nobody up.
#[derive(Clone, Debug)]
pub struct Reading {
    text: String,
    scan: Scan,
}

impl Reading {
    /// Begins with a frame's text.
    ///
    /// # Errors
    ///
    /// It is not UTF-8.
    pub fn new(frame: Vec<u8>) -> Result<Self, MessageFault> {
        let text = String::from_utf8(frame)
            .map_err(|error| MessageFault::NotUtf8 { at: error.utf8_error().valid_up_to() })?;
        Ok(Self { text, scan: Scan::default() })
    }

    /// The text's length, in bytes.
    #[must_use]
    pub const fn size(&self) -> usize {
        self.text.len()
    }

    /// Checks about `work` bytes more. `Some` with how many it was once all are checked, `None` before that.
    ///
    /// # Errors
    ///
    /// As of [`Envelope::parse`]; nothing may follow.
    pub fn advance(&mut self, work: usize) -> Result<Option<usize>, MessageFault> {
        self.scan.advance(self.text.trim(), work)
    }

    /// The message, once all is checked.
    ///
    /// # Errors
    ///
    /// As of [`Envelope::parse`].
    pub fn envelope(&self) -> Result<Envelope<'_>, MessageFault> {
        Envelope::of_parts(self.text.trim(), self.scan.parts())
    }
}

/// Appends the JSON text of a message to `out`.
///
/// # Errors
///
/// The payload has no JSON form, which none of this module's payloads is. `out` is then as it was.
pub fn write<P: Serialize + ?Sized>(
    out: &mut Vec<u8>,
    id: &str,
    msg_type: Kind,
    from_peer: &str,
    timestamp: u64,
    payload: &P,
) -> Result<(), Unserializable> {
    #[derive(Serialize)]
    struct Message<'a, P: ?Sized> {
        id: &'a str,
        msg_type: &'static str,
        from_peer: &'a str,
        timestamp: u64,
        payload: &'a P,
    }
    let start = out.len();
    let message = Message { id, msg_type: msg_type.as_str(), from_peer, timestamp, payload };
    serde_json::to_writer(&mut *out, &message).map_err(|_| {
        out.truncate(start);
        Unserializable
    })
}

/// A frame that holds no message: the peer's fault, which closes its connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum MessageFault {
    /// Not UTF-8 from a byte on.
    NotUtf8 {
        /// The first bad byte, counted from 0.
        at: usize,
    },
    /// Not JSON, or not to be parsed: a number out of range, a lone surrogate, nesting too deep.
    NotJson {
        /// The byte in its line, counted from 1.
        at: usize,
    },
    /// JSON, but no message: a key of another type, or no object.
    NotMessage {
        /// The byte in its line, counted from 1.
        at: usize,
    },
    /// A required key is absent.
    Missing(Key),
    /// A known key comes twice.
    Repeated(Key),
}

impl fmt::Display for MessageFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotUtf8 { at } => write!(f, "peer sent a frame that is not UTF-8 from byte {at} on"),
            Self::NotJson { at } => write!(f, "peer sent a frame that is not JSON at column {at}"),
            Self::NotMessage { at } => write!(f, "peer sent JSON that is no message, at column {at}"),
            Self::Missing(key) => write!(f, "peer sent a message without `{}`", key.name()),
            Self::Repeated(key) => write!(f, "peer sent a message with `{}` twice", key.name()),
        }
    }
}

impl core::error::Error for MessageFault {}

/// A payload that has no JSON form: a fault of the caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unserializable;

impl fmt::Display for Unserializable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("our payload has no JSON form")
    }
}

impl core::error::Error for Unserializable {}

/// A key of the envelope.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Key {
    /// `id`
    Id,
    /// `msg_type`
    MsgType,
    /// `from_peer`
    FromPeer,
    /// `timestamp`
    Timestamp,
    /// `payload`
    Payload,
}

impl Key {
    pub(super) const ALL: [Self; 5] =
        [Self::Id, Self::MsgType, Self::FromPeer, Self::Timestamp, Self::Payload];
    const NAMES: [&'static str; 5] = ["id", "msg_type", "from_peer", "timestamp", "payload"];

    /// The key on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// The key that this text of a string is.
    pub(super) fn of_text(text: &[u8]) -> Option<Self> {
        let (quote, inner) = (text.first()?, text.get(1..text.len() - 1)?);
        debug_assert_eq!(*quote, b'"', "a key is a string");
        let is = |name: &[u8]| Self::ALL.into_iter().find(|key| key.name().as_bytes() == name);
        if memchr::memchr(b'\\', inner).is_none() {
            return is(inner);
        }
        let text = core::str::from_utf8(text).ok()?;
        is(raw::text(text)?.as_bytes())
    }
}

impl<'de> Deserialize<'de> for MsgType<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        // An enumeration's variant is a string, or an object of its name and null: the existing peer takes both.
        from.deserialize_enum("MsgType", &[], MsgTypeVisitor)
    }
}

struct MsgTypeVisitor;

impl<'de> Visitor<'de> for MsgTypeVisitor {
    type Value = MsgType<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a message type")
    }

    fn visit_enum<A: EnumAccess<'de>>(self, data: A) -> Result<MsgType<'de>, A::Error> {
        let (Text(name), variant) = data.variant()?;
        variant.unit_variant()?;
        Ok(MsgType::of(name))
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::string::{String, ToString};

    use quickcheck::quickcheck;

    use super::*;

    const GOOD: &str =
        r#"{"id":"m1","msg_type":"lease_list","from_peer":"p1","timestamp":7,"payload":{"a":1}}"#;

    fn parse(text: &str) -> Result<Envelope<'_>, MessageFault> {
        Envelope::parse(text.as_bytes())
    }

    fn with(payload: &str) -> String {
        GOOD.replace(r#"{"a":1}"#, payload)
    }

    /// A good message with one key more.
    fn beside(extra: &str) -> String {
        GOOD.replacen('{', &format!("{{{extra},"), 1)
    }

    fn arrays(levels: usize) -> String {
        "[".repeat(levels) + &"]".repeat(levels)
    }

    #[test]
    fn a_message_is_read_and_borrowed() {
        let text = parse(GOOD).unwrap();
        assert_eq!((&*text.id, &*text.from_peer, text.timestamp), ("m1", "p1", 7));
        assert_eq!(text.msg_type, MsgType::Known(Kind::LeaseList));
        assert_eq!(text.payload.get(), r#"{"a":1}"#);
        assert!(matches!((text.id, text.from_peer), (Cow::Borrowed(_), Cow::Borrowed(_))));
    }

    #[test]
    fn each_of_the_five_keys_is_required() {
        for key in Key::ALL {
            let text = GOOD.replace(&format!("{:?}:", key.name()), "\"other\":");
            assert_eq!(parse(&text).err(), Some(MessageFault::Missing(key)));
        }
    }

    #[test]
    fn a_known_key_comes_once_and_another_as_often_as_it_likes() {
        for (key, value) in [
            ("id", "\"\""),
            ("msg_type", "\"ack\""),
            ("from_peer", "\"\""),
            ("timestamp", "1"),
            ("payload", "1"),
        ] {
            let fault = parse(&beside(&format!("\"{key}\":{value}"))).err();
            assert!(
                matches!(fault, Some(MessageFault::Repeated(at)) if at.name() == key),
                "{key}: {fault:?}"
            );
        }
        assert!(parse(&beside(r#""x":1,"x":{"id":2}"#)).is_ok());
        assert!(matches!(parse(&beside(r#""\u0069d":"""#)).err(), Some(MessageFault::Repeated(Key::Id))));
    }

    #[test]
    fn keys_of_another_type_are_refused() {
        for (from, to) in [
            (r#""m1""#, "1"),
            (r#""m1""#, "null"),
            (r#""p1""#, "[]"),
            (r#""lease_list""#, "3"),
            (r#""lease_list""#, "null"),
            (r#""lease_list""#, r#"["lease_list"]"#),
            (r#""lease_list""#, r#"{"lease_list":{}}"#),
            (r#""lease_list""#, r#"{"lease_list":null,"ack":null}"#),
            (r#""lease_list""#, "{}"),
            (":7", ":-7"),
            (":7", ":7.0"),
            (":7", ":\"7\""),
            (":7", ":18446744073709551616"),
        ] {
            assert!(parse(&GOOD.replace(from, to)).is_err(), "{to}");
        }
    }

    #[test]
    fn id_and_from_peer_are_any_strings_and_timestamp_any_u64() {
        let long = "x".repeat(200_000);
        assert_eq!(parse(&GOOD.replace("m1", &long)).unwrap().id, long);
        assert_eq!(parse(&GOOD.replace("m1", "")).unwrap().id, "");
        assert_eq!(parse(&GOOD.replace("p1", "é\\u0000\\n")).unwrap().from_peer, "é\0\n");
        assert_eq!(parse(&GOOD.replace(":7", ":18446744073709551615")).unwrap().timestamp, u64::MAX);
    }

    #[test]
    fn msg_type_is_an_exact_string_or_an_object_of_it_and_null() {
        let of = |msg_type: &str| {
            let text = GOOD.replace(r#""lease_list""#, msg_type);
            parse(&text).map(|m| m.msg_type.known())
        };
        assert_eq!(of(r#""heartbeat""#), Ok(Some(Kind::Heartbeat)));
        assert_eq!(of(r#"{"lease_list":null}"#), Ok(Some(Kind::LeaseList)));
        for unknown in [r#""unknown""#, r#""Heartbeat""#, r#""""#, r#"" ack""#, r#"{"new":null}"#] {
            assert_eq!(of(unknown), Ok(None), "{unknown}");
        }
        let text = GOOD.replace("lease_list", "new_one");
        assert_eq!(parse(&text).unwrap().msg_type, MsgType::Unknown("new_one".into()));
    }

    #[test]
    fn a_payload_is_any_json_value() {
        for payload in ["null", "true", "-0", "1e300", "\"x\"", "[]", "[1,{}]", "{}"] {
            assert_eq!(parse(&with(payload)).unwrap().payload.get(), payload);
        }
    }

    #[test]
    fn an_array_of_the_five_values_is_a_message() {
        let text = parse(r#"["m1","lease_list","p1",7,{"a":1}]"#).unwrap();
        assert_eq!((&*text.id, text.timestamp, text.payload.get()), ("m1", 7, r#"{"a":1}"#));
        assert!(parse(r#"["m1","lease_list","p1",7]"#).is_err());
        assert!(parse(r#"["m1","lease_list","p1",7,{},1]"#).is_err());
        assert!(parse(r#"["lease_list","m1",7,"p1",{}]"#).is_err());
    }

    #[test]
    fn numbers_and_strings_that_cannot_be_held_are_refused_wherever_they_stand() {
        let digits = "9".repeat(400);
        for bad in [
            "1e400",
            "-1e400",
            &digits,
            "NaN",
            "Infinity",
            r#""\ud800""#,
            r#""\udc00""#,
            r#""\ud800\u0041""#,
            "01",
            "\"\u{1}\"",
        ] {
            for text in [
                with(bad),
                with(&format!("[{{\"k\":[{bad}]}}]")),
                beside(&format!("\"x\":{bad}")),
                beside(&format!("\"x\":[[{bad}]]")),
            ] {
                let fault = parse(&text).err();
                assert!(matches!(fault, Some(MessageFault::NotJson { .. })), "{bad}: {fault:?}");
            }
        }
        assert!(parse(&beside(r#""\ud800":1"#)).is_err());
        assert!(parse(&with(r#"{"\ud800":1}"#)).is_err());
        assert!(parse(&with(r#"{"k":"\u0000\ud83d\ude00"}"#)).is_ok());
    }

    #[test]
    fn nesting_of_125_arrays_inside_a_payload_key_is_taken_and_126_are_not() {
        for depth in [125, 126, 10_000] {
            let payload = with(&format!("{{\"k\":{}}}", arrays(depth)));
            assert_eq!(parse(&payload).is_ok(), depth == 125, "{depth} in the payload");
            let ignored = beside(&format!("\"x\":{{\"k\":{}}}", arrays(depth)));
            assert_eq!(parse(&ignored).is_ok(), depth == 125, "{depth} in an ignored key");
        }
        assert!(parse(&"[".repeat(100_000)).is_err());
        assert!(parse(&with(&"{\"k\":".repeat(100_000))).is_err());
    }

    #[test]
    fn unicode_white_space_round_the_object_is_trimmed() {
        assert!(parse(&format!("\t\u{a0}\u{2003} {GOOD} \u{a0}\r")).is_ok());
        assert!(parse(&GOOD.replace(':', " : ")).is_ok());
        assert!(parse(&GOOD.replace(':', "\u{a0}:")).is_err());
    }

    #[test]
    fn anything_else_round_the_object_is_refused() {
        for text in [
            format!("\u{feff}{GOOD}"),
            format!("{GOOD}\0"),
            format!("\0{GOOD}"),
            format!("{GOOD}{GOOD}"),
            format!("{GOOD} x"),
            "\r".to_string(),
            " ".to_string(),
            String::new(),
            "7".to_string(),
            "\"x\"".to_string(),
            "null".to_string(),
        ] {
            assert!(parse(&text).is_err(), "{text:?}");
        }
        assert_eq!(Envelope::parse(b"{\"\xff\":1}").err(), Some(MessageFault::NotUtf8 { at: 2 }));
        assert!(Envelope::parse(b"\"\xed\xa0\x80\"").is_err());
    }

    #[test]
    fn what_is_written_reads_back() {
        let mut out = b"x".to_vec();
        write(&mut out, "m\n\"", Kind::Ack, "pé", u64::MAX, &[1, 2]).unwrap();
        let back = Envelope::parse(&out[1..]).unwrap();
        assert_eq!((&*back.id, back.msg_type.known(), &*back.from_peer), ("m\n\"", Some(Kind::Ack), "pé"));
        assert_eq!((back.timestamp, back.payload.get()), (u64::MAX, "[1,2]"));
        assert!(!out.contains(&b'\n'));
    }

    #[test]
    fn a_payload_without_json_form_leaves_no_trace() {
        let mut out = b"x".to_vec();
        let payload = alloc::collections::BTreeMap::from([((1, 2), 3)]);
        assert_eq!(write(&mut out, "", Kind::Ack, "", 0, &payload), Err(Unserializable));
        assert_eq!(out, b"x");
    }

    quickcheck! {
        fn any_text_in_the_place_of_a_payload_is_read_as_the_whole_parser_reads_it(text: String) -> bool {
            let whole = serde_json::from_str::<serde_json::Value>(&text).is_ok();
            parse(&with(&text)).is_ok() == whole || text.contains(['"', '}', ','])
        }

        fn any_bytes_are_read_or_refused(bytes: Vec<u8>, at: usize) -> bool {
            let _ = Envelope::parse(&bytes);
            let mut message = GOOD.as_bytes().to_vec();
            let at = at % message.len();
            message.splice(at..at, bytes);
            let _ = Envelope::parse(&message);
            true
        }
    }
}
