//! Keyed randomness: a draw is a function of the seed and of what it is for, never of the draws before it.

use core::ops::RangeInclusive;
use core::time::Duration;

/// What a draw is for. Two domains share no draw.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Domain {
    /// How long bytes are under way: by pipe and place in the stream.
    Latency,
    /// Where bytes are cut: by pipe and place in the stream.
    Split,
    /// How long a sync takes: by node and batch.
    Sync,
    /// How long an action takes: by node and action.
    Act,
    /// What of the unsynced a crash or a failure keeps: by node and count.
    Survive,
    /// Seeds of machines: by node and boot.
    Entropy,
    /// What a test decides by itself.
    Workload,
}

impl Domain {
    const fn number(self) -> u64 {
        match self {
            Self::Latency => 1,
            Self::Split => 2,
            Self::Sync => 3,
            Self::Act => 4,
            Self::Survive => 5,
            Self::Entropy => 6,
            Self::Workload => 7,
        }
    }
}

/// The draws of one seed.
#[derive(Clone, Copy, Debug)]
pub struct Draws {
    seed: u64,
}

impl Draws {
    /// All draws of a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { seed }
    }

    /// The draw number `counter` of an entity, uniform over all of `u64`.
    #[must_use]
    pub const fn draw(self, domain: Domain, entity: u64, counter: u64) -> u64 {
        key(key(key(self.seed, domain.number()), entity), counter)
    }

    /// A draw below `bound`; zero where that is zero.
    #[must_use]
    pub const fn below(self, domain: Domain, entity: u64, counter: u64, bound: u64) -> u64 {
        ((self.draw(domain, entity, counter) as u128 * bound as u128) >> 64) as u64
    }

    /// A draw from a range of spans, both ends included.
    #[must_use]
    pub fn span(
        self,
        domain: Domain,
        entity: u64,
        counter: u64,
        range: &RangeInclusive<Duration>,
    ) -> Duration {
        let least = range.start().as_nanos() as u64;
        let width = (range.end().as_nanos() as u64).saturating_sub(least);
        Duration::from_nanos(least + self.below(domain, entity, counter, width.saturating_add(1)))
    }

    /// A seed for a machine's own randomness: another one for each node and boot.
    #[must_use]
    pub fn entropy(self, node: u32, boot: u32) -> [u8; 32] {
        let mut seed = [0; 32];
        for (word, bytes) in (0..).zip(seed.chunks_exact_mut(8)) {
            let drawn = self.draw(Domain::Entropy, u64::from(node), u64::from(boot) << 8 | word);
            bytes.copy_from_slice(&drawn.to_le_bytes());
        }
        seed
    }
}

/// Makes one key of two.
pub(crate) const fn key(one: u64, two: u64) -> u64 {
    // The odd constant keeps a pair of zeroes from being a fixed point.
    mix64(one.rotate_left(32) ^ mix64(two.wrapping_add(0x9e37_79b9_7f4a_7c15)))
}

/// The finaliser of SplitMix64: a bijection in which each input bit changes half of the output.
pub(crate) const fn mix64(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_finaliser_is_that_of_splitmix64() {
        // The first outputs of a SplitMix64 generator with seed 0: the finaliser of each multiple of its increment.
        let gamma = 0x9e37_79b9_7f4a_7c15_u64;
        assert_eq!(mix64(gamma), 0xe220_a839_7b1d_cdaf);
        assert_eq!(mix64(gamma.wrapping_mul(2)), 0x6e78_9e6a_a1b9_65f4);
        assert_eq!(mix64(gamma.wrapping_mul(3)), 0x06c4_5d18_8009_454f);
    }

    #[test]
    fn draws_are_frozen() {
        // A changed draw would change what every recorded seed stands for.
        assert_eq!(Draws::new(0).draw(Domain::Latency, 0, 0), 0x6f6b_4a5f_f937_cb8b);
        assert_eq!(Draws::new(7).draw(Domain::Split, 3, 4), 0x3149_34c3_2972_ddba);
        assert_eq!(Draws::new(u64::MAX).draw(Domain::Workload, u64::MAX, u64::MAX), 0xf646_a91c_06f5_8d2f);
    }

    #[test]
    fn a_bounded_draw_reaches_both_ends_and_no_further() {
        let draws = Draws::new(7);
        let drawn: Vec<_> = (0..1000).map(|n| draws.below(Domain::Workload, 0, n, 3)).collect();
        assert!((0..3).all(|value| drawn.contains(&value)) && drawn.iter().all(|value| *value < 3));
        let range = Duration::from_nanos(5)..=Duration::from_nanos(5);
        assert_eq!(draws.span(Domain::Workload, 0, 0, &range), Duration::from_nanos(5));
    }

    #[test]
    fn no_two_keys_share_a_draw() {
        let draws = Draws::new(1);
        let mut all: Vec<_> =
            (0..50).flat_map(|e| (0..50).map(move |n| draws.draw(Domain::Latency, e, n))).collect();
        all.push(draws.draw(Domain::Split, 0, 0));
        all.push(Draws::new(2).draw(Domain::Latency, 0, 0));
        all.sort_unstable();
        let many = all.len();
        all.dedup();
        assert_eq!(all.len(), many);
    }
}
