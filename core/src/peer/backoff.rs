//! When a peer is dialled again.

use core::time::Duration;

/// How often dialling a peer failed in a row, and how long to wait before the next try.
///
/// The wait doubles from [`FIRST`](Self::FIRST) to [`LONGEST`](Self::LONGEST), less up to a tenth that the caller's
/// randomness takes off, so that the peers of a relay that restarts do not come back in step.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Backoff {
    failures: u8,
}

impl Backoff {
    /// The wait after a link that lived was lost.
    pub const FIRST: Duration = Duration::from_secs(1);
    /// The longest wait.
    pub const LONGEST: Duration = Duration::from_secs(60);
    /// The shortest wait for each proof that was refused in a try: five in a minute would lock this address out over
    /// there.
    pub const AFTER_DENIAL: Duration = Duration::from_secs(30);
    /// How long a link must have lived for the waits to start over: one that ends at once is a failure too.
    pub const SETTLED: Duration = Duration::from_secs(10);

    /// Nothing has failed.
    #[must_use]
    pub const fn new() -> Self {
        Self { failures: 0 }
    }

    /// The wait before the next try, which is taken to be one more failure until [`reset`](Self::reset).
    ///
    /// `denials` counts the proofs that this try had refused; `noise` is any uniformly random number.
    pub fn next(&mut self, denials: u8, noise: u64) -> Duration {
        let wait = Self::FIRST.saturating_mul(1 << self.failures.min(6)).min(Self::LONGEST);
        let wait = wait.max(Self::AFTER_DENIAL * u32::from(denials));
        self.failures = self.failures.saturating_add(1);
        wait - jitter(wait, noise)
    }

    /// A link lived.
    pub const fn reset(&mut self) {
        self.failures = 0;
    }
}

/// Up to a tenth of `wait`.
fn jitter(wait: Duration, noise: u64) -> Duration {
    let tenth = wait.as_nanos() as u64 / 10;
    Duration::from_nanos(noise % tenth.max(1))
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn waits_double_up_to_a_minute_and_start_over_after_a_link_that_lived() {
        let mut backoff = Backoff::new();
        let waits: Vec<_> = (0..9).map(|_| backoff.next(0, 0).as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        backoff.reset();
        assert_eq!(backoff.next(0, 0).as_secs(), 1);
    }

    #[test]
    fn jitter_takes_at_most_a_tenth() {
        for noise in [0, 1, u64::MAX, 99_999_999, 100_000_000] {
            let wait = Backoff::new().next(0, noise);
            assert!(wait <= Backoff::FIRST && wait > Backoff::FIRST - Backoff::FIRST / 10, "{wait:?}");
        }
    }

    #[test]
    fn refusals_never_add_up_to_a_lock_out() {
        for denials in 1..=4_u8 {
            let mut backoff = Backoff::new();
            // The fewest waits that lie between the first of five refusals and the last, less the most of jitter.
            let span: Duration = (0..4 / denials).map(|_| backoff.next(denials, 0) * 9 / 10).sum();
            assert!(span > Duration::from_secs(60), "{denials} at a time: five within {span:?}");
        }
    }
}
