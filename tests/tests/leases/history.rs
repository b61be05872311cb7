//! What a journal tells of one resource that many want.

use std::collections::BTreeMap;
use std::path::Path;

use relay_core::journal::{Journal, Seq};
use relay_core::lease::Record;
use relay_node::journal::SqliteJournal;

/// The journal of one resource, read to its end. Reading it checks that no two hold at once, and that places are taken up
/// in the order in which they were given out.
#[derive(Default, Debug)]
pub(crate) struct History {
    /// The token of the lease that holds.
    pub(crate) holder: Option<u64>,
    /// Who waits: the place, and how many grants there had been when it was given out.
    pub(crate) places: BTreeMap<u64, u64>,
    pub(crate) grants: u64,
    /// Places that were left without a grant.
    pub(crate) left: u64,
    /// The most grants to others between a place and its grant.
    pub(crate) most_passed: u64,
}

impl History {
    pub(crate) fn read(path: &Path) -> Self {
        let mut history = Self::default();
        let mut journal = SqliteJournal::open(path).unwrap();
        assert_eq!(journal.snapshot().unwrap(), None, "every record is there");
        journal
            .replay(Seq::new(1), &mut |seq, bytes| history.take(seq.number(), &Record::read(bytes).unwrap()))
            .unwrap();
        history
    }

    fn take(&mut self, seq: u64, record: &Record<'_>) {
        match record {
            Record::LeaseGranted { place, .. } => {
                assert_eq!(self.holder, None, "record {seq} grants what is held");
                self.holder = Some(seq);
                let first = self.places.first_key_value().map(|(place, _)| *place);
                assert_eq!(*place, first, "record {seq}: who came first is served first");
                if let Some(since) = place.and_then(|place| self.places.remove(&place)) {
                    self.most_passed = self.most_passed.max(self.grants - since);
                }
                self.grants += 1;
            }
            Record::LeaseEnded { token, .. } => {
                assert_eq!(self.holder.take(), Some(*token), "record {seq} ends what holds");
            }
            Record::LeaseQueued { .. } => {
                self.places.insert(seq, self.grants);
            }
            Record::LeaseUnqueued { place } => {
                assert!(self.places.remove(place).is_some(), "record {seq}: nobody waits at {place}");
                self.left += 1;
            }
            Record::LeaseBoot { .. } => {}
            Record::LeaseSessionListed { .. }
            | Record::LeaseSessionGone { .. }
            | Record::LeaseSettled { .. }
            | _ => panic!("record {seq} is of no race: {record:?}"),
        }
    }
}
