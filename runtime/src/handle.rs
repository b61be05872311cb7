//! What other threads hold of a running machine.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::Duration;

use relay_core::machine::{Machine, Refused, Ticket};

use crate::inbox::{Ask, Full, Inbox};
use crate::queue::{Events, RecvError, bounded};

/// Commands in, answers out, from any thread. Clones speak to the same machine.
pub struct Handle<M: Machine> {
    inbox: Arc<Inbox<M>>,
    thread: Arc<Mutex<Option<JoinHandle<()>>>>,
}

/// A machine's answer, or why there is none.
pub type Reply<M> = Result<<M as Machine>::Answer, Refused>;

/// What a host and its machine hold, by name.
pub type Gauges = Vec<(&'static str, u64)>;

/// A command that was not taken, handed back.
#[derive(Debug)]
#[allow(clippy::exhaustive_enums)]
pub enum Rejected<C> {
    /// More commands wait than there is room for; try again later.
    Full(C),
    /// The machine has stopped.
    Stopped(C),
}

impl<C> fmt::Display for Rejected<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full(_) => "more commands wait than there is room for; try again later",
            Self::Stopped(_) => "the machine has stopped",
        })
    }
}

/// A call without an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum CallError {
    /// More commands wait than there is room for.
    Full,
    /// No answer in time. The command may still be carried out.
    TimedOut,
    /// The machine refused to answer, or has stopped.
    Refused(Refused),
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str("more commands wait than there is room for; try again later"),
            Self::TimedOut => f.write_str("no answer in time; it may still be carried out"),
            Self::Refused(refused) => refused.fmt(f),
        }
    }
}

impl std::error::Error for CallError {}

impl<C> From<Rejected<C>> for CallError {
    fn from(rejected: Rejected<C>) -> Self {
        match rejected {
            Rejected::Full(_) => Self::Full,
            Rejected::Stopped(_) => Self::Refused(Refused::Stopped),
        }
    }
}

impl<M: Machine> Clone for Handle<M> {
    fn clone(&self) -> Self {
        Self { inbox: Arc::clone(&self.inbox), thread: Arc::clone(&self.thread) }
    }
}

impl<M: Machine> fmt::Debug for Handle<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handle(..)")
    }
}

impl<M: Machine> Handle<M> {
    pub(crate) fn new(inbox: Arc<Inbox<M>>) -> Self {
        Self { inbox, thread: Arc::new(Mutex::new(None)) }
    }

    /// Lets [`join`](Self::join) wait for the thread that runs the loop.
    pub fn attach(&self, thread: JoinHandle<()>) {
        *self.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
    }

    /// Asks the machine something.
    ///
    /// # Errors
    /// The command is handed back where it was not taken.
    pub fn command(&self, command: M::Command) -> Result<Pending<Reply<M>>, Rejected<M::Command>> {
        let (sender, answer) = bounded(1);
        let ticket = Arc::<OnceLock<Ticket>>::default();
        match self.inbox.ask(Ask::Command(command, sender, Arc::clone(&ticket))) {
            Ok(()) => Ok(Pending { answer, ticket }),
            Err(Full::Full(Ask::Command(command, ..))) => Err(Rejected::Full(command)),
            Err(Full::Closed(Ask::Command(command, ..))) => Err(Rejected::Stopped(command)),
            Err(
                Full::Full(Ask::Drain(_) | Ask::Gauges(_)) | Full::Closed(Ask::Drain(_) | Ask::Gauges(_)),
            ) => {
                unreachable!("what is handed back is what was asked")
            }
        }
    }

    /// Asks the machine something and waits for the answer.
    ///
    /// # Errors
    /// There is no answer, or none in time.
    pub fn call(&self, command: M::Command, timeout: Duration) -> Result<M::Answer, CallError> {
        self.command(command)?.outcome(timeout)
    }

    /// What host and machine hold now; `None` where the machine has stopped or does not answer in time.
    #[must_use]
    pub fn gauges(&self, timeout: Duration) -> Option<Gauges> {
        let (sender, answer) = bounded(1);
        self.inbox.ask(Ask::Gauges(sender)).ok()?;
        answer.recv_timeout(timeout).ok()
    }

    /// Asks the machine to end what is under way and to stop, within `grace`.
    pub fn shutdown(&self, grace: Duration) {
        let _ = self.inbox.ask(Ask::Drain(grace));
    }

    /// Waits until the loop has ended. True where it ended in order.
    #[must_use]
    pub fn join(&self) -> bool {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        thread.is_none_or(|thread| thread.join().is_ok())
    }
}

/// An answer that is on its way: to be waited for, or awaited on any executor.
#[must_use = "an answer that nobody waits for is lost"]
pub struct Pending<T> {
    answer: Events<T>,
    ticket: Arc<OnceLock<Ticket>>,
}

impl<T> Pending<T> {
    /// Waits for it, but no longer than `timeout`.
    ///
    /// # Errors
    /// [`RecvError::Empty`] when the time is over; [`RecvError::Ended`] when the machine stopped first.
    pub fn wait_timeout(&self, timeout: Duration) -> Result<T, RecvError> {
        self.answer.recv_timeout(timeout)
    }

    /// What the machine knows the command by, once it has been given it: for a machine with a command that takes
    /// another back.
    #[must_use]
    pub fn ticket(&self) -> Option<Ticket> {
        self.ticket.get().copied()
    }

    /// Waits for it; `None` when the machine stopped first.
    #[must_use]
    pub fn wait(&self) -> Option<T> {
        self.answer.recv()
    }
}

impl<A> Pending<Result<A, Refused>> {
    /// Waits for the answer, but no longer than `timeout`, and may be asked again after [`CallError::TimedOut`].
    ///
    /// # Errors
    /// There is no answer, or none in time.
    pub fn outcome(&self, timeout: Duration) -> Result<A, CallError> {
        match self.wait_timeout(timeout) {
            Ok(answer) => answer.map_err(CallError::Refused),
            Err(RecvError::Empty) => Err(CallError::TimedOut),
            Err(RecvError::Ended) => Err(CallError::Refused(Refused::Stopped)),
        }
    }
}

impl<T> Future for Pending<T> {
    type Output = Option<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        self.answer.poll_next(context)
    }
}
