//! Where this machine can be reached.

use core::net::{IpAddr, SocketAddr};
use std::io;

/// Most addresses that are told to peers.
const MAX_TOLD: usize = 6;

/// The addresses of the network interfaces, in the system's order.
///
/// # Errors
/// What the operating system said.
pub fn interfaces() -> io::Result<Vec<IpAddr>> {
    Ok(if_addrs::get_if_addrs()?.into_iter().map(|interface| interface.ip()).collect())
}

/// Whether others may reach an address: it is no loopback, link-local or multicast one.
#[must_use]
pub const fn is_reachable(ip: IpAddr) -> bool {
    let link_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    !(link_local || ip.is_loopback() || ip.is_multicast() || ip.is_unspecified())
}

/// What peers are told: the configured addresses, else each that is listened on or that a wildcard covers; IPv4
/// first, at most six.
///
/// An address that only this machine reaches is told to nobody: others would dial themselves.
#[must_use]
pub fn told(listening: &[SocketAddr], advertise: &[SocketAddr], interfaces: &[IpAddr]) -> Vec<SocketAddr> {
    let mut told: Vec<SocketAddr> = Vec::new();
    let mut add = |addr: SocketAddr| {
        if !told.contains(&addr) {
            told.push(addr);
        }
    };
    if advertise.is_empty() {
        for addr in listening {
            // An IPv6 wildcard takes IPv4 too.
            let covered = interfaces.iter().filter(|ip| addr.is_ipv6() || ip.is_ipv4());
            if addr.ip().is_unspecified() {
                covered.filter(|ip| is_reachable(**ip)).for_each(|ip| add(SocketAddr::new(*ip, addr.port())));
            } else if is_reachable(addr.ip()) {
                add(*addr);
            }
        }
        told.sort_by_key(SocketAddr::is_ipv6);
    } else {
        advertise.iter().copied().for_each(add);
    }
    told.truncate(MAX_TOLD);
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(listening: &[&str], advertise: &[&str], expected: &[&str]) {
        let read =
            |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<SocketAddr>>();
        let interfaces = ["127.0.0.1", "2001:db8::1", "fe80::1", "169.254.1.1", "10.0.0.7", "10.0.0.7"];
        let interfaces: Vec<IpAddr> = interfaces.iter().map(|text| text.parse().unwrap()).collect();
        assert_eq!(told(&read(listening), &read(advertise), &interfaces), read(expected), "{listening:?}");
    }

    #[test]
    fn peers_are_told_what_they_can_reach_ipv4_first() {
        check(&["[::]:1"], &[], &["10.0.0.7:1", "[2001:db8::1]:1"]);
        check(&["0.0.0.0:1", "127.0.0.1:2", "192.0.2.1:3"], &[], &["10.0.0.7:1", "192.0.2.1:3"]);
        check(&["127.0.0.1:1", "[::1]:1"], &[], &[]);
        check(&["0.0.0.0:1"], &["198.51.100.1:9"], &["198.51.100.1:9"]);
        check(&[], &[], &[]);
    }

    #[test]
    fn six_addresses_are_told() {
        let interfaces: Vec<IpAddr> = (1..20).map(|n| IpAddr::from([10, 0, 0, n])).collect();
        assert_eq!(told(&["0.0.0.0:1".parse().unwrap()], &[], &interfaces).len(), MAX_TOLD);
    }
}
