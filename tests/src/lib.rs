//! Cross-crate conformance: both drivers side by side, real peers, benches.
