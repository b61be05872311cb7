//! The peer link: relays that authenticate, agree features, keep a link alive and exchange messages.
//!
//! [`Node`] is the whole of it as one [`Machine`](crate::machine::Machine): it listens and dials, keeps one link with
//! each peer, and carries one-shots. What surrounds it in this folder are its parts, each a rule of the reference.

mod addresses;
mod admission;
mod backoff;
mod book;
mod command;
mod dedup;
mod fault;
pub mod invite;
mod life;
mod node;
pub mod pairing;
mod refusals;
mod report;
mod settings;
mod shared;

pub use addresses::{Addresses, KnownAddress};
pub use admission::Admission;
pub use backoff::Backoff;
pub use book::PeerRecord;
pub use command::{
    Answer, Command, Direction, DownReason, Event, Failure, HandshakeFailure, LinkView, Message, PeerView,
};
pub use dedup::Dedup;
pub use fault::Fault;
pub use life::Life;
pub use node::{BEFORE_PROOF, FRAME_TIME, HANDSHAKE_TIME, Node};
pub use refusals::{LeftOut, Refusals};
pub use report::{PeerReport, Report};
pub use settings::Settings;
