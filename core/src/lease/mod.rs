//! Fleet leases: one authority that grants them, and whoever asks it.
//!
//! | file | what it holds |
//! |---|---|
//! | `authority` | the [`Authority`]: what a claim, a release and a list lead to |
//! | `table` | the leases: by id, by grant, by when they end |
//! | `resources` | what overlaps what, and the queue of each resource |
//! | `overlap` | the rule of overlap itself |
//! | `ranks` | how many stand before a place in a queue |
//! | `owners` | whose session lives, as heartbeats say: what renews |
//! | `answers` | what a repeated request is answered |
//! | `record` | what the journal keeps, and a snapshot |
//! | `requester` | one request to an authority: attempts, waiting, certainty |
//!
//! Nothing here is a machine of its own: the [`Node`](crate::peer::Node) asks it in its own steps, and records what it
//! says before anybody sees an answer.

mod answers;
mod authority;
mod overlap;
mod owners;
mod ranks;
mod record;
mod requester;
mod resources;
mod table;

pub use authority::{Authority, Change, Effects, Ended, Lapse};
pub use overlap::{PATH_GLOB, paths_overlap, stem};
pub use owners::{HEARD_FOR, MAX_SESSIONS};
pub use record::{BootId, Record};
pub use requester::{
    ATTEMPT_TIME, ATTEMPTS, Answered, Ask, Next, POLL_EVERY, Patience, Requester, Unanswered,
};
pub use resources::{MAX_COMPARED, MAX_WIDE, POLL_WITHIN};
pub use table::MAX_SETTLED;
