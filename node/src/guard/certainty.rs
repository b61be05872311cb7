//! Until when a lease is held for certain: the claim is repeated, and each answer says so anew.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use relay_core::time::Mono;
use relay_runtime::Clock;

use super::{Event, Grant, Keeper};

/// The longest and the shortest time between an answer and the next claim.
const PACE: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(5)];
/// How long an answer on its way is waited for at the end, so that none comes behind the release.
const LAST_ANSWER: Duration = Duration::from_secs(2);

/// Claims again and again until it is dropped.
#[derive(Debug)]
pub(super) struct Repeated {
    stop: Option<Sender<()>>,
    stopped: Receiver<()>,
}

impl Repeated {
    pub(super) fn start(
        keeper: Arc<dyn Keeper>,
        grant: &Grant,
        told: Sender<Event>,
    ) -> std::io::Result<Self> {
        let (stop, asked_to_stop) = channel::<()>();
        let (ended, stopped) = channel::<()>();
        let mut certain_until = grant.certain_until;
        let run = move || {
            let _ended = ended;
            while asked_to_stop.recv_timeout(pace(certain_until)) == Err(RecvTimeoutError::Timeout) {
                let said = keeper.claim(None);
                if let Ok(grant) = &said {
                    certain_until = grant.certain_until;
                }
                if told.send(Event::Said(said)).is_err() {
                    return;
                }
            }
        };
        thread::Builder::new().name("relay-certainty".into()).spawn(run)?;
        Ok(Self { stop: Some(stop), stopped })
    }
}

impl Drop for Repeated {
    fn drop(&mut self) {
        drop(self.stop.take());
        let _ = self.stopped.recv_timeout(LAST_ANSWER);
    }
}

/// A third of what is certain.
fn pace(certain_until: Mono) -> Duration {
    let [shortest, longest] = PACE;
    (certain_until.since(Clock.now().mono) / 3).clamp(shortest, longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_repeated_after_a_third_of_what_is_certain_and_within_5_s() {
        let now = Clock.now().mono;
        assert_eq!(pace(now.after(Duration::from_secs(60))), Duration::from_secs(5));
        assert_eq!(pace(now), Duration::from_millis(100));
        let third = pace(now.after(Duration::from_secs(6)));
        assert!(third <= Duration::from_secs(2) && third > Duration::from_secs(1), "{third:?}");
    }
}
