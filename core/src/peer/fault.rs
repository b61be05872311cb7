//! What a peer can do wrong on an open connection.

use core::fmt;

use crate::frame::FrameFault;
use crate::message::MessageFault;

/// The peer broke the protocol; its connection closes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Fault {
    /// It broke the framing.
    Frame(FrameFault),
    /// A frame holds no message.
    Message(MessageFault),
    /// A frame did not become whole within [`Fault::FRAME_TIME`](super::FRAME_TIME).
    SlowFrame,
    /// More came before the proof than may be held.
    TooMuchBeforeProof,
    /// A challenge without a nonce, or an ack for nothing.
    BadChallenge,
}

impl From<FrameFault> for Fault {
    fn from(fault: FrameFault) -> Self {
        Self::Frame(fault)
    }
}

impl From<MessageFault> for Fault {
    fn from(fault: MessageFault) -> Self {
        Self::Message(fault)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Frame(fault) => fault.fmt(f),
            Self::Message(fault) => fault.fmt(f),
            Self::SlowFrame => f.write_str("peer did not complete a frame within 30 s"),
            Self::TooMuchBeforeProof => f.write_str("peer sent too much before it proved itself"),
            Self::BadChallenge => f.write_str("peer sent no challenge that can be answered"),
        }
    }
}

impl core::error::Error for Fault {}
