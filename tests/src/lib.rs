//! Cross-crate conformance: both drivers side by side, real peers, benches.

pub mod client;
pub mod disk;
pub mod probe;
pub mod rig;
pub mod script;

#[cfg(doctest)]
#[doc = include_str!("../../docs/embedding.md")]
pub mod embedding {}
