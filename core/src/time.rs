//! Time as input: two clocks that never meet.

use core::fmt;
use core::time::Duration;

/// An instant of the monotonic clock, in nanoseconds since an origin that the driver chose.
///
/// It counts while the machine is suspended (CLOCK_BOOTTIME) and decides every interval, deadline and lease.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Mono(u64);

impl Mono {
    /// The origin.
    pub const ZERO: Self = Self(0);

    /// An instant `nanos` nanoseconds behind the origin.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the origin.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The instant `span` later; the last instant there is where that would overflow.
    #[must_use]
    pub const fn after(self, span: Duration) -> Self {
        let nanos = span.as_nanos();
        if nanos > (u64::MAX - self.0) as u128 { Self(u64::MAX) } else { Self(self.0 + nanos as u64) }
    }

    /// How long after `earlier` this is; zero where it is not.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Debug for Mono {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}s", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}

/// Wall time in milliseconds since the Unix epoch: shown, sent and persisted, never compared with a deadline.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Wall(u64);

impl Wall {
    /// `millis` milliseconds since the epoch.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the epoch.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0
    }
}

/// Both clocks, read together at the start of a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Now {
    /// The clock that decides.
    pub mono: Mono,
    /// The clock that is shown.
    pub wall: Wall,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_past_the_end_of_time_is_the_end_of_time() {
        assert_eq!(Mono::from_nanos(5).after(Duration::MAX), Mono::from_nanos(u64::MAX));
        assert_eq!(Mono::from_nanos(u64::MAX).after(Duration::from_nanos(1)), Mono::from_nanos(u64::MAX));
        assert_eq!(Mono::from_nanos(5).after(Duration::from_nanos(2)), Mono::from_nanos(7));
    }

    #[test]
    fn the_span_to_a_later_instant_is_zero() {
        assert_eq!(Mono::from_nanos(5).since(Mono::from_nanos(9)), Duration::ZERO);
        assert_eq!(Mono::from_nanos(9).since(Mono::from_nanos(5)), Duration::from_nanos(4));
    }
}
