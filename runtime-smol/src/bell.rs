//! Wakes the pump.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use relay_runtime::Wake;

/// Rung by tasks that told the host something, and by other threads; heard by the pump alone.
///
/// Ringing it again before the pump has heard costs one atomic swap, so a batch of reads wakes the pump once.
#[derive(Clone, Default)]
pub(crate) struct Bell(Arc<Inner>);

#[derive(Default)]
struct Inner {
    rung: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Bell {
    pub(crate) fn ring(&self) {
        if self.0.rung.swap(true, Ordering::SeqCst) {
            return;
        }
        let waker = self.waker().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Ready once for all that rang since the last time.
    pub(crate) fn poll_rung(&self, context: &mut Context<'_>) -> Poll<()> {
        if self.0.rung.swap(false, Ordering::SeqCst) {
            return Poll::Ready(());
        }
        self.waker().replace(context.waker().clone());
        // Who rang before the waker stood there woke nobody.
        if self.0.rung.swap(false, Ordering::SeqCst) { Poll::Ready(()) } else { Poll::Pending }
    }

    fn waker(&self) -> MutexGuard<'_, Option<Waker>> {
        self.0.waker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for Bell {
    fn wake(&self) {
        self.ring();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_rings_are_heard_once() {
        let bell = Bell::default();
        let mut context = Context::from_waker(Waker::noop());
        assert!(bell.poll_rung(&mut context).is_pending());
        bell.ring();
        bell.ring();
        assert!(bell.poll_rung(&mut context).is_ready());
        assert!(bell.poll_rung(&mut context).is_pending());
    }
}
