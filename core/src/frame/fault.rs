//! What can be wrong with a frame: the peer's faults, and our own in encoding.

use core::fmt;

use super::{COMPRESS_FROM, MAX_FRAME, MAX_RAW};

/// A framing fault of the peer. None can be recovered from: where the next frame begins is unknown, so the
/// connection closes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum FrameFault {
    /// An empty line, which the reference reads as the end of the stream.
    BlankLine,
    /// More than [`MAX_FRAME`] bytes without LF.
    LineTooLong,
    /// A binary frame of length 0: it has not even its flags.
    Empty,
    /// A length field above [`MAX_FRAME`].
    TooLong {
        /// The length field.
        len: u32,
    },
    /// One of the flag bits 1 to 7 is set.
    ReservedFlags {
        /// The flag byte.
        flags: u8,
    },
    /// A compressed frame that ends before its raw length does.
    ShortBody,
    /// A raw length below [`COMPRESS_FROM`] or above [`MAX_RAW`].
    RawLength {
        /// The raw length field.
        raw: u32,
    },
    /// A block that does not decompress to exactly the raw length.
    Block,
    /// The stream ended inside a frame or a line; what came of it is never acted on.
    Truncated,
}

impl fmt::Display for FrameFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BlankLine => write!(f, "peer sent a blank line, which ends the stream"),
            Self::LineTooLong => write!(f, "peer sent a line of more than {MAX_FRAME} bytes"),
            Self::Empty => write!(f, "peer sent a frame of length 0"),
            Self::TooLong { len } => write!(f, "peer sent a frame of {len} bytes, above {MAX_FRAME}"),
            Self::ReservedFlags { flags } => write!(f, "peer set reserved flag bits ({flags:#04x})"),
            Self::ShortBody => write!(f, "peer sent a compressed frame without a raw length"),
            Self::RawLength { raw } => {
                write!(f, "peer sent a raw length of {raw} bytes, outside {COMPRESS_FROM} to {MAX_RAW}")
            }
            Self::Block => write!(f, "peer sent a block that does not decompress to its raw length"),
            Self::Truncated => write!(f, "peer ended the stream inside a frame"),
        }
    }
}

impl core::error::Error for FrameFault {}

/// Why a message cannot be framed: a fault of the caller, which keeps the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum EncodeError {
    /// No bytes at all: as a line they would end the stream.
    Empty,
    /// A raw LF, which no JSON text on one line has.
    Newline,
    /// More than [`MAX_RAW`] bytes of JSON.
    RawTooLong {
        /// Its length, in bytes.
        bytes: usize,
    },
    /// A line or frame of more than [`MAX_FRAME`] bytes.
    FrameTooLong {
        /// Its length, in bytes; of a compressed frame, after compression.
        bytes: usize,
    },
}

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(f, "we tried to send an empty message"),
            Self::Newline => write!(f, "we tried to send a message with a line break in its JSON"),
            Self::RawTooLong { bytes } => write!(f, "our message of {bytes} bytes is above {MAX_RAW}"),
            Self::FrameTooLong { bytes } => {
                write!(f, "our message makes a frame of {bytes} bytes, above {MAX_FRAME}")
            }
        }
    }
}

impl core::error::Error for EncodeError {}
