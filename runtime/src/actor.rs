//! The thread that carries actions out.

use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};

use relay_core::action::{ActError, ActId, Acted, Action};
use relay_core::machine::Machine;

use crate::inbox::{Inbox, Mail};

/// Carries actions out, one after the other, on a thread where it may block. One that panics has failed, and the next
/// follows.
pub trait Actor: Send + 'static {
    /// Does it, and says how it ended.
    fn act(&mut self, action: Action) -> Acted;
}

/// Carries nothing out: for a machine that asks for nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoActions;

impl Actor for NoActions {
    fn act(&mut self, _action: Action) -> Acted {
        Err(ActError::Unsupported)
    }
}

/// Starts its thread with the first action, so that a machine without actions costs none.
pub(crate) struct ActorThread<M: Machine + 'static> {
    actor: Option<Box<dyn Actor>>,
    work: Option<Sender<(ActId, Action)>>,
    thread: Option<JoinHandle<()>>,
    inbox: Arc<Inbox<M>>,
}

impl<M: Machine + 'static> ActorThread<M> {
    pub(crate) fn new(actor: Box<dyn Actor>, inbox: Arc<Inbox<M>>) -> Self {
        Self { actor: Some(actor), work: None, thread: None, inbox }
    }

    pub(crate) fn act(&mut self, id: ActId, action: Action) {
        if let Some(mut actor) = self.actor.take() {
            let (sender, work) = mpsc::channel::<(ActId, Action)>();
            let inbox = Arc::clone(&self.inbox);
            let started = thread::Builder::new().name("relay-actions".into()).spawn(move || {
                for (id, action) in work {
                    // The machine waits for an end of each action, so that one which panics has failed.
                    let acted = panic::catch_unwind(AssertUnwindSafe(|| actor.act(action)));
                    inbox.post(Mail::Acted(id, acted.unwrap_or(Err(ActError::Failed))));
                }
            });
            if let Ok(thread) = started {
                self.work = Some(sender);
                self.thread = Some(thread);
            }
        }
        let taken = self.work.as_ref().is_some_and(|work| work.send((id, action)).is_ok());
        if !taken {
            self.inbox.post(Mail::Acted(id, Err(ActError::Failed)));
        }
    }
}

impl<M: Machine + 'static> Drop for ActorThread<M> {
    /// Waits until all that was begun is done: what the machine has already answered for must not be cut off.
    fn drop(&mut self) {
        self.work = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
