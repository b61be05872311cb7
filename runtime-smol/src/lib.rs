//! Drives any [`Machine`] of relay-core on smol: TCP and unix sockets, timers, a journal's acknowledgements, and a
//! [`Handle`] for other threads. Nothing here knows a protocol.
//!
//! A whole program, an echo server and a client of it:
//!
//! ```
//! use std::io::{Read, Write};
//! use std::net::TcpStream;
//! use std::time::Duration;
//!
//! use relay_core::journal::Seq;
//! use relay_core::machine::{Input, Machine};
//! use relay_core::outbox::{Close, Outbox};
//! use relay_core::time::{Mono, Now};
//! use relay_smol::{Listener, Options};
//!
//! struct Echo;
//!
//! impl Machine for Echo {
//!     type Command = ();
//!     type Answer = ();
//!     type Event = ();
//!
//!     fn step(&mut self, _now: Now, input: Input<'_, ()>, out: &mut Outbox<(), ()>) {
//!         match input {
//!             Input::Bytes { conn, data } => out.send_free(conn, |bytes| bytes.extend_from_slice(data)),
//!             Input::Eof { conn } => out.close(conn, Close::Flush),
//!             Input::Command { ticket, command: () } => out.answer(ticket, ()),
//!             _ => {}
//!         }
//!     }
//!
//!     fn deadline(&self) -> Option<Mono> {
//!         None
//!     }
//! }
//!
//! fn main() -> std::io::Result<()> {
//!     let listener = Listener::tcp(([127, 0, 0, 1], 0).into())?;
//!     let address = listener.tcp_address().expect("a TCP listener has an address");
//!     let (handle, _events) = relay_smol::start(Echo, Seq::NONE, vec![listener], Options::default())?;
//!
//!     let mut client = TcpStream::connect(address)?;
//!     client.write_all(b"hello")?;
//!     client.shutdown(std::net::Shutdown::Write)?;
//!     let mut heard = String::new();
//!     client.read_to_string(&mut heard)?;
//!     assert_eq!(heard, "hello");
//!
//!     handle.shutdown(Duration::from_secs(1));
//!     assert!(handle.join());
//!     Ok(())
//! }
//! ```
//!
//! A program that has an executor of its own makes a [`Driver`] and spawns [`Driver::run`] on it instead.
//!
//! # What it does
//! - One thread runs everything; a connection is a task that reads, and has no other task while its peer keeps up. One
//!   buffer serves all reads.
//! - What a batch of reads left is carried out once, behind the batch: records go to the journal together, and each
//!   connection is written to once.
//! - A peer that always has more to say, or a flood of connects, waits its turn behind the others.
//! - While the journal is too far behind, nothing is read and nobody is accepted.
//! - A reset behind the peer's half-close is told at once on Linux and Android, elsewhere by the next write.
//! - A process without a descriptor left accepts again as soon as there is one, at the latest after 100 ms.
//!
//! [`Machine`]: relay_core::machine::Machine

mod bell;
mod conn;
mod driver;
mod failures;
mod net;

use std::io;
use std::thread;

use relay_core::journal::Seq;
use relay_core::machine::Machine;
pub use relay_runtime::{
    Actor, CallError, Clock, Events, Gauges, Handle, Listener, NoActions, Options, Pending, RecvError,
    Rejected, Reply, SocketFile, raise_descriptor_limit,
};

pub use crate::driver::Driver;

/// Runs a machine on a thread of its own, named `relay-smol`, until it is shut down through the [`Handle`].
///
/// `newest` is the newest durable record of the journal in `options`, [`Seq::NONE`] without one. The listeners are
/// numbered in order, from `ListenerId(0)`.
///
/// # Errors
/// A thread could not be started, or a listener could not be watched.
pub fn start<M>(
    machine: M,
    newest: Seq,
    listeners: Vec<Listener>,
    options: Options,
) -> io::Result<(Handle<M>, Events<M::Event>)>
where
    M: Machine + Send + 'static,
{
    let (driver, handle, events) = Driver::new(machine, newest, listeners, options)?;
    let run = move || async_io::block_on(driver.run());
    let thread = thread::Builder::new().name("relay-smol".into()).spawn(run)?;
    handle.attach(thread);
    Ok((handle, events))
}
