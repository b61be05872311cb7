//! Where a peer can be reached, and the `.meta` file that says so.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::mem;
use core::net::SocketAddr;
use core::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::time::Wall;

/// The addresses of a peer: the one that worked last first, at most [`Addresses::MAX`], no duplicates.
///
/// Only literal addresses are ever dialled. What else a file said, host names and keys that this version does not know,
/// is kept for whoever wrote it.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Addresses {
    list: Box<[KnownAddress]>,
    kept: Option<Box<Kept>>,
}

/// An address of a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KnownAddress {
    /// The address.
    pub address: SocketAddr,
    /// When a link stood over it last; 0 for an address that was only told.
    pub last_seen: Wall,
}

/// What a file said beside what is understood: bounded by [`Addresses::MAX_FILE`].
#[derive(Clone, Default, PartialEq, Eq, Debug)]
struct Kept {
    other: Map<String, Value>,
    /// Unknown keys of literal addresses.
    of_address: Vec<(SocketAddr, Map<String, Value>)>,
    /// Entries that are no literal addresses.
    names: Vec<Entry>,
}

/// The file: `{addr, last_seen, addrs: [{addr, last_seen}]}`, times in epoch ms. The outer pair repeats the first of
/// `addrs` for older readers.
#[derive(Serialize, Deserialize)]
struct File {
    #[serde(default)]
    addr: Option<String>,
    #[serde(default)]
    last_seen: Option<u64>,
    #[serde(default)]
    addrs: Vec<Entry>,
    #[serde(flatten)]
    other: Map<String, Value>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Entry {
    addr: String,
    #[serde(default)]
    last_seen: u64,
    #[serde(flatten)]
    other: Map<String, Value>,
}

impl Addresses {
    /// Addresses kept of a peer.
    pub const MAX: usize = 8;
    /// Longest file that is read, in bytes.
    pub const MAX_FILE: usize = 64 << 10;
    /// How much older than a link a stored time may be before the link alone is a reason to store again.
    const STALE: Duration = Duration::from_secs(60);

    /// Reads a peer's `.meta` file. `None` for what is no such file.
    #[must_use]
    pub fn from_meta(text: &str) -> Option<Self> {
        if text.len() > Self::MAX_FILE {
            return None;
        }
        let file: File = serde_json::from_str(text).ok()?;
        let mut addresses = Self::default();
        let mut kept = Kept { other: file.other, ..Kept::default() };
        let last_seen = file.last_seen.unwrap_or(0);
        let outer = file.addr.map(|addr| Entry { addr, last_seen, other: Map::new() });
        for entry in file.addrs.into_iter().chain(outer) {
            let Ok(address) = entry.addr.parse() else {
                kept.name(entry);
                continue;
            };
            let known = KnownAddress { address, last_seen: Wall::from_millis(entry.last_seen) };
            if addresses.push(known) && !entry.other.is_empty() {
                kept.of_address.push((address, entry.other));
            }
        }
        addresses.kept = (kept != Kept::default()).then(|| Box::new(kept));
        Some(addresses)
    }

    /// The `.meta` file.
    #[must_use]
    pub fn to_meta(&self) -> String {
        let nothing = Kept::default();
        let kept = self.kept.as_deref().unwrap_or(&nothing);
        let literal = |known: &KnownAddress| Entry {
            addr: known.address.to_string(),
            last_seen: known.last_seen.as_millis(),
            other: kept.about(known.address),
        };
        let entries = self.list.iter().map(literal).chain(kept.names.iter().cloned());
        let addrs: Vec<_> = entries.take(Self::MAX).collect();
        let file = File {
            addr: addrs.first().map(|first| first.addr.clone()),
            last_seen: addrs.first().map(|first| first.last_seen),
            addrs,
            other: kept.other.clone(),
        };
        serde_json::to_string(&file).unwrap_or_default()
    }

    /// A link stood over this address: it is first from now on. True where that is worth storing: it was not first, or
    /// the time that is known is old.
    pub fn promote(&mut self, address: SocketAddr, seen: Wall) -> bool {
        let before = self.put_first(address);
        let fresh = |known: KnownAddress| {
            seen.as_millis().saturating_sub(known.last_seen.as_millis()) < Self::STALE.as_millis() as u64
        };
        let worth_it = !before.is_some_and(|(at, known)| at == 0 && fresh(known));
        self.list[0].last_seen = seen;
        worth_it
    }

