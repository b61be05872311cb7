//! Whom a node knows: keys, addresses, and what is going on with each peer.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::backoff::Backoff;
use super::dedup::Dedup;
use super::report::PeerReport;
use crate::machine::ConnId;
use crate::secret::Key;
use crate::text::PeerId;
use crate::time::{Mono, Wall};

/// What is known of a peer, as it is loaded and stored.
#[derive(Clone, Debug)]
pub struct PeerRecord {
    /// Who.
    pub id: PeerId,
    /// The shared key; `None` for a peer that is not paired.
    pub key: Option<Key>,
    /// Where it was reached, or says that it can be.
    pub addresses: Addresses,
}

/// The addresses of a peer: the one that worked last first, at most [`Addresses::MAX`], no duplicates.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Addresses(Vec<KnownAddress>);

/// An address of a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KnownAddress {
    /// The address.
    pub address: SocketAddr,
    /// When a link stood over it last; 0 for an address that was only told.
    pub last_seen: Wall,
}

impl Addresses {
    /// Addresses kept of a peer.
    pub const MAX: usize = 8;

    /// Reads a peer's `.meta` file: `{addr, last_seen, addrs: [{addr, last_seen}]}`, times in epoch ms.
    ///
    /// Entries that are no literal addresses are dropped. `None` for what is no such file.
    #[must_use]
    pub fn from_meta(text: &str) -> Option<Self> {
        let meta: Meta = serde_json::from_str(text).ok()?;
        let mut addresses = Self::default();
        let first = meta.addr.map(|addr| Entry { addr, last_seen: meta.last_seen.unwrap_or(0) });
        for entry in meta.addrs.into_iter().chain(first) {
            if let Ok(address) = entry.addr.parse() {
                addresses.push(KnownAddress { address, last_seen: Wall::from_millis(entry.last_seen) });
            }
        }
        Some(addresses)
    }

    /// The `.meta` file.
    #[must_use]
    pub fn to_meta(&self) -> String {
        let entry = |known: &KnownAddress| Entry {
            addr: alloc::string::ToString::to_string(&known.address),
            last_seen: known.last_seen.as_millis(),
        };
        let first = self.0.first().map(entry);
        let meta = Meta {
            last_seen: first.as_ref().map(|first| first.last_seen),
            addr: first.map(|first| first.addr),
            addrs: self.0.iter().map(entry).collect(),
        };
        serde_json::to_string(&meta).unwrap_or_default()
    }

    /// A link stood over this address: it is first from now on. True where the list changed other than in time.
    pub fn promote(&mut self, address: SocketAddr, seen: Wall) -> bool {
        let at = self.0.iter().position(|known| known.address == address);
        if let Some(at) = at {
            self.0.remove(at);
        }
        // Most peers have one: no room is taken for more before there are.
        self.0.reserve_exact(1);
        self.0.insert(0, KnownAddress { address, last_seen: seen });
        self.0.truncate(Self::MAX);
        at != Some(0)
    }

    /// An address that the peer advertises goes behind those that are known. True where it was new.
    pub fn advertised(&mut self, address: SocketAddr) -> bool {
        self.push(KnownAddress { address, last_seen: Wall::default() })
    }

    /// Other addresses go behind these.
    pub fn append(&mut self, others: &Self) {
        for known in &others.0 {
            self.push(*known);
        }
    }

    /// The addresses, the best first.
    pub fn iter(&self) -> impl Iterator<Item = &KnownAddress> {
        self.0.iter()
    }

    /// Whether none is known.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether this one is known.
    #[must_use]
    pub fn contains(&self, address: SocketAddr) -> bool {
        self.0.iter().any(|known| known.address == address)
    }

    fn push(&mut self, known: KnownAddress) -> bool {
        let new = self.0.len() < Self::MAX && !self.contains(known.address);
        if new {
            self.0.reserve_exact(1);
            self.0.push(known);
        }
        new
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

#[derive(Serialize, Deserialize)]
struct Meta {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    addr: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    last_seen: Option<u64>,
    #[serde(default)]
    addrs: Vec<Entry>,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    addr: String,
    #[serde(default)]
    last_seen: u64,
}

/// A peer's place in the [`Book`]: small, dense, never reused while anything refers to it.
pub(super) type PeerIndex = u32;

/// All peers, found by id or by place.
#[derive(Debug, Default)]
pub(super) struct Book {
    peers: Vec<Peer>,
    /// Places in the order of the ids, for look-ups and for lists.
    order: Vec<PeerIndex>,
}

/// A peer, and what is going on with it.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) id: PeerId,
    pub(super) key: Option<Key>,
    pub(super) addresses: Addresses,
    /// The one link that stands with it.
    pub(super) link: Option<ConnId>,
    /// The dial for a lasting link that is under way.
    pub(super) dialling: Option<ConnId>,
    /// When the link that stands, or stood last, was established.
    pub(super) linked_at: Mono,
    pub(super) backoff: Backoff,
    /// Whether the owner asked for a lasting link.
    pub(super) keep: bool,
    /// What is only there for a peer that said something.
    pub(super) heard: Option<Box<Heard>>,
}

/// What a peer said.
#[derive(Debug, Default)]
pub(super) struct Heard {
    /// The ids of its messages. Heartbeats have none that count, so most peers need none.
    pub(super) dedup: Option<Box<Dedup>>,
    pub(super) unknown_types: BTreeSet<String>,
    pub(super) report: Option<PeerReport>,
    /// Inbound one-shots of this peer that are open.
    pub(super) one_shots: usize,
}

impl Book {
    pub(super) fn find(&self, id: &str) -> Option<PeerIndex> {
        self.place(id).ok().map(|at| self.order[at])
    }

