//! What must be durable: sequence numbers, batches of records, and the port that a journal stands behind.

use alloc::vec::Vec;
use core::fmt;

/// The place of a record in its journal, from 1; 0 is "before the first".
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Seq(u64);

impl Seq {
    /// Before the first record.
    pub const NONE: Self = Self(0);

    /// The `number`th record.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }

    /// The record behind this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// Consecutive records, in one buffer.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Records {
    first: Seq,
    bytes: Vec<u8>,
    ends: Vec<usize>,
    /// All that the records up to there built, which the journal may be cut behind.
    snapshot: Option<(Seq, Vec<u8>)>,
}

impl Records {
    /// An empty batch whose first record will be `first`, reusing the buffers of a spent one.
    #[must_use]
    pub fn reuse(mut spent: Self, first: Seq) -> Self {
        spent.bytes.clear();
        spent.ends.clear();
        spent.first = first;
        spent.snapshot = None;
        spent
    }

    /// Puts a record behind the others: what `write` puts behind the bytes that it is given, which it leaves as they are.
    /// A machine's records come through its outbox; this is for whoever tests a journal.
    pub fn push(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let before = self.bytes.len();
        write(&mut self.bytes);
        debug_assert!(before <= self.bytes.len(), "a record only adds bytes");
        self.ends.push(self.bytes.len());
    }

    /// Adds what all records up to the last one built.
    pub(crate) fn snap(&mut self, snapshot: Vec<u8>) {
        self.snapshot = Some((self.last(), snapshot));
    }

    /// The newest snapshot that came with these records, and the record that it reaches to: to be put into the journal
    /// once the records are durable. Without it nothing is lost but room.
    #[must_use]
    pub fn snapshot(&self) -> Option<(Seq, &[u8])> {
        self.snapshot.as_ref().map(|(upto, snapshot)| (*upto, &**snapshot))
    }

    /// Puts the records of `later`, which follow these, behind them.
    ///
    /// # Panics
    /// In debug builds, where `later` does not follow.
    pub fn append(&mut self, later: &Self) {
        debug_assert!(self.is_empty() || later.is_empty() || self.last().next() == later.first);
        if self.is_empty() {
            self.first = later.first;
        }
        if later.snapshot.is_some() {
            self.snapshot.clone_from(&later.snapshot);
        }
        let base = self.bytes.len();
        self.bytes.extend_from_slice(&later.bytes);
        self.ends.extend(later.ends.iter().map(|end| end + base));
    }

    /// How many records.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Their bytes together.
    #[must_use]
    pub const fn size(&self) -> usize {
        self.bytes.len()
    }

    /// The place of the first one.
    #[must_use]
    pub const fn first(&self) -> Seq {
        self.first
    }

    /// The place of the last one; that before the first, where there is none.
    #[must_use]
    pub const fn last(&self) -> Seq {
        Seq((self.first.0 + self.ends.len() as u64).saturating_sub(1))
    }

    /// Each record with its place, in order.
    pub fn iter(&self) -> impl Iterator<Item = (Seq, &[u8])> {
        let starts = core::iter::once(0).chain(self.ends.iter().copied());
        starts
            .zip(&self.ends)
            .zip(self.first.0..)
            .map(|((start, end), seq)| (Seq(seq), &self.bytes[start..*end]))
    }
}

/// An ordered, durable log. It runs on a thread of its own; a driver never waits for it.
///
/// An epoch fences a superseded writer: a journal refuses a batch under an epoch older than the newest it has seen,
/// so that a shared engine with a standby can stand behind the same port.
pub trait Journal: Send + 'static {
    /// The newest durable record.
    fn newest(&self) -> Seq;

    /// Makes a batch durable, whole or not at all. Records that it already holds, byte for byte, are no error: a batch
    /// whose fate was unknown is repeated after [`reopen`](Self::reopen).
    ///
    /// # Errors
    /// Nothing of the batch may be acknowledged.
    fn append(&mut self, epoch: u64, records: &Records) -> Result<(), JournalError>;

    /// Opens again after a failure and says what is durable now.
    ///
    /// # Errors
    /// It fails still; it will be asked again.
    fn reopen(&mut self) -> Result<Seq, JournalError>;

    /// Gives every record from `from` on, in order.
    ///
    /// # Errors
    /// The journal cannot be read.
    fn replay(&mut self, from: Seq, each: &mut dyn FnMut(Seq, &[u8])) -> Result<(), JournalError>;

    /// Keeps a snapshot of all up to `upto`, in place of an older one.
    ///
    /// # Errors
    /// The older snapshot stands.
    fn put_snapshot(&mut self, upto: Seq, snapshot: &[u8]) -> Result<(), JournalError>;

    /// The newest snapshot, and the record that it reaches to.
    ///
    /// # Errors
    /// The journal cannot be read.
    fn snapshot(&mut self) -> Result<Option<(Seq, Vec<u8>)>, JournalError>;
}