    /// The owner says that the peer is here: the address is first from now on, though nobody was met there.
    pub fn prefer(&mut self, address: SocketAddr) {
        self.put_first(address);
    }

    /// An address that the peer advertises goes behind those that are known. True where it was new.
    pub fn advertised(&mut self, address: SocketAddr) -> bool {
        self.push(KnownAddress { address, last_seen: Wall::default() })
    }

    /// Other addresses go behind these.
    pub fn append(&mut self, others: &Self) {
        for known in &others.list {
            self.push(*known);
        }
        if self.kept.is_none() {
            self.kept.clone_from(&others.kept);
        }
    }

    /// The addresses, the best first.
    pub fn iter(&self) -> impl Iterator<Item = &KnownAddress> {
        self.list.iter()
    }

    /// When a link stood over any of them last; `None` for never.
    #[must_use]
    pub fn last_seen(&self) -> Option<Wall> {
        let newest = self.list.iter().map(|known| known.last_seen.as_millis()).max();
        newest.filter(|at| *at > 0).map(Wall::from_millis)
    }

    /// Whether none is known.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Whether this one is known.
    #[must_use]
    pub fn contains(&self, address: SocketAddr) -> bool {
        self.list.iter().any(|known| known.address == address)
    }

    fn push(&mut self, known: KnownAddress) -> bool {
        let new = self.list.len() < Self::MAX && !self.contains(known.address);
        if new {
            self.change(|list| list.push(known));
        }
        new
    }

    /// Puts an address first, and returns where it was and what was known of it.
    fn put_first(&mut self, address: SocketAddr) -> Option<(usize, KnownAddress)> {
        let at = self.list.iter().position(|known| known.address == address);
        let before = at.map(|at| (at, self.list[at]));
        if let Some((at, _)) = before {
            self.list[..=at].rotate_right(1);
        } else {
            self.change(|list| {
                list.truncate(Self::MAX - 1);
                list.insert(0, KnownAddress { address, last_seen: Wall::default() });
            });
        }
        before
    }

    /// Most peers have one address: no room is taken for more before there are.
    fn change(&mut self, change: impl FnOnce(&mut Vec<KnownAddress>)) {
        let mut list = mem::take(&mut self.list).into_vec();
        list.reserve_exact(1);
        change(&mut list);
        self.list = list.into_boxed_slice();
    }
}

impl Kept {
    fn name(&mut self, entry: Entry) {
        if self.names.len() < Addresses::MAX && !self.names.iter().any(|name| name.addr == entry.addr) {
            self.names.push(entry);
        }
    }

