//! `peers/<id>.meta`: where a peer was met, newest first.
//!
//! JSON: `{"addr", "last_seen", "addrs": [{"addr", "last_seen"}, ..]}`. The outer pair repeats the first of `addrs`
//! for older readers; `last_seen` is in milliseconds since the epoch, 0 for an address that was only heard of. Keys
//! that this node does not know are kept.

use core::net::SocketAddr;
use std::path::Path;

use relay_core::time::Wall;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::atomic;

/// Most addresses kept for a peer.
pub const MAX_ADDRESSES: usize = 8;

/// Longest file that is read, in bytes.
const MAX_META_FILE: usize = 64 * 1024;

/// One address of a peer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Address {
    /// As the file has it; only a literal `ip:port` is ever dialled.
    pub addr: String,
    /// When the peer was last met there, in milliseconds since the epoch; 0 for never.
    #[serde(default)]
    pub last_seen: u64,
    #[serde(flatten)]
    other: Map<String, Value>,
}

/// What is known of a peer's addresses.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Meta {
    /// Newest first, without repeats, at most [`MAX_ADDRESSES`].
    pub addrs: Vec<Address>,
    other: Map<String, Value>,
}

/// The file's shape.
#[derive(Serialize, Deserialize)]
struct File {
    #[serde(default)]
    addr: Option<String>,
    #[serde(default)]
    last_seen: u64,
    #[serde(default)]
    addrs: Vec<Address>,
    #[serde(flatten)]
    other: Map<String, Value>,
}

impl Meta {
    /// When the peer was last met anywhere; `None` for never.
    #[must_use]
    pub fn last_seen(&self) -> Option<Wall> {
        self.addrs.iter().map(|a| a.last_seen).max().filter(|at| *at > 0).map(Wall::from_millis)
    }

    /// The addresses to dial, in order: those that are literals.
    #[must_use]
    pub fn candidates(&self) -> Vec<SocketAddr> {
        self.addrs.iter().filter_map(|a| a.addr.parse().ok()).collect()
    }

    /// Puts `addr` first, met at `now`; the oldest falls off the end.
    pub fn met_at(&mut self, addr: SocketAddr, now: Wall) {
        self.prefer(addr);
        self.addrs[0].last_seen = now.as_millis();
    }

    /// Puts `addr` first without saying that the peer was met there; the oldest falls off the end.
    pub fn prefer(&mut self, addr: SocketAddr) {
        let text = addr.to_string();
        let known = self.addrs.iter().position(|a| a.addr == text).map(|at| self.addrs.remove(at));
        let first = known.unwrap_or_else(|| Address { addr: text, last_seen: 0, other: Map::new() });
        self.addrs.insert(0, first);
        self.addrs.truncate(MAX_ADDRESSES);
    }

    /// Puts addresses that were only heard of behind the known ones, as far as there is room.
    pub fn told_of(&mut self, addrs: &[SocketAddr]) {
        for addr in addrs {
            let addr = addr.to_string();
            if self.addrs.len() < MAX_ADDRESSES && !self.addrs.iter().any(|a| a.addr == addr) {
                self.addrs.push(Address { addr, last_seen: 0, other: Map::new() });
            }
        }
    }

    pub(super) fn read(path: &Path) -> (Self, Option<String>) {
        let broken = |why: String| (Self::default(), Some(format!("{} is ignored: {why}", path.display())));
        match atomic::read_text(path, MAX_META_FILE) {
            Ok(None) => (Self::default(), None),
            Ok(Some(text)) => match serde_json::from_str::<File>(&text) {
                Ok(file) => (Self::from_file(file), None),
                Err(error) => broken(error.to_string()),
            },
            Err(error) => broken(error.to_string()),
        }
    }

    pub(super) fn to_json(&self) -> String {
        let first = self.addrs.first();
        let file = File {
            addr: first.map(|a| a.addr.clone()),
            last_seen: first.map_or(0, |a| a.last_seen),
            addrs: self.addrs.clone(),
            other: self.other.clone(),
        };
        serde_json::to_string(&file).expect("strings, numbers and maps with string keys are always JSON")
    }

