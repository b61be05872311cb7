//! Messages that a peer sent twice.

use alloc::collections::{BTreeSet, VecDeque};

use sha2::{Digest, Sha256};

/// The newest message ids of one peer. Kept a peer: nobody can make us deaf to an id of another's.
///
/// An id of any length is kept as 16 bytes of its SHA-256.
#[derive(Debug, Default)]
pub struct Dedup {
    seen: BTreeSet<[u8; 16]>,
    order: VecDeque<[u8; 16]>,
}

impl Dedup {
    /// How many ids are remembered for a peer.
    pub const IDS: usize = 1000;

    /// Remembers an id; false where it is remembered already.
    pub fn insert(&mut self, id: &str) -> bool {
        let digest = Sha256::digest(id.as_bytes());
        let mut short = [0; 16];
        short.copy_from_slice(&digest[..16]);
        if !self.seen.insert(short) {
            return false;
        }
        self.order.push_back(short);
        if self.order.len() > Self::IDS
            && let Some(oldest) = self.order.pop_front()
        {
            self.seen.remove(&oldest);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::*;

    #[test]
    fn an_id_is_new_once() {
        let mut dedup = Dedup::default();
        assert!(dedup.insert("msg_1"));
        assert!(!dedup.insert("msg_1"));
        assert!(dedup.insert(""));
        assert!(!dedup.insert(""));
    }

    #[test]
    fn the_newest_thousand_are_remembered_and_no_more() {
        let mut dedup = Dedup::default();
        for n in 0..=Dedup::IDS {
            assert!(dedup.insert(&format!("msg_{n}")));
        }
        assert!(!dedup.insert("msg_1"), "the last {} are remembered", Dedup::IDS);
        assert!(dedup.insert("msg_0"), "one more is not");
        assert_eq!(dedup.seen.len(), Dedup::IDS);
    }
}
