//! Drives any relay-core [`Machine`] on mio: one thread, one edge-triggered poll, TCP and unix sockets.
//!
//! ```no_run
//! # use relay_core::{journal::Seq, machine::Machine};
//! use relay_mio::{Listener, Options};
//!
//! # fn run<M: Machine + Send + 'static>(machine: M) -> std::io::Result<()> {
//! let listener = Listener::tcp("127.0.0.1:0".parse().expect("an address"))?;
//! let (handle, events) = relay_mio::start(machine, Seq::NONE, vec![listener], Options::default())?;
//! while let Some(_event) = events.recv() {
//!     // Commands go in by `handle`, from any thread.
//! }
//! # drop(handle);
//! # Ok(())
//! # }
//! ```
//!
//! Nothing here knows a protocol, and nothing is kept for a connection but its socket and a few flags: received bytes
//! pass through one buffer that all share, and unsent ones wait in the host's outbox.

mod dial;
mod driver;
mod listen;
mod net;

use std::io;
use std::thread;

use mio::{Poll, Waker};
use relay_core::host::Host;
use relay_core::journal::Seq;
use relay_core::machine::Machine;

pub use relay_runtime::{
    Actor, CallError, Clock, Events, Gauges, Handle, Listener, NoActions, Options, Pending, RecvError,
    Rejected, Reply, SocketFile, Wake, raise_descriptor_limit,
};

use crate::driver::Driver;

/// Runs `machine` on a thread of its own, whose journal's newest durable record is `newest`.
///
/// The machine knows the listeners as `ListenerId(0)`, `ListenerId(1)` and so on, in the order given. It runs until
/// [`Handle::shutdown`], whoever still holds a handle or reads the events.
///
/// # Errors
/// A poll, a thread or a listener could not be had from the system.
pub fn start<M: Machine + Send + 'static>(
    machine: M,
    newest: Seq,
    listeners: Vec<Listener>,
    options: Options,
) -> io::Result<(Handle<M>, Events<M::Event>)> {
    let poll = Poll::new()?;
    let waker = Waker::new(poll.registry(), net::WAKER)?;
    let (desk, handle, events) = relay_runtime::Desk::new(options, Alarm(waker))?;
    let driver = Driver::new(Host::new(machine, newest), poll, listeners, desk)?;
    handle.attach(thread::Builder::new().name("relay-mio".into()).spawn(|| driver.run())?);
    Ok((handle, events))
}

/// Ends the poll's sleep.
struct Alarm(Waker);

impl Wake for Alarm {
    fn wake(&self) {
        // It fails only where the driver has ended, and then there is no sleep to end.
        let _ = self.0.wake();
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{Shutdown, TcpStream};
    use std::time::Duration;

    use relay_core::machine::Input;
    use relay_core::outbox::Outbox;
    use relay_core::time::{Mono, Now};

    use super::*;

    struct Echo;

    impl Machine for Echo {
        type Command = ();
        type Answer = ();
        type Event = ();

        fn step(&mut self, _now: Now, input: Input<'_, ()>, out: &mut Outbox<(), ()>) {
            match input {
                Input::Bytes { conn, data } => out.send(conn, |buf| buf.extend_from_slice(data)),
                Input::Eof { conn } => out.finish(conn),
                Input::Command { ticket, command: () } => out.answer(ticket, ()),
                Input::Opened { .. }
                | Input::Drained { .. }
                | Input::Closed { .. }
                | Input::Persisted { .. }
                | Input::PersistFailed { .. }
                | Input::Resumed { .. }
                | Input::Acted { .. }
                | Input::Drain { .. }
                | Input::Timer => {}
            }
        }

        fn deadline(&self) -> Option<Mono> {
            None
        }
    }

    #[test]
    fn bytes_come_back_and_the_loop_ends_when_asked() {
        let listener = Listener::tcp("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.tcp_address().unwrap();
        let (handle, events) = start(Echo, Seq::NONE, vec![listener], Options::default()).unwrap();
        let mut client = TcpStream::connect(address).unwrap();
        client.write_all(b"round trip").unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let mut back = String::new();
        client.read_to_string(&mut back).unwrap();
        assert_eq!(back, "round trip");
        assert_eq!(handle.call((), Duration::from_secs(10)), Ok(()));
        handle.shutdown(Duration::from_secs(10));
        assert!(handle.join());
        assert_eq!(events.recv(), None);
    }
}
