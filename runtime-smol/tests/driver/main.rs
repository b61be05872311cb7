//! The driver against real sockets, with a small machine of its own.
//!
//! Nothing here sleeps to let something happen: every wait is for a byte, an event, an answer or an end, and has a time
//! after which the test fails.

#![allow(clippy::unwrap_used, reason = "a test fails where it cannot go on")]

mod dialling;
mod durability;
mod exhaustion;
mod machine;
mod owner;
mod peers;
mod serving;
mod storm;
