//! Leases with real sockets, a real disk and kill -9; and what only a storm of ends or a stepped clock shows.
#![allow(clippy::unwrap_used, clippy::unwrap_in_result, reason = "a scenario that fails panics")]

mod clock;
mod equal;
mod history;
mod kill;
mod race;
mod scene;
mod storm;
mod wired;

/// The same throws in every run.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `bound`.
    pub(crate) const fn below(&mut self, bound: u64) -> u64 {
        // The finaliser of a multiplicative generator: every bit of the state reaches the low ones.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % bound
    }
}
