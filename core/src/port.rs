//! What a driver writes. A forgotten duty does not compile.

use crate::action::{ActId, Action};
use crate::journal::Records;
use crate::machine::{CloseReason, ConnId, ListenerId, Machine, Refused, Target, Ticket};

/// The outside of a [`Host`](crate::host::Host): sockets, a journal, the owner's ear.
///
/// No method blocks. No method calls the host back: what comes of a dial, an append or an action is told later.
///
/// Each method but `spare` is a duty. This port lacks `append` alone:
///
/// ```compile_fail,E0046
/// use relay_core::action::{ActId, Action};
/// use relay_core::machine::{ConnId, ListenerId, Machine, Refused, Target, Ticket};
/// use relay_core::port::{Ending, Port, Wrote};
///
/// struct Deaf;
/// impl<M: Machine> Port<M> for Deaf {
///     fn write(&mut self, _: ConnId, bytes: &[u8]) -> Wrote { Wrote::Bytes(bytes.len()) }
///     fn finish(&mut self, _: ConnId) {}
///     fn reading(&mut self, _: ConnId, _: bool) {}
///     fn accepting(&mut self, _: ListenerId, _: bool) {}
///     fn close(&mut self, _: ConnId, _: Ending) {}
///     fn dial(&mut self, _: ConnId, _: &Target) {}
///     fn act(&mut self, _: ActId, _: Action) {}
///     fn event(&mut self, _: M::Event) {}
///     fn answer(&mut self, _: Ticket, _: Result<M::Answer, Refused>) {}
/// }
/// ```
pub trait Port<M: Machine> {
    /// Hands records to the journal, in order. `Host::persisted` or `Host::persist_failed` follows.
    fn append(&mut self, records: Records);

    /// Offers bytes to a connection's socket.
    fn write(&mut self, conn: ConnId, bytes: &[u8]) -> Wrote;

    /// Half-closes: the peer reads an end of stream behind what was written.
    fn finish(&mut self, conn: ConnId);

    /// Whether to read from a connection. All are read from the start.
    fn reading(&mut self, conn: ConnId, on: bool);

    /// Whether to accept from a listener. All are accepted from at the start; nobody is behind the call that says no.
    fn accepting(&mut self, listener: ListenerId, on: bool);

    /// Ends a connection, or a dial under way, and forgets its id.
    fn close(&mut self, conn: ConnId, how: Ending);

    /// Starts a dial. `Host::dialled` or `Host::closed` follows.
    fn dial(&mut self, conn: ConnId, target: &Target);

    /// Starts an action. `Host::acted` follows.
    fn act(&mut self, id: ActId, action: Action);

    /// Tells the owner something. An owner that does not listen must not stop the driver: count and drop.
    fn event(&mut self, event: M::Event);

    /// Answers a command. There is room for it, since its asker waits.
    fn answer(&mut self, ticket: Ticket, answer: Result<M::Answer, Refused>);

    /// A batch that the journal is done with, to be reused.
    fn spare(&mut self) -> Option<Records> {
        None
    }
}

/// What became of bytes that were offered to a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(clippy::exhaustive_enums)]
pub enum Wrote {
    /// It took this many, at least one; offer the rest.
    Bytes(usize),
    /// It takes none now; `Host::writable` follows.
    Blocked,
    /// It failed.
    Failed(CloseReason),
}

/// How a connection ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(clippy::exhaustive_enums)]
pub enum Ending {
    /// All that was to be said is said.
    Orderly,
    /// The peer is to see a reset.
    Reset,
}
