//! Whom a node knows: keys, addresses, and what is going on with each peer.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

use super::addresses::Addresses;
use super::backoff::Backoff;
use super::dedup::Dedup;
use super::report::{PeerReport, Said};
use crate::machine::ConnId;
use crate::secret::Key;
use crate::text::PeerId;
use crate::time::{Mono, Now};

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
    /// When its last heartbeat came, where `beaten` says that there was one.
    pub(super) beat: Now,
    pub(super) beaten: bool,
    pub(super) backoff: Backoff,
    /// Whether the owner asked for a lasting link.
    pub(super) keep: bool,
    /// Whether its addresses are being stored.
    pub(super) stored: Stored,
    /// What is only there for a peer that said more than that it lives.
    pub(super) heard: Option<Box<Heard>>,
}

/// How a peer's file of addresses stands. One write is under way at a time, so that a peer that is somebody else's
/// address at every handshake keeps no disk busy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stored {
    /// Nothing is under way.
    Settled,
    /// A write is.
    UnderWay,
    /// A write is, and what it writes is not the newest.
    Outdated,
}

/// What a peer said.
#[derive(Debug, Default)]
pub(super) struct Heard {
    /// The ids of its messages. Heartbeats have none that count, so most peers need none.
    pub(super) dedup: Option<Box<Dedup>>,
    pub(super) unknown_types: BTreeSet<String>,
    pub(super) said: Said,
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
                    beat: Now::default(),
                    beaten: false,
                    backoff: Backoff::new(),
                    keep: false,
                    stored: Stored::Settled,
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

    /// What its heartbeats said, where there was one.
    pub(super) fn report(&self) -> Option<PeerReport> {
        let said = self.heard.as_ref().map(|heard| &heard.said);
        self.beaten.then(|| PeerReport::new(self.beat, said))
    }

    pub(super) fn heard(&mut self) -> &mut Heard {
        self.heard.get_or_insert_default()
    }
}
