//! The `RelayMessage` envelope and its payloads.
//!
//! [`Envelope::parse`] borrows everything from the frame and leaves the payload as text; each [`Kind`] has one
//! payload type, which reads that text with exactly the tolerance that the reference gives it.

mod envelope;
mod features;
mod kind;
mod object;
mod strict;

pub use envelope::{Envelope, Key, MessageFault, Unserializable, write};
pub use features::{Feature, FeatureSet};
pub use kind::{Kind, MsgType};
pub use object::Object;

pub use serde_json::value::RawValue;
