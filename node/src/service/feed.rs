//! What a node tells, handed to everybody who listens.

use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use super::line::Line;

/// Lines that may wait for one listener; the newest are lost to one that does not read.
const WAITING: usize = 4096;

/// Hands each line to every listener. None of them can hold up another, nor the node.
#[derive(Clone, Debug, Default)]
pub struct Feed {
    listeners: Arc<Mutex<Option<Listeners>>>,
}

type Listeners = Vec<SyncSender<Arc<Line>>>;

impl Feed {
    /// A feed that nobody listens to yet.
    #[must_use]
    pub fn new() -> Self {
        Self { listeners: Arc::new(Mutex::new(Some(Vec::new()))) }
    }

    /// Everything from now on, until the node ends.
    #[must_use]
    pub fn listen(&self) -> Receiver<Arc<Line>> {
        let (sender, receiver) = sync_channel(WAITING);
        if let Some(listeners) = &mut *self.listeners.lock().unwrap_or_else(PoisonError::into_inner) {
            listeners.push(sender);
        }
        receiver
    }

    /// Tells everybody.
    pub fn tell(&self, line: Line) {
        let line = Arc::new(line);
        if let Some(listeners) = &mut *self.listeners.lock().unwrap_or_else(PoisonError::into_inner) {
            listeners.retain(|listener| match listener.try_send(Arc::clone(&line)) {
                Ok(()) | Err(TrySendError::Full(_)) => true,
                Err(TrySendError::Disconnected(_)) => false,
            });
        }
    }

    /// Nothing will come any more.
    pub fn end(&self) {
        *self.listeners.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::line::What;

    fn line(n: usize) -> Line {
        Line { ts: String::new(), what: What::Stopped { reason: n.to_string() } }
    }

    #[test]
    fn one_that_does_not_read_loses_the_newest_and_holds_nobody_up() {
        let feed = Feed::new();
        let (slow, quick) = (feed.listen(), feed.listen());
        drop(feed.listen());
        for n in 0..WAITING + 10 {
            feed.tell(line(n));
            assert_eq!(*quick.recv().unwrap(), line(n));
        }
        feed.end();
        assert_eq!(slow.iter().count(), WAITING);
        assert!(quick.recv().is_err() && feed.listen().recv().is_err());
    }
}
