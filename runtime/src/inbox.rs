//! What other threads tell a driver.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use relay_core::action::{ActId, Acted};
use relay_core::journal::{Records, Seq};
use relay_core::machine::{Machine, Ticket};

use crate::handle::{Gauges, Reply};
use crate::queue::Sender;

/// Ends a driver's sleep, from any thread. Waking a driver that does not sleep does no harm.
pub trait Wake: Send + Sync + 'static {
    /// Ends the sleep, or the next one where none is under way.
    fn wake(&self);
}

/// What a driver's own threads say. There is always room: each answers something that the driver asked.
pub(crate) enum Mail {
    Persisted(Seq, Records),
    PersistFailed,
    Resumed(Seq),
    Acted(ActId, Acted),
}

/// What the owner says.
pub(crate) enum Ask<M: Machine> {
    /// The ticket is noted where who asked can see it.
    Command(M::Command, Sender<Reply<M>>, Arc<OnceLock<Ticket>>),
    Drain(Duration),
    Gauges(Sender<Gauges>),
}

impl<M: Machine> Ask<M> {
    const fn is_command(&self) -> bool {
        matches!(self, Self::Command(..))
    }
}

struct State<M: Machine> {
    mail: VecDeque<Mail>,
    asks: VecDeque<Ask<M>>,
    capacity: usize,
    closed: bool,
}

pub(crate) struct Inbox<M: Machine> {
    state: Mutex<State<M>>,
    sleeping: AtomicBool,
    wake: Box<dyn Wake>,
}

/// Why the owner's word was not taken.
pub(crate) enum Full<T> {
    Full(T),
    Closed(T),
}

impl<M: Machine> Inbox<M> {
    pub(crate) fn new(capacity: usize, wake: impl Wake) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                mail: VecDeque::new(),
                asks: VecDeque::new(),
                capacity,
                closed: false,
            }),
            sleeping: AtomicBool::new(false),
            wake: Box::new(wake),
        })
    }

    pub(crate) fn post(&self, mail: Mail) {
        self.lock().mail.push_back(mail);
        self.wake_sleeper();
    }

    /// Takes the owner's word where there is room; a shutdown always has room.
    pub(crate) fn ask(&self, ask: Ask<M>) -> Result<(), Full<Ask<M>>> {
        {
            let mut state = self.lock();
            if state.closed {
                return Err(Full::Closed(ask));
            }
            if state.asks.len() >= state.capacity && !matches!(ask, Ask::Drain(_)) {
                return Err(Full::Full(ask));
            }
            state.asks.push_back(ask);
        }
        self.wake_sleeper();
        Ok(())
    }

    /// Takes all mail, and the owner's words in order. Without `commands` those wait; a shutdown, and a look at what is
    /// held, never do: they are what an owner needs when nothing moves.
    pub(crate) fn take(&self, commands: bool) -> (VecDeque<Mail>, VecDeque<Ask<M>>) {
        let mut state = self.lock();
        let mail = std::mem::take(&mut state.mail);
        let mut asks = std::mem::take(&mut state.asks);
        if !commands {
            (state.asks, asks) = asks.into_iter().partition(Ask::is_command);
        }
        (mail, asks)
    }

    /// Takes nothing more from the owner; what it said and was not taken is dropped.
    pub(crate) fn close(&self) -> VecDeque<Ask<M>> {
        let mut state = self.lock();
        state.closed = true;
        std::mem::take(&mut state.asks)
    }

    /// The driver is about to sleep; false where something came, so that it must not.
    pub(crate) fn sleep(&self, commands: bool) -> bool {
        self.sleeping.store(true, Ordering::SeqCst);
        let state = self.lock();
        let waits = |ask: &Ask<M>| !commands && ask.is_command();
        if state.mail.is_empty() && state.asks.iter().all(waits) {
            return true;
        }
        drop(state);
        self.sleeping.store(false, Ordering::SeqCst);
        false
    }

    pub(crate) fn woke(&self) {
        self.sleeping.store(false, Ordering::SeqCst);
    }

    fn wake_sleeper(&self) {
        // Waking costs a system call, so only a driver that sleeps is woken, and once.
        if self.sleeping.swap(false, Ordering::SeqCst) {
            self.wake.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<M>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use relay_core::machine::Input;
    use relay_core::outbox::Outbox;
    use relay_core::time::{Mono, Now};

    use super::*;
    use crate::queue::bounded;

    struct Idle;

    impl Machine for Idle {
        type Command = ();
        type Answer = ();
        type Event = ();

        fn step(&mut self, _now: Now, _input: Input<'_, ()>, _out: &mut Outbox<(), ()>) {}

        fn deadline(&self) -> Option<Mono> {
            None
        }
    }

    struct Nobody;

    impl Wake for Nobody {
        fn wake(&self) {}
    }

    #[test]
    fn a_shutdown_passes_commands_that_have_to_wait() {
        let inbox = Inbox::<Idle>::new(1, Nobody);
        assert!(inbox.ask(Ask::Command((), bounded(1).0, Arc::default())).is_ok());
        assert!(inbox.sleep(false), "a command that has to wait keeps nobody awake");
        assert!(inbox.ask(Ask::Drain(Duration::ZERO)).is_ok());
        assert!(!inbox.sleep(false));
        assert!(matches!(Vec::from(inbox.take(false).1)[..], [Ask::Drain(_)]));
        assert!(inbox.sleep(false));
        assert!(!inbox.sleep(true));
        assert!(matches!(Vec::from(inbox.take(true).1)[..], [Ask::Command(..)]));
    }

    #[test]
    fn a_shutdown_follows_the_commands_before_it() {
        let inbox = Inbox::<Idle>::new(2, Nobody);
        assert!(inbox.ask(Ask::Command((), bounded(1).0, Arc::default())).is_ok());
        assert!(inbox.ask(Ask::Drain(Duration::ZERO)).is_ok());
        assert!(matches!(Vec::from(inbox.take(true).1)[..], [Ask::Command(..), Ask::Drain(_)]));
    }
}
