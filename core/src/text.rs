//! Bounded, filtered strings that a peer supplied, and ids.
