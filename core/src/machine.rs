//! What a protocol writes: one [`Machine`], one [`Input`].

use alloc::boxed::Box;
use core::fmt;
use core::net::SocketAddr;

use crate::action::{ActId, Acted};
pub use crate::conn::ConnId;
use crate::journal::Seq;
use crate::outbox::Outbox;
use crate::time::{Mono, Now};
pub use crate::turns::Share;

/// A protocol as a pure state machine.
///
/// One call takes one input and leaves its outputs in the [`Outbox`]; nothing is kept inside that must be drained.
/// The [`Host`](crate::host::Host) owns machine and outbox and is all that a driver or a simulator sees.
///
/// Rules that a machine keeps, asserted in debug builds where they can be:
/// - after every step, [`deadline`](Self::deadline) lies behind `now` or is `None`: every step fires what is due,
///   up to a stated batch, and sets what is left a tick later;
/// - [`Input::Timer`] before the deadline changes nothing;
/// - whether something holds is judged by time, never by whether its timer has run;
/// - no input panics.
pub trait Machine {
    /// What the host's owner may ask.
    type Command: Send + 'static;
    /// What a command is answered with.
    type Answer: Send + 'static;
    /// What the host's owner is told without having asked.
    type Event: Send + 'static;

    /// Takes one input.
    fn step(
        &mut self,
        now: Now,
        input: Input<'_, Self::Command>,
        out: &mut Outbox<Self::Event, Self::Answer>,
    );

    /// When the machine wants its next step, exactly; O(1).
    fn deadline(&self) -> Option<Mono>;

    /// Whether nothing is under way that a shutdown should wait for.
    fn idle(&self) -> bool {
        true
    }

    /// Whose a connection is: its bytes are worked on in turns with those of other shares, so that many connections of one
    /// peer get no more than one.
    fn share(&self, conn: ConnId) -> Share {
        Share::alone(conn)
    }

    /// Reports what the machine holds, each value under a stable snake_case name.
    fn gauges(&self, sink: &mut dyn FnMut(&'static str, u64)) {
        let _ = sink;
    }
}

/// A machine whose state is rebuilt from a journal. State that cannot be rebuilt from it is not state.
pub trait Durable: Machine {
    /// Takes one record in the order in which it was made, before the first step.
    ///
    /// # Errors
    /// A record that this version does not understand: the journal's fault, and the node must not start.
    fn restore(&mut self, seq: Seq, record: &[u8]) -> Result<(), BadRecord>;

    /// Writes all that earlier records built, so that the journal can be cut behind it.
    fn snapshot(&self, into: &mut alloc::vec::Vec<u8>);

    /// Takes what [`snapshot`](Self::snapshot) wrote, before any record behind it.
    ///
    /// # Errors
    /// As for [`restore`](Self::restore).
    fn restore_snapshot(&mut self, snapshot: &[u8]) -> Result<(), BadRecord>;
}

/// A journal holds what this version cannot read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRecord {
    /// What is wrong with it.
    pub reason: &'static str,
}

impl fmt::Display for BadRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the journal holds a record that this version cannot read: {}", self.reason)
    }
}

impl core::error::Error for BadRecord {}

/// What happens to a machine.
///
/// Exhaustive on purpose: a machine says what it does with each.
#[derive(Debug)]
#[allow(clippy::exhaustive_enums)]
pub enum Input<'a, C> {
    /// A connection stands: one was accepted, or a dial succeeded.
    Opened {
        /// Its id; for a dial the one that [`Outbox::dial`] gave.
        conn: ConnId,
        /// Which side opened it.
        by: Opener,
        /// The other end.
        peer: &'a Endpoint,
        /// Who the transport below proved the other end to be, where it did.
        identity: Option<&'a str>,
    },
    /// New bytes, at most [`Host::MAX_READ`](crate::host::Host::MAX_READ) at once; none, where the machine only has more to
    /// do. What it does not take now it [leaves](Outbox::leave).
    ///
    /// They are the driver's, for the one step: a machine copies what it keeps.
    ///
    /// ```compile_fail,E0521
    /// use relay_core::machine::Input;
    ///
    /// fn step(kept: &mut Vec<&'static [u8]>, input: Input<'_, ()>) {
    ///     if let Input::Bytes { data, .. } = input {
    ///         kept.push(data);
    ///     }
    /// }
    /// ```
    Bytes {
        /// The connection.
        conn: ConnId,
        /// The bytes that follow those of the last such input.
        data: &'a [u8],
    },
    /// The peer's half-close: what it asked before is still answered.
    Eof {
        /// The connection.
        conn: ConnId,
    },
    /// What was unsent when [`Outbox::pause`] was called fell below the low mark, and reading is on again.
    Drained {
        /// The connection.
        conn: ConnId,
    },
    /// The end of a connection, or of a dial: exactly once for every id ever given out.
    Closed {
        /// The connection; stale from here on.
        conn: ConnId,
        /// Why.
        why: CloseReason,
        /// Bytes that were queued and that the socket never took.
        unsent: usize,
    },
    /// Every record up to here is durable.
    Persisted {
        /// The newest durable record.
        upto: Seq,
    },
    /// The journal fails: nothing from here on is durable, writes are to be refused until [`Input::Resumed`].
    PersistFailed {
        /// The oldest record that is not durable.
        from: Seq,
    },
    /// The journal works again; every record up to here is durable.
    Resumed {
        /// The newest durable record.
        upto: Seq,
    },
    /// An action ended.
    Acted {
        /// The id that [`Outbox::act`] gave.
        id: ActId,
        /// How it ended.
        result: Acted,
    },
    /// Shut down: take no new work, end what is under way.
    Drain {
        /// When the host stops waiting.
        by: Mono,
    },
    /// The deadline may have come.
    Timer,
    /// The host's owner asks something; to be answered through [`Outbox::answer`] exactly once.
    Command {
        /// What the answer is addressed with.
        ticket: Ticket,
        /// The request.
        command: C,
    },
}