    pub(super) fn get(&self, peer: PeerIndex) -> &Peer {
        &self.peers[peer as usize]
    }

    pub(super) fn get_mut(&mut self, peer: PeerIndex) -> &mut Peer {
        &mut self.peers[peer as usize]
    }

    /// The peer's place; a new one without key or address where it was unknown.
    pub(super) fn enter(&mut self, id: &PeerId) -> PeerIndex {
        match self.place(id.as_str()) {
            Ok(at) => self.order[at],
            Err(at) => {
                let index = self.peers.len() as PeerIndex;
                self.peers.push(Peer {
                    id: id.clone(),
                    key: None,
                    addresses: Addresses::default(),
                    link: None,
                    dialling: None,
                    linked_at: Mono::ZERO,
                    backoff: Backoff::new(),
                    keep: false,
                    heard: None,
                });
                self.order.insert(at, index);
                index
            }
        }
    }

    /// All places, in the order of the ids.
    pub(super) fn iter(&self) -> impl Iterator<Item = PeerIndex> {
        self.order.iter().copied()
    }

    pub(super) const fn len(&self) -> usize {
        self.peers.len()
    }

    fn place(&self, id: &str) -> Result<usize, usize> {
        self.order.binary_search_by(|peer| self.get(*peer).id.as_str().cmp(id))
    }
}

impl Peer {
    /// Whether there is anything to know: an entry outlives the peer that was forgotten.
    pub(super) const fn is_known(&self) -> bool {
        self.key.is_some() || self.link.is_some() || !self.addresses.is_empty()
    }

    pub(super) fn heard(&mut self) -> &mut Heard {
        self.heard.get_or_insert_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(port: u16) -> SocketAddr {
        ([10, 0, 0, 1], port).into()
    }

    #[test]
    fn the_address_that_worked_last_is_first_and_eight_are_kept() {
        let mut list = Addresses::default();
        for port in 1..=9 {
            assert!(list.promote(address(port), Wall::from_millis(u64::from(port))));
        }
        assert!(list.promote(address(5), Wall::from_millis(77)));
        assert!(!list.promote(address(5), Wall::from_millis(78)));
        let ports: Vec<_> = list.iter().map(|known| known.address.port()).collect();
        assert_eq!(ports, [5, 9, 8, 7, 6, 4, 3, 2]);
    }

    #[test]
    fn advertised_addresses_go_behind_and_never_push_a_known_one_out() {
        let mut list = Addresses::default();
        list.promote(address(1), Wall::from_millis(5));
        assert!(!list.advertised(address(1)));
        for port in 2..=20 {
            list.advertised(address(port));
        }
        let ports: Vec<_> = list.iter().map(|known| known.address.port()).collect();
        assert_eq!(ports, [1, 2, 3, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn a_meta_file_reads_back() {
        let mut list = Addresses::default();
        list.promote(address(1), Wall::from_millis(5));
        list.promote("[::1]:9".parse().unwrap(), Wall::from_millis(6));
        assert_eq!(Addresses::from_meta(&list.to_meta()), Some(list));
    }

    #[test]
    fn a_meta_file_of_an_older_peer_has_one_address() {
        let list = Addresses::from_meta(r#"{"addr":"10.0.0.1:9","last_seen":4,"host":"x"}"#).unwrap();
        let known: Vec<_> = list.iter().collect();
        assert_eq!(known, [&KnownAddress { address: address(9), last_seen: Wall::from_millis(4) }]);
        assert_eq!(Addresses::from_meta("{}"), Some(Addresses::default()));
        assert_eq!(Addresses::from_meta("nonsense"), None);
        let named = Addresses::from_meta(r#"{"addrs":[{"addr":"host.example:1"},{"addr":"10.0.0.1:9"}]}"#);
        assert_eq!(named.unwrap().iter().count(), 1);
    }
}
