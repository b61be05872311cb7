//! When a silent link counts as dead.

use core::time::Duration;

use crate::time::Mono;

/// Hears a peer's heartbeats and knows when its silence means death: after [`Life::MISSED`] intervals, the larger of
/// our own and the peer's.
///
/// The peer's interval is what its heartbeats show; until two gaps were seen it is taken to be
/// [`Life::UNTIL_SEEN`], since the existing peer beats at that pace on links that it dialled, whatever it is told.
/// Any complete frame is a sign of life; while we do not read, silence says nothing.
#[derive(Clone, Copy, Debug)]
pub struct Life {
    heard: Mono,
    /// When the newest heartbeat came, once there was one.
    last_beat: Mono,
    /// The newest two gaps between heartbeats, in milliseconds; 0 for one that there was not.
    gaps: [u32; 2],
    beaten: bool,
    deaf: bool,
}

impl Life {
    /// Missed intervals that mean death.
    pub const MISSED: u32 = 3;
    /// A peer's interval until its own was seen.
    pub const UNTIL_SEEN: Duration = Duration::from_secs(30);
    /// The longest interval that a peer is granted.
    pub const LONGEST: Duration = Duration::from_secs(300);

    /// A link that was just established.
    #[must_use]
    pub const fn new(now: Mono) -> Self {
        Self { heard: now, last_beat: Mono::ZERO, gaps: [0; 2], beaten: false, deaf: false }
    }

    /// A complete frame came.
    pub const fn frame(&mut self, now: Mono) {
        self.heard = now;
    }

    /// A heartbeat came.
    pub fn beat(&mut self, now: Mono) {
        if self.beaten {
            let gap = u32::try_from(now.since(self.last_beat).as_millis()).unwrap_or(u32::MAX);
            self.gaps = [self.gaps[1], gap.max(1)];
        }
        self.beaten = true;
        self.last_beat = now;
        self.heard = now;
    }

    /// We stopped reading, or read again.
    pub const fn reading(&mut self, on: bool, now: Mono) {
        self.deaf = !on;
        self.heard = now;
    }

    /// Whether we read.
    #[must_use]
    pub const fn is_read(&self) -> bool {
        !self.deaf
    }

    /// When the link is dead unless something is heard; `None` while we do not read.
    #[must_use]
    pub fn deadline(&self, own_interval: Duration) -> Option<Mono> {
        (!self.deaf).then(|| self.heard.after(self.interval(own_interval) * Self::MISSED))
    }

    /// The interval that counts.
    #[must_use]
    pub fn interval(&self, own: Duration) -> Duration {
        let theirs = match self.gaps {
            [0, _] | [_, 0] => Self::UNTIL_SEEN,
            [one, two] => Duration::from_millis(u64::from(one.max(two))),
        };
        own.max(theirs).min(Self::LONGEST.max(own))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: Duration = Duration::from_secs(5);

    fn at(secs: u64) -> Mono {
        Mono::ZERO.after(Duration::from_secs(secs))
    }

    #[test]
    fn a_peer_is_taken_to_beat_every_30_s_until_two_gaps_were_seen() {
        let mut life = Life::new(at(0));
        assert_eq!(life.deadline(OWN), Some(at(90)));
        life.beat(at(5));
        life.beat(at(10));
        assert_eq!(life.deadline(OWN), Some(at(100)));
        life.beat(at(15));
        assert_eq!(life.deadline(OWN), Some(at(30)));
    }

    #[test]
    fn the_larger_of_both_intervals_counts() {
        let mut life = Life::new(at(0));
        for beat in [2, 4, 6] {
            life.beat(at(beat));
        }
        assert_eq!(life.deadline(OWN), Some(at(21)));
        assert_eq!(life.deadline(Duration::from_secs(1)), Some(at(12)));
    }

    #[test]
    fn any_frame_is_a_sign_of_life_and_no_heartbeat() {
        let mut life = Life::new(at(0));
        life.frame(at(80));
        life.frame(at(81));
        life.frame(at(82));
        assert_eq!(life.deadline(OWN), Some(at(172)));
    }

    #[test]
    fn silence_says_nothing_while_we_do_not_read() {
        let mut life = Life::new(at(0));
        life.reading(false, at(10));
        assert_eq!(life.deadline(OWN), None);
        life.reading(true, at(500));
        assert_eq!(life.deadline(OWN), Some(at(590)));
    }

    #[test]
    fn a_peer_cannot_make_its_interval_endless() {
        let mut life = Life::new(at(0));
        for beat in [0, 100_000, 200_000] {
            life.beat(at(beat));
        }
        assert_eq!(life.interval(OWN), Life::LONGEST);
    }
}
