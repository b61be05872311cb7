//! The peer link.

pub mod invite;
pub mod pairing;
