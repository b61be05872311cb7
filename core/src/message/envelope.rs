//! The envelope that every frame holds.

use alloc::borrow::Cow;
use alloc::vec::Vec;
use core::fmt;

use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error, MapAccess, SeqAccess, VariantAccess, Visitor,
};
use serde::{Deserialize, Serialize};
use serde_json::error::Category;

use super::object::Text;
use super::strict::{MAX_DEPTH, Strict};
use super::{Kind, MsgType, RawValue};

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
        let mut from = serde_json::Deserializer::from_str(text.trim());
        let mut parts = Parts::default();
        from.deserialize_struct("RelayMessage", &Key::NAMES, PartsVisitor(&mut parts))
            .and_then(|()| from.end())
            .map_err(|e| parts.repeated.map_or_else(|| MessageFault::of(&e), MessageFault::Repeated))?;
        let envelope = parts.whole().map_err(MessageFault::Missing)?;
        check(envelope.payload)?;
        Ok(envelope)
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

impl MessageFault {
    fn of(error: &serde_json::Error) -> Self {
        let at = error.column();
        match error.classify() {
            Category::Data => Self::NotMessage { at },
            Category::Io | Category::Syntax | Category::Eof => Self::NotJson { at },
        }
    }
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
    const ALL: [Self; 5] = [Self::Id, Self::MsgType, Self::FromPeer, Self::Timestamp, Self::Payload];
    const NAMES: [&'static str; 5] = ["id", "msg_type", "from_peer", "timestamp", "payload"];

    /// The key on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|key| key.name() == name)
    }
}

/// Walks a payload that was kept as text. The envelope's own object is the first of the levels.
fn check(payload: &RawValue) -> Result<(), MessageFault> {
    let mut from = serde_json::Deserializer::from_str(payload.get());
    Strict { levels: MAX_DEPTH - 1 }
        .deserialize(&mut from)
        .map_err(|e| MessageFault::NotJson { at: e.column() })
}

/// The envelope while it is read.
#[derive(Default)]
struct Parts<'a> {
    id: Option<Cow<'a, str>>,
    msg_type: Option<MsgType<'a>>,
    from_peer: Option<Cow<'a, str>>,
    timestamp: Option<u64>,
    payload: Option<&'a RawValue>,
    repeated: Option<Key>,
}

impl<'a> Parts<'a> {
    fn has(&self, key: Key) -> bool {
        match key {
            Key::Id => self.id.is_some(),
            Key::MsgType => self.msg_type.is_some(),
            Key::FromPeer => self.from_peer.is_some(),
            Key::Timestamp => self.timestamp.is_some(),
            Key::Payload => self.payload.is_some(),
        }
    }

    fn whole(self) -> Result<Envelope<'a>, Key> {
        Ok(Envelope {
            id: self.id.ok_or(Key::Id)?,
            msg_type: self.msg_type.ok_or(Key::MsgType)?,
            from_peer: self.from_peer.ok_or(Key::FromPeer)?,
            timestamp: self.timestamp.ok_or(Key::Timestamp)?,
            payload: self.payload.ok_or(Key::Payload)?,
        })
    }
}

struct PartsVisitor<'p, 'a>(&'p mut Parts<'a>);

impl<'de> Visitor<'de> for PartsVisitor<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a message")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(Text(name)) = map.next_key()? {
            let Some(key) = Key::parse(&name) else {
                map.next_value_seed(Strict { levels: MAX_DEPTH - 1 })?;
                continue;
            };
            if self.0.has(key) {
                self.0.repeated = Some(key);
                return Err(A::Error::custom("repeated key"));
            }
            match key {
                Key::Id => self.0.id = Some(map.next_value::<Text<'de>>()?.0),
                Key::MsgType => self.0.msg_type = Some(map.next_value::<MsgType<'de>>()?),
                Key::FromPeer => self.0.from_peer = Some(map.next_value::<Text<'de>>()?.0),
                Key::Timestamp => self.0.timestamp = Some(map.next_value()?),
                Key::Payload => self.0.payload = Some(map.next_value()?),
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        // Too few elements leave parts missing; one too many is the parser's to refuse.
        self.0.id = seq.next_element::<Text<'de>>()?.map(|text| text.0);
        self.0.msg_type = seq.next_element()?;
        self.0.from_peer = seq.next_element::<Text<'de>>()?.map(|text| text.0);
        self.0.timestamp = seq.next_element()?;
        self.0.payload = seq.next_element()?;
        Ok(())
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
