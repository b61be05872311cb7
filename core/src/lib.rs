//! Sans-IO protocol core: pure, synchronous state machines.
//!
//! Bytes, timers and durable acknowledgements go in; bytes, actions, events and deadlines come out. Nothing here
//! opens a socket, reads a clock, starts a thread, touches a file or draws a random number.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

#[cfg(feature = "peer")]
pub mod frame;
#[cfg(feature = "peer")]
pub mod message;
#[cfg(feature = "peer")]
pub mod peer;
pub mod secret;
pub mod text;
pub mod time;
