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
                let addresses = peer.meta.candidates().into_iter().collect();
                peers.push(PeerRecord { id: peer.id, key: Some(key), addresses });
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
        // One that a peer holds was redeemed: its file was not removed before a crash, or is about to be.
        let redeemed = |key: &Key| peers.iter().any(|peer| peer.key.as_ref() == Some(key));
        let pending = pending.filter(|key| !redeemed(key));
        Ok(Self { peers, pending, warnings })
    }
}

#[cfg(test)]
mod tests {
    use relay_core::text::PeerId;

    use super::*;

    #[test]
    fn an_invite_that_was_redeemed_is_open_no_more_though_its_file_is_still_there() {
        let dir = tempfile::tempdir().unwrap();
        let keys = Keys::at(dir.path());
        let key = Key::from_bytes([7; 32]);
        keys.set_pending(&key).unwrap();
        assert_eq!(Records::read(&keys).unwrap().pending.as_ref(), Some(&key));
        keys.add(&PeerId::parse("a").unwrap(), &key).unwrap();
        let records = Records::read(&keys).unwrap();
        assert_eq!((records.peers.len(), records.pending), (1, None));
    }
}
