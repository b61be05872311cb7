//! The contract: each rule of host and outbox, and each pitfall that led to one, as a test.

extern crate alloc;

mod connections;
mod durability;
mod interleavings;
mod pressure;
mod rig;
mod time;
mod turns;
