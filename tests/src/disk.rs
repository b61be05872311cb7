//! A journal in memory that waits or fails when told to.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use relay_core::journal::{Journal, JournalError, Records, Seq};

/// The journal, and the hand that holds it. Clones are the same disk.
#[derive(Clone, Default)]
pub struct Disk(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    records: Vec<Vec<u8>>,
    held: bool,
    full: bool,
    begun: u64,
}

impl Disk {
    /// Lets every append wait until [`release`](Self::release).
    pub fn hold(&self) {
        self.change(|state| state.held = true);
    }

    /// Lets appends go on.
    pub fn release(&self) {
        self.change(|state| state.held = false);
    }

    /// Lets appends fail, or no longer.
    pub fn fill(&self, full: bool) {
        self.change(|state| state.full = full);
    }

    /// The durable records as text.
    #[must_use]
    pub fn records(&self) -> Vec<String> {
        let state = self.0.lock();
        state.records.iter().map(|record| String::from_utf8_lossy(record).into_owned()).collect()
    }

    /// Waits until so many appends have begun; false where they have not in time.
    #[must_use]
    pub fn wait_begun(&self, count: u64, timeout: Duration) -> bool {
        let until = Instant::now() + timeout;
        let mut state = self.0.lock();
        while state.begun < count {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            state = self.0.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.0.lock());
        self.0.changed.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Journal for Disk {
    fn newest(&self) -> Seq {
        Seq::new(self.0.lock().records.len() as u64)
    }

    fn append(&mut self, _epoch: u64, records: &Records) -> Result<(), JournalError> {
        self.change(|state| state.begun += 1);
        let mut state = self.0.lock();
        while state.held {
            state = self.0.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.full {
            return Err(JournalError::Full);
        }
        for (seq, record) in records.iter() {
            match (seq.number() as usize).checked_sub(state.records.len() + 1) {
                Some(0) => state.records.push(record.to_vec()),
                Some(_) => return Err(JournalError::Corrupt),
                None if state.records[seq.number() as usize - 1] == record => {}
                None => return Err(JournalError::Corrupt),
            }
        }
        Ok(())
    }

    fn reopen(&mut self) -> Result<Seq, JournalError> {
        let state = self.0.lock();
        if state.full { Err(JournalError::Full) } else { Ok(Seq::new(state.records.len() as u64)) }
    }

    fn replay(&mut self, from: Seq, each: &mut dyn FnMut(Seq, &[u8])) -> Result<(), JournalError> {
        for (record, seq) in self.0.lock().records.iter().zip(1..).skip_while(|(_, seq)| *seq < from.number())
        {
            each(Seq::new(seq), record);
        }
        Ok(())
    }

    fn put_snapshot(&mut self, _upto: Seq, _snapshot: &[u8]) -> Result<(), JournalError> {
        Ok(())
    }

    fn snapshot(&mut self) -> Result<Option<(Seq, Vec<u8>)>, JournalError> {
        Ok(None)
    }
}
