//! The bytes of the wire, written by hand and read back.

use relay_core::frame::{Cutter, Framing};
use relay_core::secret::Key;
use serde_json::Value;

/// The features that a scripted peer speaks of where it speaks of all.
pub const ALL_FEATURES: &str =
    r#""proto":1,"features":["frame-bin","headroom","lease-fleet","supervised-task","unknown-ok"]"#;

/// A message as it came.
#[derive(Clone, PartialEq, Debug)]
pub struct Sent {
    /// Its id.
    pub id: String,
    /// Its type.
    pub msg_type: String,
    /// Who it says that it is from.
    pub from: String,
    /// Its payload.
    pub payload: Value,
    /// Whether it came as a binary frame.
    pub binary: bool,
}

/// The key that two names share.
#[must_use]
pub fn key(one: &str, two: &str) -> Key {
    let pair = if one < two { [one, two] } else { [two, one] };
    Key::from_bytes(Key::from_bytes([7; 32]).mac(pair.join("\n").as_bytes()))
}

/// The JSON text of a message.
#[must_use]
pub fn text(id: &str, msg_type: &str, from: &str, payload: &str) -> String {
    format!(
        r#"{{"id":"{id}","msg_type":"{msg_type}","from_peer":"{from}","timestamp":1700000000000,"payload":{payload}}}"#
    )
}

/// A message as a line, with its type as its id, from `raw`.
#[must_use]
pub fn line(msg_type: &str, payload: &str) -> Vec<u8> {
    named(msg_type, msg_type, payload)
}

/// A message as a line, with an id of its own.
#[must_use]
pub fn named(id: &str, msg_type: &str, payload: &str) -> Vec<u8> {
    (text(id, msg_type, "raw", payload) + "\n").into_bytes()
}

/// A text as a plain binary frame.
#[must_use]
pub fn binary(text: &str) -> Vec<u8> {
    frame(text.len() as u32 + 1, 0, text.as_bytes())
}

/// A binary frame with these fields, however wrong.
#[must_use]
pub fn frame(len: u32, flags: u8, body: &[u8]) -> Vec<u8> {
    [&len.to_be_bytes()[..], &[flags], body].concat()
}

/// The payload of `id`'s handshake with `with`, with further members.
#[must_use]
pub fn hello(id: &str, with: &str, nonce: &str, extra: &str) -> String {
    let comma = if extra.is_empty() { "" } else { "," };
    format!(r#"{{"proof":"{}"{comma}{extra}}}"#, key(id, with).prove(nonce))
}

/// The line of a handshake.
#[must_use]
pub fn handshake(id: &str, with: &str, nonce: &str, extra: &str) -> Vec<u8> {
    (text("hello", "handshake", id, &hello(id, with, nonce, extra)) + "\n").into_bytes()
}

/// The line of a challenge from `from`.
#[must_use]
pub fn challenge(nonce: &str) -> Vec<u8> {
    (text("challenge", "challenge", "", &format!(r#"{{"nonce":"{nonce}"}}"#)) + "\n").into_bytes()
}

/// The line of an ack from `from`.
#[must_use]
pub fn ack(from: &str, payload: &str) -> Vec<u8> {
    (text("ack", "handshake_ack", from, payload) + "\n").into_bytes()
}

/// Reads a stream: lines, and binary frames from where they begin. Such a frame begins with a zero, since it is no
/// longer than 1 MiB, and a line with none.
///
/// # Panics
/// Where the stream holds something else.
#[must_use]
pub fn read(mut stream: &[u8]) -> Vec<Sent> {
    let (mut all, mut scratch) = (Vec::new(), Vec::new());
    while let Some(first) = stream.first() {
        let binary = *first == 0;
        let mut cutter = Cutter::new(if binary { Framing::Binary } else { Framing::Ndjson });
        let Some(json) = cutter.cut(&mut stream, &mut scratch).expect("a relay sends whole frames") else {
            break;
        };
        let message: Value = serde_json::from_slice(json).expect("a relay sends JSON");
        let string = |key: &str| message[key].as_str().expect("a relay sends every key").to_owned();
        all.push(Sent {
            id: string("id"),
            msg_type: string("msg_type"),
            from: string("from_peer"),
            payload: message["payload"].clone(),
            binary,
        });
    }
    all
}