/// One of the driver's listeners: its place in the list that the driver was started with.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ListenerId(pub u16);

/// Which side opened a connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[allow(clippy::exhaustive_enums)]
pub enum Opener {
    /// The other end, through this listener.
    Accepted(ListenerId),
    /// This end, by [`Outbox::dial`].
    Dialled,
}

/// The other end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum Endpoint {
    /// A TCP peer.
    Tcp(SocketAddr),
    /// A process of this machine, as the kernel vouches for it.
    Unix {
        /// The user that the process runs as; `None` where the system does not say.
        uid: Option<u32>,
        /// The process; `None` where the system does not say.
        pid: Option<u32>,
    },
}

/// Where to dial, and through what.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Target {
    /// The address.
    pub address: Address,
    /// The transform between socket and machine.
    pub transport: Transport,
}

impl Target {
    /// A plain TCP connection to `address`.
    #[must_use]
    pub const fn tcp(address: SocketAddr) -> Self {
        Self { address: Address::Tcp(address), transport: Transport::Plain }
    }

    /// A plain connection to the unix socket at `path`.
    #[must_use]
    pub fn unix(path: &str) -> Self {
        Self { address: Address::Unix(path.into()), transport: Transport::Plain }
    }
}

/// An address that can be dialled. Names are resolved before they come here.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum Address {
    /// TCP.
    Tcp(SocketAddr),
    /// The path of a unix socket.
    Unix(Box<str>),
}

/// What a driver puts between a socket and the machine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Transport {
    /// Nothing.
    #[default]
    Plain,
}

/// Why a connection ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum CloseReason {
    /// The machine closed it.
    Asked,
    /// Both directions ended in order.
    Finished,
    /// The peer reset it.
    Reset,
    /// The network gave it up.
    TimedOut,
    /// The dial failed.
    DialFailed(DialError),
    /// More was queued for a peer than its hard cap.
    Overflow,
    /// It held answers to something that could not be made durable.
    NotDurable,
    /// The driver stopped.
    Stopped,
    /// The socket failed in another way.
    Failed,
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Asked => "closed here",
            Self::Finished => "closed by both ends",
            Self::Reset => "reset by the peer",
            Self::TimedOut => "the network gave the connection up",
            Self::DialFailed(error) => return error.fmt(f),
            Self::Overflow => "the peer does not read what it asked for",
            Self::NotDurable => "the journal failed, so what it held could not be acknowledged",
            Self::Stopped => "stopped here",
            Self::Failed => "the socket failed",
        })
    }
}

/// Why a dial failed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum DialError {
    /// Nobody listens there.
    Refused,
    /// There is no way there.
    Unreachable,
    /// No answer in time.
    TimedOut,
    /// This machine has no descriptor, port or slot left.
    Exhausted,
    /// There is no such socket, or this driver cannot dial it.
    NoSuchSocket,
    /// Not allowed here.
    Denied,
    /// Anything else.
    Failed,
}

impl fmt::Display for DialError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Refused => "connection refused: nobody listens there",
            Self::Unreachable => "no route there",
            Self::TimedOut => "no answer in time",
            Self::Exhausted => "this machine has no descriptor or port left",
            Self::NoSuchSocket => "no such socket",
            Self::Denied => "not permitted",
            Self::Failed => "the dial failed",
        })
    }
}

/// What an answer is addressed with.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ticket(pub(crate) u64);

impl Ticket {
    /// Counts from 1 in the order in which commands came.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }
}

/// Why a command has no answer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum Refused {
    /// The answer rested on a record that could not be made durable; the command may be repeated.
    NotDurable,
    /// The host stopped first.
    Stopped,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotDurable => "the journal failed; try again when it works",
            Self::Stopped => "stopped before there was an answer",
        })
    }
}

impl core::error::Error for Refused {}
