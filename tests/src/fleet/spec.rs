//! What a relay of a fleet is made of: settings, and files on its disk.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};

use relay_core::action::Contents;
use relay_core::peer::{Addresses, Node, PeerRecord, Settings};
use relay_core::secret::Key;
use relay_core::text::PeerId;
use relay_sim::Disk;

use super::{id, wire};

/// The port that every relay and raw peer listens at.
pub const PORT: u16 = 9000;

/// Where the relay or raw peer listens that was made as number `number`, from 0.
#[must_use]
pub const fn address(number: u16) -> SocketAddr {
    let [high, low] = number.to_be_bytes();
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 1, high, low)), PORT)
}

/// What a relay is made of. Peers and invites are files, and each start reads what the disk has then.
pub struct Spec {
    /// How it behaves.
    pub settings: Settings,
    /// Whether it listens.
    pub listens: bool,
    /// The outstanding invite's key.
    pub pending: Option<Key>,
    peers: Vec<(String, Key, Vec<SocketAddr>)>,
}

impl Spec {
    pub(super) fn new(name: &str, address: SocketAddr) -> Self {
        let mut settings = Settings::new(id(name));
        settings.listening = Some(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), address.port()));
        Self { settings, listens: true, pending: None, peers: Vec::new() }
    }

    /// Pairs it with a peer, by the key that [`wire::key`] gives the two.
    pub fn knows(&mut self, peer: &str) {
        self.knows_at(peer, []);
    }

    /// Pairs it with a peer that is known at these addresses, the best first.
    pub fn knows_at(&mut self, peer: &str, addresses: impl IntoIterator<Item = SocketAddr>) {
        let key = wire::key(self.settings.id.as_str(), peer);
        self.peers.push((peer.to_owned(), key, addresses.into_iter().collect()));
    }

    /// Pairs it with a peer by a key of the test's own.
    pub fn knows_by(&mut self, peer: &str, key: Key) {
        self.peers.push((peer.to_owned(), key, Vec::new()));
    }

    /// Writes the files of a first start.
    pub(super) fn install(&self, disk: &mut Disk) {
        for (peer, key, addresses) in &self.peers {
            disk.put_file(&format!("peers/{peer}.key"), Contents::secret(key.to_hex().into_bytes()));
            let addresses: Addresses = addresses.iter().copied().collect();
            if !addresses.is_empty() {
                let meta = Contents::public(addresses.to_meta().into_bytes());
                disk.put_file(&format!("peers/{peer}.meta"), meta);
            }
        }
        if let Some(key) = &self.pending {
            let path = format!("peers/{}.key", PeerId::PENDING);
            disk.put_file(&path, Contents::secret(key.to_hex().into_bytes()));
        }
    }

    /// A relay as a start makes it.
    pub(super) fn boot(&self, disk: &Disk, seed: [u8; 32]) -> Node {
        let (peers, pending) = read(disk);
        let node = Node::new(self.settings.clone(), seed, peers, pending);
        disk.restore(node).expect("a relay reads what a relay recorded")
    }
}

/// The peers and the pending key that a disk's files hold.
#[must_use]
pub fn read(disk: &Disk) -> (Vec<PeerRecord>, Option<Key>) {
    let mut peers = Vec::new();
    let mut pending = None;
    for (path, contents) in disk.files() {
        let Some(name) = path.strip_prefix("peers/").and_then(|path| path.strip_suffix(".key")) else {
            continue;
        };
        let key = core::str::from_utf8(contents.as_bytes()).ok().and_then(Key::from_hex);
        if name == PeerId::PENDING {
            pending = key;
        } else {
            let meta = disk.file(&format!("peers/{name}.meta"));
            let meta = meta.and_then(|meta| core::str::from_utf8(meta.as_bytes()).ok());
            let addresses = meta.and_then(Addresses::from_meta).unwrap_or_default();
            peers.push(PeerRecord { id: id(name), key, addresses });
        }
    }
    (peers, pending)
}
