//! The control socket of a running node: how the other commands of its home reach it.
//!
//! One JSON object a line, both ways. A request is `{"v", "id", "cmd", ..}`; the answer is `{"id", "answer"}` or
//! `{"id", "error": {"code", "message", "hint"}}`, in the order of the requests. `watch` is answered and then followed
//! by `{"id", "event"}` lines until the client closes. `v` is [`VERSION`], and may be left out.

mod client;
mod place;
mod server;
mod wire;

pub use client::{Client, Watch};
pub use place::Place;
pub use server::Server;

/// The version of this protocol.
pub const VERSION: u64 = 1;

/// Longest request, in bytes, without its line feed.
pub const MAX_REQUEST: usize = 1 << 20;
