//! Runs relay-core machines in virtual time: pipes, disks, crashes, one hash for a run.
//!
//! A [`World`] hosts any number of nodes, each one machine in the very [`Host`](relay_core::host::Host) that drivers
//! use. Nothing sleeps and nothing is drawn twice: time jumps to the next event, and every draw is a function of the
//! seed and of what it is for, so that a run is repeated by its seed alone.
//!
//! ```text
//!   test ─▶ World ─▶ Queue (time, sequence) ─▶ Host calls ─▶ machine
//!             ▲                                   │
//!             └── net · disk · owner ◀── Port ◀───┘ settle
//! ```

extern crate alloc;

mod disk;
mod draw;
mod drive;
mod faults;
mod link;
mod net;
mod node;
mod port;
mod queue;
mod stranger;
mod trace;
mod verify;
mod watch;
mod wire;
mod world;

pub use disk::{Disk, DiskFault};
pub use draw::{Domain, Draws};
pub use faults::Dialled;
pub use link::LinkId;
pub use net::Splits;
pub use node::NodeId;
pub use stranger::Stranger;
pub use trace::Fingerprint;
pub use verify::verify;
pub use watch::{Subject, Witness};
pub use world::World;
