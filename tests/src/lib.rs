//! Cross-crate conformance: both drivers side by side, real peers, benches.

extern crate alloc;

pub mod fleet;
pub mod fuzz;
