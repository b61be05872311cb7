//! The peers of a home, as a node is told of them.

use core::fmt;

use relay_core::peer::PeerRecord;
use relay_core::secret::Key;

use crate::failure::Failure;
use crate::keys::{Keys, Stored};

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
        let mut peers = Vec::new();
        for peer in listing.peers.into_iter().filter(|peer| peer.paired) {
            // One that went away between the two looks is not there.
            if let Stored::Paired(key) = keys.key(&peer.id)? {
                peers.push(PeerRecord { id: peer.id, key: Some(key), addresses: peer.addresses });
            }
        }
        let pending = match keys.pending()? {
            Stored::Paired(key) => Some(key),
            Stored::Absent => None,
            Stored::Broken(why) => {
                warnings.push(why);
                None
            }
        };
        Ok(Self { peers, pending, warnings })
    }
}
