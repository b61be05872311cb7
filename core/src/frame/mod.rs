//! Bytes to frames and back, in both framings.
//!
//! [`Cutter`] takes one frame at a time from whatever slices a transport delivers; [`encode()`] is the other way. A
//! frame's content is the JSON text of one message; this layer never looks inside it.

mod cutter;
mod encode;
mod fault;

pub use cutter::Cutter;
pub use encode::encode;
pub use fault::{EncodeError, FrameFault};

/// How frames are told apart on a connection.
///
/// Challenge, handshake and ack are always [`Framing::Ndjson`]; what follows them is binary where both ends agreed
/// `frame-bin`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Framing {
    /// One JSON text a line, ended by LF.
    #[default]
    Ndjson,
    /// A length (u32, big-endian), a flag byte and a body, which may be an LZ4 block.
    Binary,
}

/// Longest line without its LF, and largest value of a binary frame's length field, in bytes.
pub const MAX_FRAME: usize = 1024 * 1024;
/// Shortest JSON text that is compressed, in bytes. Part of what `frame-bin` means.
pub const COMPRESS_FROM: usize = 1024;
/// Longest JSON text that a compressed frame may hold, in bytes. Part of what `frame-bin` means.
pub const MAX_RAW: usize = 4 * 1024 * 1024;

/// Length field and flags, in bytes.
const HEADER: usize = 5;
/// The length of the text before compression, in front of the block, in bytes.
const RAW_LENGTH: usize = 4;
/// Flag bit 0: the body is a raw length and an LZ4 block.
const COMPRESSED: u8 = 1;
