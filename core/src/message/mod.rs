//! The `RelayMessage` envelope and its payloads.
//!
//! [`Envelope::parse`] borrows everything from the frame and leaves the payload as text; each [`Kind`] has one
//! payload type, which reads that text with exactly the tolerance that the reference gives it.

pub mod connection;
mod envelope;
mod features;
pub mod heartbeat;
pub mod hive;
mod kind;
pub mod lease;
mod object;
mod raw;
#[cfg(test)]
mod round_trip;
mod scan;
pub mod task;
pub mod transfer;
mod utc;

pub use envelope::{Envelope, Key, MessageFault, Reading, Unserializable, write};
pub use features::{Feature, FeatureSet};
pub use kind::{Kind, MsgType};
pub use object::Object;
pub use utc::Utc;

pub use serde_json::value::RawValue;
