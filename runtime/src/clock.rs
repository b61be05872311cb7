//! The two clocks, read together.

use std::time::{SystemTime, UNIX_EPOCH};

use relay_core::time::{Mono, Now, Wall};
use rustix::time::{ClockId, clock_gettime};

/// Reads the monotonic clock that counts suspend, and the wall clock.
///
/// A laptop that slept must know that its leases ran on: where the system has a clock that counts suspend
/// (CLOCK_BOOTTIME on Linux and Android), it is that one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock;

impl Clock {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    const MONO: ClockId = ClockId::Boottime;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    const MONO: ClockId = ClockId::Monotonic;

    /// Both clocks now.
    #[must_use]
    pub fn now(self) -> Now {
        let mono = clock_gettime(Self::MONO);
        let seconds = u64::try_from(mono.tv_sec).unwrap_or(0);
        let nanos = u64::try_from(mono.tv_nsec).unwrap_or(0);
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
        Now {
            mono: Mono::from_nanos(seconds.saturating_mul(1_000_000_000).saturating_add(nanos)),
            wall: Wall::from_millis(u64::try_from(wall).unwrap_or(u64::MAX)),
        }
    }
}
