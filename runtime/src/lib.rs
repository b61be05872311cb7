//! What every driver of relay-core machines shares.
//!
//! A driver owns sockets and a loop. All else that stands between a [`Host`](relay_core::host::Host) and the world is
//! the same for each and is here: the [`Handle`] that other threads hold, the [`Events`] they read, the thread that
//! commits to the [`Journal`](relay_core::journal::Journal) in groups, the thread that carries actions out, and the two
//! clocks. A driver keeps a [`Desk`], gives it the five duties of its `Port` that are not about sockets, and lets it
//! [`deliver`](Desk::deliver) what came in once a turn.

mod actor;
mod clock;
mod desk;
mod handle;
mod inbox;
mod journal;
mod net;
mod queue;

pub use actor::{Actor, NoActions};
pub use clock::Clock;
pub use desk::{Desk, Options};
pub use handle::{CallError, Gauges, Handle, Pending, Rejected, Reply};
pub use inbox::Wake;
pub use net::{
    Listener, SocketFile, close_reason, dial_error, is_exhausted, raise_descriptor_limit, send_at_once,
    unix_endpoint,
};
pub use queue::{Events, RecvError};
