//! The peer link.
