//! What the owner is told of handshakes that fail: a few of each address, then how many there were beside them.

use alloc::collections::{BTreeMap, BTreeSet};
use core::net::IpAddr;
use core::time::Duration;

use super::admission::Origin;
use crate::time::Mono;

/// Bounds how often strangers have a line said of them: whoever can connect could fill a log otherwise.
#[derive(Debug, Default)]
pub struct Refusals {
    windows: BTreeMap<Origin, Window>,
    /// The same, the oldest first.
    by_age: BTreeSet<(Mono, Origin)>,
}

#[derive(Debug)]
struct Window {
    since: Mono,
    told: u8,
    left_out: u32,
}

/// Handshakes of one address that the owner was told nothing of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeftOut {
    /// The address, or the network of an IPv6 one; `None` for unix sockets.
    pub from: Option<IpAddr>,
    /// How many.
    pub count: u32,
}

impl Refusals {
    /// Failures of one address that are told one by one within [`WINDOW`](Self::WINDOW).
    pub const TOLD: u8 = 5;
    /// Counted from the first failure; how many were left out is told at its end.
    pub const WINDOW: Duration = Duration::from_secs(10);
    /// Addresses that are counted at once; the oldest window ends early to make room.
    pub const REMEMBERED: usize = 1024;

    /// A handshake failed: whether to tell of it, and what a window had left out that ended early.
    pub fn failed(&mut self, origin: Origin, now: Mono) -> (bool, Option<LeftOut>) {
        let mut ended = None;
        if self.windows.len() >= Self::REMEMBERED && !self.windows.contains_key(&origin) {
            ended = self.end_oldest();
        }
        let by_age = &mut self.by_age;
        let window = self.windows.entry(origin).or_insert_with(|| {
            by_age.insert((now, origin));
            Window { since: now, told: 0, left_out: 0 }
        });
        let tell = window.told < Self::TOLD;
        if tell {
            window.told += 1;
        } else {
            window.left_out = window.left_out.saturating_add(1);
        }
        (tell, ended)
    }

    /// When the next window ends.
    #[must_use]
    pub fn deadline(&self) -> Option<Mono> {
        self.by_age.first().map(|(since, _)| since.after(Self::WINDOW))
    }

    /// Ends the oldest window; `None` too where it left nothing out.
    pub fn end_oldest(&mut self) -> Option<LeftOut> {
        let (since, origin) = self.by_age.pop_first()?;
        let window = self.windows.remove(&origin)?;
        debug_assert_eq!(window.since, since, "both hold the same windows");
        let from = match origin {
            Origin::Address(ip) => Some(ip),
            Origin::Local => None,
        };
        (window.left_out > 0).then_some(LeftOut { from, count: window.left_out })
    }

    /// Whether no window is open.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.windows.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::machine::Endpoint;

    fn origin(n: u32) -> Origin {
        Origin::of(&Endpoint::Tcp((n.to_be_bytes(), 1).into()))
    }

    fn at(secs: u64) -> Mono {
        Mono::ZERO.after(Duration::from_secs(secs))
    }

    #[test]
    fn five_of_an_address_are_told_and_the_rest_is_counted() {
        let mut refusals = Refusals::default();
        let told: Vec<_> = (0..12).map(|n| refusals.failed(origin(1), at(n / 2)).0).collect();
        assert_eq!(told.iter().filter(|told| **told).count(), 5);
        assert!(told[..5].iter().all(|told| *told));
        assert_eq!(refusals.failed(origin(2), at(3)), (true, None), "each address has its own");
        assert_eq!(refusals.deadline(), Some(at(10)));
        let from = Some(IpAddr::from([0, 0, 0, 1]));
        assert_eq!(refusals.end_oldest(), Some(LeftOut { from, count: 7 }));
        assert_eq!(refusals.deadline(), Some(at(13)));
        assert_eq!((refusals.end_oldest(), refusals.deadline()), (None, None));
        assert!(refusals.failed(origin(1), at(14)).0);
    }

    #[test]
    fn a_bounded_number_of_addresses_is_counted_and_nothing_is_lost() {
        let mut refusals = Refusals::default();
        for _ in 0..7 {
            refusals.failed(origin(0), at(0));
        }
        let ended = (1..=Refusals::REMEMBERED as u32).filter_map(|n| refusals.failed(origin(n), at(1)).1);
        assert_eq!(ended.map(|ended| ended.count).collect::<Vec<_>>(), [2]);
        assert_eq!(
            (refusals.windows.len(), refusals.by_age.len()),
            (Refusals::REMEMBERED, Refusals::REMEMBERED)
        );
    }
}
