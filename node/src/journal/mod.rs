//! The journal on the disk: relay-core's [`Journal`] in one SQLite file, as the services of this program keep it and for
//! whoever embeds them.
//!
//! A batch is one transaction that is synced before it is acknowledged. Every row carries a checksum that is checked
//! whenever the row is read. One process writes; any number read beside it, with [`verify()`], [`export()`] and
//! [`backup()`].
//!
//! Two things keep a second writer out: a lock on a file beside the journal, and the epoch. Opening takes the next epoch,
//! and whoever appends under an older one is refused, so that a writer whose lock was lost (a lock file that somebody
//! removed, a disk that several machines share) cannot write into what another goes on with.
//!
//! ```no_run
//! use relay_core::journal::{Journal, Seq};
//! use relay_node::journal::SqliteJournal;
//!
//! let mut journal = SqliteJournal::open("link.db".as_ref())?;
//! let (epoch, newest) = (journal.epoch(), journal.newest());
//! journal.replay(Seq::new(1), &mut |_seq, _record| ())?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod backup;
mod export;
mod fault;
mod file;
mod rows;
mod verify;

use std::path::{Path, PathBuf};

use relay_core::journal::{Journal, JournalError, Records, Seq};
use rusqlite::{Connection, TransactionBehavior};

pub use backup::{BackedUp, backup};
pub use export::{Exported, Kind, Tally, each_row, export};
pub use fault::{Fault, OpenError, Why, Wrong};
pub use rows::MAX_ROW;
pub use verify::{Verified, verify};

use crate::atomic;
use fault::Trouble;
use file::Lock;
use rows::{Extent, Head};

/// The format of the file that this version writes, and the newest that it reads.
pub const FORMAT: u32 = 1;

/// The version of the program, as a file has it that it wrote.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A journal that this process alone writes.
#[derive(Debug)]
pub struct SqliteJournal {
    path: PathBuf,
    /// `None` from a failure of the disk until it is opened again.
    conn: Option<Connection>,
    epoch: u64,
    extent: Extent,
    /// The checksum of the newest record, where this writer wrote it and no snapshot has cut it.
    tip: Option<i64>,
    fault: Option<Fault>,
    // Behind the connection, so that it is given up last.
    _lock: Lock,
}

