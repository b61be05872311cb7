//! Cross-crate conformance: both drivers side by side and the simulated world, real peers, benches.

extern crate alloc;

pub mod actor;
pub mod batches;
pub mod client;
pub mod disk;
pub mod fleet;
pub mod fuzz;
pub mod loads;
pub mod peers;
pub mod probe;
pub mod rig;
pub mod script;

#[cfg(doctest)]
#[doc = include_str!("../../docs/embedding.md")]
pub mod embedding {}
