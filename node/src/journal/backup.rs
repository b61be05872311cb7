//! A copy of a journal, made beside whoever writes it.

use std::path::Path;

use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags};

use super::fault::{OpenError, Trouble, Why};
use super::{Verified, file, verify};
use crate::atomic;

/// A finished copy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BackedUp {
    /// What the copy holds, read back whole. A damaged journal is copied as it is, and its faults are found here.
    pub verified: Verified,
    /// The size of the copy, in bytes.
    pub bytes: u64,
}

/// Copies the journal at `path`, as it is at one moment, into one file at `to` that its owner alone may read (0600). It has
/// its name only once it is whole and synced.
///
/// The writer goes on meanwhile; what it writes waits in its log, which grows until the copy is done.
///
/// # Errors
/// Something is at `to`, there is no journal, it cannot be read, or the disk of the copy fails or is full: nothing is at
/// `to` then.
pub fn backup(path: &Path, to: &Path) -> Result<BackedUp, OpenError> {
    let taken = || OpenError::new(to, Why::Exists);
    if to.symlink_metadata().is_ok() {
        return Err(taken());
    }
    let source = file::reader(path).map_err(|why| OpenError::new(path, why))?;
    let mut verified = None;
    let made = atomic::fill_new(to, atomic::PRIVATE, |temporary| {
        copy(&source, temporary)?;
        verified = Some(verify(temporary).map_err(|error| error.why)?);
        Ok(())
    });
    if !made.map_err(|why| OpenError::new(to, why))? {
        return Err(taken());
    }
    let bytes = to.metadata().map_err(|error| OpenError::new(to, error.into()))?.len();
    let verified = verified.expect("a copy has its name once it was read back");
    Ok(BackedUp { verified, bytes })
}

/// In one step: the source reads as of one moment already, and the copy is written out as it fills the cache.
fn copy(source: &Connection, to: &Path) -> Result<(), Why> {
    let mut target = file::connect(to, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    target.execute_batch("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF")?;
    let step = Backup::new(source, &mut target)?.step(-1)?;
    if step != StepResult::Done {
        return Err(Trouble::Busy.into());
    }
    file::close(target)?;
    file::detach(to)
}
