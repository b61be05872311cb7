//! A node's disk: what is durable of its journal and its files.

use alloc::collections::BTreeMap;

use relay_core::action::{ActError, ActOutput, Acted, Action, Contents, FilePath};
use relay_core::journal::{Journal, JournalError, Records, Seq};
use relay_core::machine::{BadRecord, Durable};

/// What a disk does with writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(clippy::exhaustive_enums)]
pub enum DiskFault {
    /// There is no room.
    Full,
    /// A sync fails. How much of what it should have kept is on the disk all the same is drawn.
    Failing,
}

/// What a crash leaves: records, a snapshot and files.
///
/// It is a [`Journal`] whose batches are durable at once; the world decides when a batch reaches it.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    /// The record that the log starts behind.
    base: Seq,
    log: Vec<Box<[u8]>>,
    snapshot: Option<(Seq, Vec<u8>)>,
    files: BTreeMap<FilePath, Contents>,
    epoch: u64,
    fault: Option<DiskFault>,
}

impl Disk {
    /// The durable records with their places, behind the snapshot where one cut the log.
    pub fn records(&self) -> impl Iterator<Item = (Seq, &[u8])> {
        (self.base.number() + 1..).map(Seq::new).zip(self.log.iter().map(|record| &**record))
    }

    /// Brings a new machine to where the durable records end: the snapshot first, then each record behind it.
    ///
    /// # Errors
    /// As for [`Durable::restore`].
    pub fn restore<M: Durable>(&self, mut machine: M) -> Result<M, BadRecord> {
        if let Some((_, snapshot)) = &self.snapshot {
            machine.restore_snapshot(snapshot)?;
        }
        for (seq, record) in self.records() {
            machine.restore(seq, record)?;
        }
        Ok(machine)
    }

    /// A durable file.
    #[must_use]
    pub fn file(&self, path: &str) -> Option<&Contents> {
        self.files.get(&FilePath::new(path)?)
    }

    /// All durable files, by path.
    pub fn files(&self) -> impl Iterator<Item = (&str, &Contents)> {
        self.files.iter().map(|(path, contents)| (path.as_str(), contents))
    }

    /// Puts a file there, as an installation does before the first start.
    ///
    /// # Panics
    /// Where `path` is no [`FilePath`].
    pub fn put_file(&mut self, path: &str, contents: Contents) {
        let path = FilePath::new(path).expect("a path below the home");
        self.files.insert(path, contents);
    }

    pub(crate) const fn fault(&self) -> Option<DiskFault> {
        self.fault
    }

    pub(crate) const fn set_fault(&mut self, fault: Option<DiskFault>) {
        self.fault = fault;
    }

    /// Carries out an action on files.
    pub(crate) fn carry_out(&mut self, action: &Action) -> Acted {
        match action {
            Action::WriteFile { path, contents } => {
                self.check_fault()?;
                self.files.insert(path.clone(), contents.clone());
                Ok(ActOutput::Done)
            }
            Action::RemoveFile { path } => {
                // Removing needs no room.
                if self.fault == Some(DiskFault::Failing) {
                    return Err(ActError::Failed);
                }
                self.files.remove(path);
                Ok(ActOutput::Done)
            }
            Action::ReadFile { path, limit } => match self.files.get(path) {
                None => Err(ActError::NotFound),
                Some(contents) if contents.as_bytes().len() > *limit => Err(ActError::TooLarge),
                Some(contents) => Ok(ActOutput::Contents(contents.clone())),
            },
            _ => Err(ActError::Unsupported),
        }
    }

    /// Takes a batch although the disk failed to say so.
    pub(crate) fn keep(&mut self, records: &Records) -> Result<(), JournalError> {
        if records.is_empty() {
            return Ok(());
        }
        if records.first() > self.newest().next() || records.first() <= self.base {
            return Err(JournalError::Corrupt);
        }
        for (seq, record) in records.iter() {
            let index = (seq.number() - self.base.number() - 1) as usize;
            match self.log.get(index) {
                Some(kept) if **kept == *record => {}
                Some(_) => return Err(JournalError::Corrupt),
                None => self.log.push(record.into()),
            }
        }
        Ok(())
    }

    const fn check_fault(&self) -> Result<(), ActError> {
        match self.fault {
            None => Ok(()),
            Some(DiskFault::Full) => Err(ActError::Full),
            Some(DiskFault::Failing) => Err(ActError::Failed),
        }
    }
}

impl Journal for Disk {
    fn newest(&self) -> Seq {
        Seq::new(self.base.number() + self.log.len() as u64)
    }

    fn append(&mut self, epoch: u64, records: &Records) -> Result<(), JournalError> {
        if epoch < self.epoch {
            return Err(JournalError::Superseded);
        }
        self.epoch = epoch;
        match self.fault {
            None => self.keep(records),
            Some(DiskFault::Full) => Err(JournalError::Full),
            Some(DiskFault::Failing) => Err(JournalError::Failed),
        }
    }

    fn reopen(&mut self) -> Result<Seq, JournalError> {
        match self.fault {
            None => Ok(self.newest()),
            Some(DiskFault::Full) => Err(JournalError::Full),
            Some(DiskFault::Failing) => Err(JournalError::Failed),
        }
    }

    fn replay(&mut self, from: Seq, each: &mut dyn FnMut(Seq, &[u8])) -> Result<(), JournalError> {
        for (seq, record) in self.records().filter(|(seq, _)| *seq >= from) {
            each(seq, record);
        }
        Ok(())
    }

    fn put_snapshot(&mut self, upto: Seq, snapshot: &[u8]) -> Result<(), JournalError> {
        if upto > self.newest() || upto < self.base {
            return Err(JournalError::Corrupt);
        }
        self.log.drain(..(upto.number() - self.base.number()) as usize);
        self.base = upto;
        self.snapshot = Some((upto, snapshot.to_vec()));
        Ok(())
    }

    fn snapshot(&mut self) -> Result<Option<(Seq, Vec<u8>)>, JournalError> {
        Ok(self.snapshot.clone())
    }
}