impl SqliteJournal {
    /// Opens the journal at `path` under the next epoch. One that is not there is made, for its owner alone (0600), and
    /// so are the folders above it (0700).
    ///
    /// # Errors
    /// Another process writes it, a later version wrote it, it is damaged, or the disk or the operating system fails.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        Self::take(path).map_err(|why| OpenError::new(path, why))
    }

    fn take(path: &Path) -> Result<Self, Why> {
        let path = std::path::absolute(path)?;
        if let Some(folder) = path.parent() {
            atomic::make_dir(folder)?;
        }
        let lock = Lock::take(&path)?;
        file::make(&path)?;
        let mut conn = file::writer(&path)?;
        let (epoch, extent) = begin(&mut conn)?;
        Ok(Self { path, conn: Some(conn), epoch, extent, tip: None, fault: None, _lock: lock })
    }

    /// The epoch to append under: one more than that of the writer before.
    #[must_use]
    pub const fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What was wrong on the disk, and with which record, the last time that this said [`JournalError::Corrupt`].
    #[must_use]
    pub const fn fault(&self) -> Option<&Fault> {
        self.fault.as_ref()
    }

    /// Works on the open journal. A failure of SQLite closes it: what of the work is on the disk is known only once it
    /// has been opened again.
    fn attempt<T>(
        &mut self,
        work: impl FnOnce(&mut Self, &mut Connection) -> Result<T, Trouble>,
    ) -> Result<T, JournalError> {
        let mut conn = match self.conn.take() {
            Some(conn) => conn,
            None => self.connect_again()?,
        };
        let worked = work(self, &mut conn);
        if !matches!(worked, Err(Trouble::Sqlite(_))) {
            self.conn = Some(conn);
        }
        worked.map_err(|trouble| self.note(trouble.fault(), trouble.kind()))
    }

    fn note(&mut self, fault: Option<Fault>, kind: JournalError) -> JournalError {
        if fault.is_some() {
            self.fault = fault;
        }
        kind
    }

    fn connect_again(&mut self) -> Result<Connection, JournalError> {
        let mut conn = file::writer(&self.path).map_err(|why| match why {
            Why::Damaged(fault) => self.note(Some(fault), JournalError::Corrupt),
            Why::Journal(error) => error,
            Why::Foreign => JournalError::Corrupt,
            Why::Newer { .. } => JournalError::Superseded,
            Why::Missing | Why::Exists | Why::Held(_) | Why::Orphan(_) | Why::Refused(_) | Why::Io(_) => {
                JournalError::Failed
            }
        })?;
        match self.settle(&mut conn) {
            Ok(()) => Ok(conn),
            Err(trouble) => Err(self.note(trouble.fault(), trouble.kind())),
        }
    }

    /// Makes durable what is there after a failure, and compares it with what was acknowledged.
    fn settle(&mut self, conn: &mut Connection) -> Result<(), Trouble> {
        file::fold_log(conn)?;
        let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut head = self.current(&tx)?;
        let extent = Extent::read(&tx)?;
        if extent.newest < self.extent.newest || extent.base < self.extent.base {
            return Err(Trouble::Fault(Fault::at(extent.newest.next(), Wrong::Missing)));
        }
        if let Some(sum) = self.tip.filter(|_| self.extent.newest > extent.base) {
            rows::compare_checksum(&tx, self.extent.newest, sum)?;
        }
        // Something is written, so that the log begins anew and is synced: else an old one could come back.
        head.reopened += 1;
        head.write(&tx)?;
        tx.commit()?;
        if extent != self.extent {
            self.tip = None;
        }
        self.extent = extent;
        Ok(())
    }

    /// The head, where no other writer has taken over.
    fn current(&self, conn: &Connection) -> Result<Head, Trouble> {
        let head = Head::read(conn)?;
        if head.epoch > self.epoch { Err(Trouble::Superseded) } else { Ok(head) }
    }

    fn write(&mut self, conn: &mut Connection, epoch: u64, records: &Records) -> Result<(), Trouble> {
        let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut head = Head::read(&tx)?;
        if epoch < head.epoch {
            return Err(Trouble::Superseded);
        }
        if epoch > head.epoch {
            head.epoch = epoch;
            head.write(&tx)?;
        }
        let (first, Extent { base, newest }) = (records.first(), self.extent);
        if first <= base {
            return Err(Trouble::Fault(Fault::at(first, Wrong::Covered)));
        }
        if first > newest.next() {
            return Err(Trouble::Fault(Fault::at(newest.next(), Wrong::Missing)));
        }
        let mut tip = self.tip;
        for (seq, record) in records.iter() {
            if seq <= newest {
                rows::compare(&tx, seq, record)?;
            } else {
                tip = Some(rows::insert(&tx, seq, record)?);
            }
        }
        tx.commit()?;
        self.epoch = epoch;
        self.tip = tip;
        self.extent.newest = newest.max(records.last());
        Ok(())
    }

    fn cut(&mut self, conn: &mut Connection, upto: Seq, snapshot: &[u8]) -> Result<(), Trouble> {
        let Extent { base, newest } = self.extent;
        if upto < base {
            return Err(Trouble::Fault(Fault::at(upto, Wrong::Covered)));
        }
        if upto > newest {
            return Err(Trouble::Fault(Fault::at(newest.next(), Wrong::Missing)));
        }
        let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        self.current(&tx)?;
        rows::put_snapshot(&tx, upto, snapshot)?;
        tx.commit()?;
        self.extent.base = upto;
        if upto == newest {
            self.tip = None;
        }
        Ok(())
    }

    fn read(&self, conn: &Connection, from: Seq, each: &mut dyn FnMut(Seq, &[u8])) -> Result<(), Trouble> {
        let mut next = from.max(self.extent.base.next());
        rows::walk(conn, next, &mut |held| {
            if held.seq != next {
                return Err(Trouble::Fault(Fault::at(next, Wrong::Missing)));
            }
            if !held.sound {
                return Err(Trouble::Fault(Fault::at(next, Wrong::Checksum)));
            }
            each(held.seq, held.record);
            next = next.next();
            Ok(())
        })?;
        if next <= self.extent.newest {
            return Err(Trouble::Fault(Fault::at(next, Wrong::Missing)));
        }
        Ok(())
    }
}

impl Journal for SqliteJournal {
    fn newest(&self) -> Seq {
        self.extent.newest
    }

    fn append(&mut self, epoch: u64, records: &Records) -> Result<(), JournalError> {
        if records.is_empty() {
            return Ok(());
        }
        self.attempt(|journal, conn| journal.write(conn, epoch, records))
    }

    /// Opens again, compares what is there with what was acknowledged, and writes the log a second time, into the file:
    /// that needs as much room as the log has (some 4 MiB, more beside a long read), and that nobody else reads.
    fn reopen(&mut self) -> Result<Seq, JournalError> {
        self.conn = None;
        self.conn = Some(self.connect_again()?);
        Ok(self.extent.newest)
    }

    /// Gives every record from `from` on, in order, one in memory at a time; those that a snapshot has cut are left out.
    fn replay(&mut self, from: Seq, each: &mut dyn FnMut(Seq, &[u8])) -> Result<(), JournalError> {
        self.attempt(|journal, conn| journal.read(conn, from, each))
    }

    /// Keeps a snapshot and cuts the records at or before `upto`, both or neither.
    fn put_snapshot(&mut self, upto: Seq, snapshot: &[u8]) -> Result<(), JournalError> {
        self.attempt(|journal, conn| journal.cut(conn, upto, snapshot))
    }

    fn snapshot(&mut self) -> Result<Option<(Seq, Vec<u8>)>, JournalError> {
        self.attempt(|_, conn| match rows::snapshot(conn)? {
            Some((_, _, false)) => Err(Trouble::Fault(Fault::whole(Wrong::Snapshot))),
            Some((upto, bytes, true)) => Ok(Some((upto, bytes))),
            None => Ok(None),
        })
    }
}

/// Takes the next epoch.
fn begin(conn: &mut Connection) -> Result<(u64, Extent), Trouble> {
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut head = Head::read(&tx)?;
    let extent = Extent::read(&tx)?;
    head.epoch = head.epoch.checked_add(1).ok_or(Trouble::TooLarge)?;
    VERSION.clone_into(&mut head.written_by);
    head.write(&tx)?;
    tx.commit()?;
    Ok((head.epoch, extent))
}

#[cfg(test)]
mod tests;