/// Why a journal failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum JournalError {
    /// The disk is full.
    Full,
    /// The disk fails.
    Failed,
    /// What is on the disk is not what was written.
    Corrupt,
    /// Another writer has taken over.
    Superseded,
}

impl fmt::Display for JournalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "the journal's disk is full",
            Self::Failed => "the journal's disk fails",
            Self::Corrupt => "the journal is damaged",
            Self::Superseded => "another writer has taken the journal over",
        })
    }
}

impl core::error::Error for JournalError {}

/// A journal that keeps nothing and never fails, for a machine that records nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NullJournal {
    newest: Seq,
}

impl Journal for NullJournal {
    fn newest(&self) -> Seq {
        self.newest
    }

    fn append(&mut self, _epoch: u64, records: &Records) -> Result<(), JournalError> {
        self.newest = records.last();
        Ok(())
    }

    fn reopen(&mut self) -> Result<Seq, JournalError> {
        Ok(self.newest)
    }

    fn replay(&mut self, _from: Seq, _each: &mut dyn FnMut(Seq, &[u8])) -> Result<(), JournalError> {
        Ok(())
    }

    fn put_snapshot(&mut self, _upto: Seq, _snapshot: &[u8]) -> Result<(), JournalError> {
        Ok(())
    }

    fn snapshot(&mut self) -> Result<Option<(Seq, Vec<u8>)>, JournalError> {
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    #[test]
    fn a_batch_numbers_its_records_from_its_first() {
        let mut batch = Records::reuse(Records::default(), Seq::new(5));
        assert_eq!(batch.last(), Seq::new(4));
        batch.push(|out| out.extend_from_slice(b"one"));
        batch.push(|_| ());
        batch.push(|out| out.extend_from_slice(b"three"));
        let all: Vec<_> = batch.iter().collect();
        assert_eq!(
            all,
            vec![(Seq::new(5), &b"one"[..]), (Seq::new(6), &b""[..]), (Seq::new(7), &b"three"[..])]
        );
        assert_eq!((batch.len(), batch.last(), batch.size()), (3, Seq::new(7), 8));
    }

    #[test]
    fn batches_that_follow_each_other_join() {
        let mut one = Records::reuse(Records::default(), Seq::new(1));
        one.push(|out| out.push(b'a'));
        let mut two = Records::reuse(Records::default(), Seq::new(2));
        two.push(|out| out.push(b'b'));
        two.push(|out| out.push(b'c'));
        one.append(&two);
        assert_eq!(one.iter().map(|(_, r)| r[0]).collect::<Vec<_>>(), b"abc");
        assert_eq!(one.last(), Seq::new(3));
    }

    #[test]
    fn of_two_snapshots_the_newer_is_kept_and_a_reused_batch_has_none() {
        let mut one = Records::reuse(Records::default(), Seq::new(1));
        one.push(|out| out.push(b'a'));
        one.snap(vec![1]);
        let mut two = Records::reuse(Records::default(), Seq::new(2));
        two.push(|out| out.push(b'b'));
        one.append(&two);
        assert_eq!(one.snapshot(), Some((Seq::new(1), &[1][..])));
        two.snap(vec![2]);
        let mut first = Records::reuse(Records::default(), Seq::new(1));
        first.push(|out| out.push(b'a'));
        first.snap(vec![1]);
        first.append(&two);
        assert_eq!(first.snapshot(), Some((Seq::new(2), &[2][..])));
        assert_eq!(Records::reuse(first, Seq::new(3)).snapshot(), None);
    }
}