    fn about(&self, address: SocketAddr) -> Map<String, Value> {
        let found = self.of_address.iter().find(|(of, _)| *of == address);
        found.map(|(_, other)| other.clone()).unwrap_or_default()
    }
}

impl FromIterator<SocketAddr> for Addresses {
    fn from_iter<I: IntoIterator<Item = SocketAddr>>(addresses: I) -> Self {
        let mut list = Self::default();
        for address in addresses {
            list.advertised(address);
        }
        list
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    fn address(port: u16) -> SocketAddr {
        ([10, 0, 0, 1], port).into()
    }

    fn ports(list: &Addresses) -> Vec<u16> {
        list.iter().map(|known| known.address.port()).collect()
    }

    fn value(list: &Addresses) -> Value {
        serde_json::from_str(&list.to_meta()).unwrap()
    }

    #[test]
    fn the_address_that_worked_last_is_first_and_eight_are_kept() {
        let mut list = Addresses::default();
        for port in 1..=10 {
            assert!(list.promote(address(port), Wall::from_millis(u64::from(port))));
        }
        assert!(list.promote(address(5), Wall::from_millis(77)));
        assert_eq!(ports(&list), [5, 10, 9, 8, 7, 6, 4, 3]);
        assert_eq!(list.last_seen(), Some(Wall::from_millis(77)));
        list.prefer(address(4));
        list.prefer(address(99));
        assert_eq!(ports(&list), [99, 4, 5, 10, 9, 8, 7, 6]);
        let seen: Vec<_> = list.iter().map(|known| known.last_seen.as_millis()).collect();
        assert_eq!(seen[..3], [0, 4, 77]);
    }

    #[test]
    fn a_link_over_the_first_address_is_worth_storing_once_a_minute() {
        let mut list = Addresses::default();
        assert!(list.promote(address(1), Wall::from_millis(1_000_000)));
        assert!(!list.promote(address(1), Wall::from_millis(1_059_999)));
        assert!(list.promote(address(1), Wall::from_millis(1_119_999)));
        assert!(!list.promote(address(1), Wall::from_millis(5)), "a clock that went back says nothing");
    }

    #[test]
    fn advertised_addresses_go_behind_and_never_push_a_known_one_out() {
        let mut list = Addresses::default();
        list.promote(address(1), Wall::from_millis(5));
        assert!(!list.advertised(address(1)));
        for port in 2..=20 {
            list.advertised(address(port));
        }
        assert_eq!(ports(&list), [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(list.last_seen(), Some(Wall::from_millis(5)));
        assert_eq!(Addresses::default().last_seen(), None);
    }

    #[test]
    fn a_meta_file_reads_back_and_repeats_its_first_address_outside() {
        let mut list = Addresses::default();
        list.promote("[::1]:9".parse().unwrap(), Wall::from_millis(6));
        list.promote(address(1), Wall::from_millis(7));
        assert_eq!(Addresses::from_meta(&list.to_meta()), Some(list.clone()));
        let file = serde_json::json!({"addr": "10.0.0.1:1", "last_seen": 7, "addrs": [
            {"addr": "10.0.0.1:1", "last_seen": 7}, {"addr": "[::1]:9", "last_seen": 6}]});
        assert_eq!(value(&list), file);
    }

    #[test]
    fn a_meta_file_of_an_older_peer_has_one_address() {
        let list = Addresses::from_meta(r#"{"addr":"10.0.0.1:9","last_seen":4}"#).unwrap();
        let known: Vec<_> = list.iter().copied().collect();
        assert_eq!(known, vec![KnownAddress { address: address(9), last_seen: Wall::from_millis(4) }]);
        assert_eq!(Addresses::from_meta("{}"), Some(Addresses::default()));
        assert_eq!(Addresses::from_meta(r#"{"addr":null,"last_seen":null}"#), Some(Addresses::default()));
    }

    #[test]
    fn only_literal_addresses_count_and_the_others_are_kept() {
        let text = r#"{"addrs":[{"addr":"host.example:1"},{"addr":"10.0.0.1:9"},{"addr":"10.0.0.1:9"}]}"#;
        let mut list = Addresses::from_meta(text).unwrap();
        assert_eq!(ports(&list), [9]);
        list.promote(address(8), Wall::from_millis(1));
        let addrs = value(&list)["addrs"].clone();
        let addrs: Vec<_> = addrs.as_array().unwrap().iter().map(|entry| entry["addr"].clone()).collect();
        assert_eq!(addrs, ["10.0.0.1:8", "10.0.0.1:9", "host.example:1"]);
    }

    #[test]
    fn unknown_keys_survive_a_change() {
        let text = r#"{"addrs":[{"addr":"10.0.0.1:9","last_seen":1,"via":"lan"}],"note":[1]}"#;
        let mut list = Addresses::from_meta(text).unwrap();
        list.promote(address(9), Wall::from_millis(9));
        let mut known = Addresses::default();
        known.append(&list);
        let file = value(&known);
        assert_eq!((&file["note"], &file["addrs"][0]["via"]), (&serde_json::json!([1]), &"lan".into()));
        assert_eq!(file["last_seen"], 9);
    }

    #[test]
    fn a_broken_file_is_none() {
        let long = " ".repeat(Addresses::MAX_FILE + 1);
        let broken = [
            "",
            "[]",
            "{",
            r#"{"addrs":{}}"#,
            r#"{"last_seen":"now"}"#,
            r#"{"addrs":[{"last_seen":1}]}"#,
            &long,
        ];
        for text in broken {
            assert_eq!(Addresses::from_meta(text), None, "{}", text.len());
        }
    }
}
