//! Sans-IO protocol core: pure, synchronous state machines.
//!
//! Bytes, timers and durable acknowledgements go in; bytes, actions, events and deadlines come out. Nothing here
//! opens a socket, reads a clock, starts a thread, touches a file or draws a random number.
#![no_std]
#![warn(clippy::std_instead_of_core, clippy::std_instead_of_alloc, clippy::alloc_instead_of_core)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod action;
mod conn;
#[cfg(feature = "peer")]
pub mod frame;
pub mod host;
pub mod journal;
#[cfg(feature = "peer")]
pub mod lease;
pub mod machine;
#[cfg(feature = "peer")]
pub mod message;
pub mod outbox;
#[cfg(feature = "peer")]
pub mod peer;
pub mod port;
pub mod secret;
pub mod text;
pub mod time;
pub mod timers;
mod turns;
