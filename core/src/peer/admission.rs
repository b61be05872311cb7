//! Who may try a handshake: slots for those under way, and a lock-out after failed proofs.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr};
use core::time::Duration;

use crate::machine::{ConnId, Endpoint};
use crate::time::Mono;

/// Bounds handshakes under way, per address and in total, and shuts addresses out that failed to prove themselves.
///
/// Slow clients cannot shut others out: where all slots are taken, one is taken back from the address that holds the
/// most. A connection that proves nothing and claims nothing (a port scan) is no failed proof.
#[derive(Debug, Default)]
pub struct Admission {
    /// Handshakes under way, oldest first, by where they come from.
    under_way: BTreeMap<Origin, Vec<ConnId>>,
    total: usize,
    failures: BTreeMap<Origin, Failures>,
}

/// Where a connection comes from, as coarse as an owner of addresses is: one IPv4 address, one IPv6 /64.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Origin {
    /// An address, the last 64 bits of an IPv6 one cleared.
    Address(IpAddr),
    /// This machine, through a unix socket. Never locked out: the kernel has vouched for the user.
    Local,
}

/// Whether a connection may try.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Admitted {
    /// It may.
    Yes,
    /// It may, in the place of this one, which is to be closed.
    InPlaceOf(ConnId),
    /// Its address has as many handshakes under way as one may.
    Full,
    /// Its address failed too often.
    LockedOut,
}

#[derive(Clone, Copy, Debug)]
struct Failures {
    first: Mono,
    count: u8,
}

impl Admission {
    /// Handshakes under way at once from one address.
    pub const PER_ORIGIN: usize = 128;
    /// Handshakes under way at once in all.
    pub const TOTAL: usize = 512;
    /// Failed proofs within [`WINDOW`](Self::WINDOW) that lock an address out.
    pub const FAILURES: u8 = 5;
    /// Counted from the first failure; the lock-out ends with it.
    pub const WINDOW: Duration = Duration::from_secs(60);
    /// Addresses whose failures are remembered; the one whose window ends first makes room.
    pub const REMEMBERED: usize = 4096;

    /// A connection came. Where it is admitted, [`ended`](Self::ended) must follow.
    pub fn begin(&mut self, origin: Origin, conn: ConnId, now: Mono) -> Admitted {
        if self.is_locked_out(origin, now) {
            return Admitted::LockedOut;
        }
        let held = self.under_way.get(&origin).map_or(0, Vec::len);
        if held >= Self::PER_ORIGIN {
            return Admitted::Full;
        }
        let mut admitted = Admitted::Yes;
        if self.total >= Self::TOTAL {
            let most = self.under_way.iter().max_by_key(|(_, conns)| conns.len());
            match most.map(|(origin, conns)| (*origin, conns.len(), conns[0])) {
                Some((greedy, count, oldest)) if count > held + 1 => {
                    self.ended(greedy, oldest);
                    admitted = Admitted::InPlaceOf(oldest);
                }
                Some(_) | None => return Admitted::Full,
            }
        }
        self.under_way.entry(origin).or_default().push(conn);
        self.total += 1;
        admitted
    }

    /// A handshake is over, however it ended. Repeated: nothing.
    pub fn ended(&mut self, origin: Origin, conn: ConnId) {
        let Some(conns) = self.under_way.get_mut(&origin) else { return };
        if let Some(at) = conns.iter().position(|other| *other == conn) {
            conns.remove(at);
            self.total -= 1;
        }
        if conns.is_empty() {
            self.under_way.remove(&origin);
        }
    }

    /// A proof was wrong, or its claimant unknown.
    pub fn failed(&mut self, origin: Origin, now: Mono) {
        if origin == Origin::Local {
            return;
        }
        if self.failures.len() >= Self::REMEMBERED && !self.failures.contains_key(&origin) {
            self.failures.retain(|_, failures| now.since(failures.first) < Self::WINDOW);
            let oldest = self.failures.iter().min_by_key(|(_, failures)| failures.first);
            if self.failures.len() >= Self::REMEMBERED
                && let Some(oldest) = oldest.map(|(origin, _)| *origin)
            {
                self.failures.remove(&oldest);
            }
        }
        let failures = self.failures.entry(origin).or_insert(Failures { first: now, count: 0 });
        if now.since(failures.first) >= Self::WINDOW {
            *failures = Failures { first: now, count: 0 };
        }
        failures.count = failures.count.saturating_add(1);
    }