    fn from_file(file: File) -> Self {
        let mut meta = Self { addrs: Vec::new(), other: file.other };
        let outer = file.addr.map(|addr| Address { addr, last_seen: file.last_seen, other: Map::new() });
        // A record of one address only is an old one; in a newer one the outer pair repeats the first.
        let listed = !file.addrs.is_empty();
        for address in file.addrs.into_iter().chain(outer.filter(|_| !listed)) {
            if meta.addrs.len() < MAX_ADDRESSES && !meta.addrs.iter().any(|a| a.addr == address.addr) {
                meta.addrs.push(address);
            }
        }
        meta
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(n: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, n], 9847))
    }

    fn read(text: &str) -> (Meta, Option<String>) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.meta");
        std::fs::write(&path, text).unwrap();
        Meta::read(&path)
    }

    #[test]
    fn the_newest_address_is_first_and_eight_are_kept() {
        let mut meta = Meta::default();
        for n in 1..=10 {
            meta.met_at(addr(n), Wall::from_millis(u64::from(n)));
        }
        meta.met_at(addr(5), Wall::from_millis(50));
        let order: Vec<_> = meta.addrs.iter().map(|a| a.last_seen).collect();
        assert_eq!(order, [50, 10, 9, 8, 7, 6, 4, 3]);
        assert_eq!(meta.last_seen(), Some(Wall::from_millis(50)));
    }

    #[test]
    fn what_was_only_heard_of_stands_behind_what_was_met() {
        let mut meta = Meta::default();
        meta.met_at(addr(1), Wall::from_millis(7));
        meta.told_of(&[addr(2), addr(1), addr(2)]);
        assert_eq!(meta.candidates(), [addr(1), addr(2)]);
        meta.told_of(&(10..30).map(addr).collect::<Vec<_>>());
        assert_eq!(meta.addrs.len(), MAX_ADDRESSES);
        assert_eq!(meta.candidates()[0], addr(1));
        assert_eq!(meta.last_seen(), Some(Wall::from_millis(7)));
    }

    #[test]
    fn the_file_repeats_its_first_address_outside() {
        let mut meta = Meta::default();
        meta.met_at(addr(1), Wall::from_millis(7));
        meta.told_of(&[addr(2)]);
        let value: Value = serde_json::from_str(&meta.to_json()).unwrap();
        assert_eq!(
            value,
            serde_json::json!({"addr": "10.0.0.1:9847", "last_seen": 7, "addrs": [
                {"addr": "10.0.0.1:9847", "last_seen": 7}, {"addr": "10.0.0.2:9847", "last_seen": 0}]})
        );
    }

    #[test]
    fn unknown_keys_survive_a_change() {
        let (mut meta, warning) =
            read(r#"{"addrs":[{"addr":"10.0.0.1:9847","last_seen":1,"via":"lan"}],"note":[1]}"#);
        assert_eq!(warning, None);
        meta.met_at(addr(1), Wall::from_millis(9));
        let value: Value = serde_json::from_str(&meta.to_json()).unwrap();
        assert_eq!(value["note"], serde_json::json!([1]));
        assert_eq!(value["addrs"][0]["via"], "lan");
        assert_eq!(value["last_seen"], 9);
    }

    #[test]
    fn an_old_record_of_one_address_is_read() {
        let (meta, _) = read(r#"{"addr":"10.0.0.3:9847","last_seen":5}"#);
        assert_eq!((meta.candidates(), meta.last_seen()), (vec![addr(3)], Some(Wall::from_millis(5))));
    }

    #[test]
    fn only_literal_addresses_are_dialled_and_the_others_are_kept() {
        let (meta, _) =
            read(r#"{"addrs":[{"addr":"host.example:1"},{"addr":"[::1]:9847"},{"addr":"[::1]:9847"}]}"#);
        assert_eq!(meta.candidates(), ["[::1]:9847".parse().unwrap()]);
        assert_eq!(meta.addrs.len(), 2);
    }

    #[test]
    fn a_broken_file_is_ignored_with_a_warning() {
        for text in [
            "",
            "[]",
            "{",
            r#"{"addrs":{}}"#,
            r#"{"last_seen":"now"}"#,
            r#"{"addrs":[{"last_seen":1}]}"#,
            &" ".repeat(70_000),
        ] {
            let (meta, warning) = read(text);
            assert_eq!(meta, Meta::default());
            assert!(warning.unwrap().contains("a.meta is ignored"), "{text}");
        }
    }
}
