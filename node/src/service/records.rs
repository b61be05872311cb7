//! The peers of a home, as a node is told of them.

use core::fmt;

use relay_core::peer::PeerRecord;
use relay_core::secret::Key;

use crate::failure::Failure;
use crate::keys::{Keys, Peer, Stored};

/// Every peer with a key, the open invite, and what was odd.
pub struct Records {
    /// The peers.
    pub peers: Vec<PeerRecord>,
    /// The key of the open invite.
    pub pending: Option<Key>,
    /// What was ignored and why, each a line for people.
    pub warnings: Vec<String>,
}

impl fmt::Debug for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Records({} peers)", self.peers.len())
    }
}

impl Records {
    /// Reads them.
    ///
    /// # Errors
    /// The folder is there but cannot be read.
    pub fn read(keys: &Keys) -> Result<Self, Failure> {
        let listing = keys.list()?;
        let mut warnings = listing.warnings;
        let paired = listing.peers.into_iter().filter(Peer::is_paired);
        let record = |peer: Peer| PeerRecord { id: peer.id, key: peer.key, addresses: peer.addresses };
        let peers = paired.map(record).collect();
        let (pending, warning) = Self::pending(keys)?;
        warnings.extend(warning);
        Ok(Self { peers, pending, warnings })
    }

    /// Reads the key of the open invite alone, and what was odd.
    ///
    /// # Errors
    /// The system is short of what it takes to read a file.
    pub fn pending(keys: &Keys) -> Result<(Option<Key>, Option<String>), Failure> {
        Ok(match keys.pending()? {
            Stored::Paired(key) => (Some(key), None),
            Stored::Absent => (None, None),
            Stored::Broken(why) => (None, Some(why)),
        })
    }
}