    /// Whether an address is shut out now.
    #[must_use]
    pub fn is_locked_out(&self, origin: Origin, now: Mono) -> bool {
        self.failures
            .get(&origin)
            .is_some_and(|f| f.count >= Self::FAILURES && now.since(f.first) < Self::WINDOW)
    }

    /// Handshakes under way.
    #[must_use]
    pub const fn under_way(&self) -> usize {
        self.total
    }
}

impl Origin {
    /// Where an endpoint counts as coming from.
    #[must_use]
    pub fn of(endpoint: &Endpoint) -> Self {
        match endpoint {
            Endpoint::Tcp(address) => Self::of_ip(address.ip()),
            Endpoint::Unix { .. } => Self::Local,
        }
    }

    /// Where an address counts as coming from.
    #[must_use]
    pub fn of_ip(ip: IpAddr) -> Self {
        match ip.to_canonical() {
            IpAddr::V4(ip) => Self::Address(IpAddr::V4(ip)),
            IpAddr::V6(ip) => {
                let [a, b, c, d, ..] = ip.segments();
                Self::Address(IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(last: u8) -> Origin {
        Origin::of(&Endpoint::Tcp(([10, 0, 0, last], 1).into()))
    }

    fn conn(slot: usize) -> ConnId {
        ConnId::new(slot as u32, 0)
    }

    fn at(secs: u64) -> Mono {
        Mono::ZERO.after(Duration::from_secs(secs))
    }

    #[test]
    fn five_failed_proofs_lock_an_address_out_until_a_minute_after_the_first() {
        let mut admission = Admission::default();
        for second in 0..5 {
            assert_eq!(admission.begin(origin(1), conn(1), at(second)), Admitted::Yes);
            admission.ended(origin(1), conn(1));
            admission.failed(origin(1), at(second));
        }
        assert_eq!(admission.begin(origin(1), conn(1), at(59)), Admitted::LockedOut);
        assert_eq!(admission.begin(origin(2), conn(1), at(59)), Admitted::Yes);
        assert_eq!(admission.begin(origin(1), conn(2), at(60)), Admitted::Yes);
    }

    #[test]
    fn four_failed_proofs_lock_nobody_out() {
        let mut admission = Admission::default();
        for _ in 0..4 {
            admission.failed(origin(1), at(0));
        }
        assert!(!admission.is_locked_out(origin(1), at(1)));
        admission.failed(origin(1), at(60));
        assert!(!admission.is_locked_out(origin(1), at(60)), "the window starts over");
    }

    #[test]
    fn one_address_has_at_most_its_slots() {
        let mut admission = Admission::default();
        for slot in 0..Admission::PER_ORIGIN {
            assert_eq!(admission.begin(origin(1), conn(slot), at(0)), Admitted::Yes);
        }
        assert_eq!(admission.begin(origin(1), conn(999), at(0)), Admitted::Full);
        assert_eq!(admission.begin(origin(2), conn(999), at(0)), Admitted::Yes);
        admission.ended(origin(1), conn(5));
        assert_eq!(admission.begin(origin(1), conn(1000), at(0)), Admitted::Yes);
    }

    #[test]
    fn slow_clients_that_hold_every_slot_shut_nobody_else_out() {
        let mut admission = Admission::default();
        for slot in 0..Admission::TOTAL {
            let from = origin((slot / Admission::PER_ORIGIN) as u8);
            assert_eq!(admission.begin(from, conn(slot), at(0)), Admitted::Yes);
        }
        assert!(matches!(admission.begin(origin(200), conn(999), at(1)), Admitted::InPlaceOf(_)));
        assert_eq!(admission.under_way(), Admission::TOTAL);
    }

    #[test]
    fn addresses_of_one_ipv6_network_count_as_one() {
        let of = |text: &str| Origin::of(&Endpoint::Tcp(text.parse().unwrap()));
        assert_eq!(of("[2001:db8::1]:1"), of("[2001:db8::2:3]:9"));
        assert_ne!(of("[2001:db8::1]:1"), of("[2001:db8:0:1::1]:1"));
        assert_eq!(of("[::ffff:10.0.0.1]:1"), origin(1));
    }

    #[test]
    fn failures_are_remembered_for_a_bounded_number_of_addresses() {
        let mut admission = Admission::default();
        for n in 0..=Admission::REMEMBERED as u32 {
            let address = Endpoint::Tcp((n.to_be_bytes(), 1).into());
            admission.failed(Origin::of(&address), at(u64::from(n / 1000)));
        }
        assert_eq!(admission.failures.len(), Admission::REMEMBERED);
    }
}
