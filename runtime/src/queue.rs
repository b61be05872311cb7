//! A bounded queue from a driver's thread to another, which may block, poll or await.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

struct State<T> {
    items: VecDeque<T>,
    capacity: usize,
    dropped: u64,
    closed: bool,
    waker: Option<Waker>,
}

struct Shared<T> {
    state: Mutex<State<T>>,
    arrived: Condvar,
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // A reader that panicked left a whole queue behind: no operation is left half-done under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The sending end. Dropping it closes the queue.
pub(crate) struct Sender<T>(Arc<Shared<T>>);

/// What a host tells its owner, in order.
///
/// Bounded: an owner that does not read loses the newest, [`dropped`](Self::dropped) counts them, and no link stops
/// for it.
pub struct Events<T>(Arc<Shared<T>>);

/// Nothing was received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(clippy::exhaustive_enums)]
pub enum RecvError {
    /// Nothing came in time.
    Empty,
    /// The host has ended and all was read.
    Ended,
}

pub(crate) fn bounded<T>(capacity: usize) -> (Sender<T>, Events<T>) {
    let shared = Arc::new(Shared {
        state: Mutex::new(State { items: VecDeque::new(), capacity, dropped: 0, closed: false, waker: None }),
        arrived: Condvar::new(),
    });
    (Sender(Arc::clone(&shared)), Events(shared))
}

impl<T> Sender<T> {
    /// Queues an item, or counts it as dropped where there is no room.
    pub(crate) fn send(&self, item: T) {
        let waker = {
            let mut state = self.0.lock();
            if state.items.len() >= state.capacity {
                state.dropped += 1;
                return;
            }
            state.items.push_back(item);
            state.waker.take()
        };
        self.0.arrived.notify_one();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let waker = {
            let mut state = self.0.lock();
            state.closed = true;
            state.waker.take()
        };
        self.0.arrived.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T> Events<T> {
    /// Waits for the next; `None` when the host has ended and all was read.
    #[must_use]
    pub fn recv(&self) -> Option<T> {
        let mut state = self.0.lock();
        loop {
            if let Some(item) = state.items.pop_front() {
                return Some(item);
            }
            if state.closed {
                return None;
            }
            state = self.0.arrived.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits for the next, but no longer than `timeout`.
    ///
    /// # Errors
    /// [`RecvError::Empty`] when the time is over, [`RecvError::Ended`] when nothing will come any more.
    pub fn recv_timeout(&self, timeout: Duration) -> Result<T, RecvError> {
        // Past the end of time is as good as a hundred years.
        let now = Instant::now();
        let until = now.checked_add(timeout).unwrap_or(now + Duration::from_secs(100 * 365 * 24 * 3600));
        let mut state = self.0.lock();
        loop {
            if let Some(item) = state.items.pop_front() {
                return Ok(item);
            }
            if state.closed {
                return Err(RecvError::Ended);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(RecvError::Empty);
            }
            state = self.0.arrived.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The next, where it is here already.
    ///
    /// # Errors
    /// As for [`recv_timeout`](Self::recv_timeout).
    pub fn try_recv(&self) -> Result<T, RecvError> {
        self.recv_timeout(Duration::ZERO)
    }

    /// The next, for a task on any executor; `None` when the host has ended and all was read. One task may wait at a
    /// time.
    pub async fn next(&mut self) -> Option<T> {
        poll_fn(|context| self.poll_next(context)).await
    }

    /// As [`next`](Self::next), for a hand-written future.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<T>> {
        let mut state = self.0.lock();
        if let Some(item) = state.items.pop_front() {
            return Poll::Ready(Some(item));
        }
        if state.closed {
            return Poll::Ready(None);
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }

    /// How many were lost because nobody read.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.0.lock().dropped
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn a_full_queue_drops_and_counts_and_keeps_its_order() {
        let (sender, events) = bounded(2);
        for item in 0..5 {
            sender.send(item);
        }
        assert_eq!((events.try_recv(), events.try_recv(), events.dropped()), (Ok(0), Ok(1), 3));
        assert_eq!(events.try_recv(), Err(RecvError::Empty));
    }

    #[test]
    fn what_was_sent_before_the_end_is_read_before_the_end() {
        let (sender, events) = bounded(2);
        sender.send(1);
        drop(sender);
        assert_eq!((events.recv(), events.recv()), (Some(1), None));
        assert_eq!(events.try_recv(), Err(RecvError::Ended));
    }

    #[test]
    fn any_time_may_be_waited_for() {
        let (sender, events) = bounded(2);
        sender.send(1);
        drop(sender);
        assert_eq!(events.recv_timeout(Duration::MAX), Ok(1));
        assert_eq!(events.recv_timeout(Duration::MAX), Err(RecvError::Ended));
    }

    #[test]
    fn a_reader_that_waits_is_woken() {
        let (sender, events) = bounded(2);
        let reader = thread::spawn(move || events.recv());
        sender.send(7);
        assert_eq!(reader.join().unwrap(), Some(7));
    }
}
