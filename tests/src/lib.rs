//! Cross-crate conformance: both drivers side by side, real peers, benches.

extern crate alloc;

pub mod fleet;

#[cfg(doctest)]
#[doc = include_str!("../../docs/embedding.md")]
pub mod embedding {}
