//! What can be wrong with a journal, and how it is said.

use core::fmt;
use std::io;
use std::path::{Path, PathBuf};

use relay_core::journal::{JournalError, Seq};
use rusqlite::ffi;
use rusqlite::types::FromSqlError;

use crate::failure::Failure;

/// Something on the disk that is not what was written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// The record that it is about, where it is about one.
    pub seq: Option<Seq>,
    /// What is wrong.
    pub what: Wrong,
}

/// What is wrong with a record, or with the journal.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Wrong {
    /// Its checksum does not hold.
    Checksum,
    /// It is not there, though later ones or the machine rest on it.
    Missing,
    /// It stands behind one that should follow it.
    Order,
    /// The snapshot reaches behind it, so that it cannot be there.
    Covered,
    /// Another record than the one that was to be written again is there.
    Differs,
    /// The snapshot's checksum does not hold.
    Snapshot,
    /// The row that holds epoch and writer is missing, or its checksum does not hold.
    Head,
    /// The file's structure is damaged; what SQLite says of it.
    Structure(String),
}

impl Fault {
    pub(super) const fn at(seq: Seq, what: Wrong) -> Self {
        Self { seq: Some(seq), what }
    }

    pub(super) const fn whole(what: Wrong) -> Self {
        Self { seq: None, what }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(seq) = self.seq {
            write!(f, "record {}: ", seq.number())?;
        }
        match &self.what {
            Wrong::Checksum => f.write_str("its checksum does not hold"),
            Wrong::Missing => f.write_str("it is missing"),
            Wrong::Order => f.write_str("it is out of order"),
            Wrong::Covered => f.write_str("it is there although the snapshot has cut it"),
            Wrong::Differs => f.write_str("another record is held in its place"),
            Wrong::Snapshot => f.write_str("the snapshot's checksum does not hold"),
            Wrong::Head => f.write_str("the row with epoch and writer does not hold"),
            Wrong::Structure(text) => write!(f, "the file cannot be read: {text}"),
        }
    }
}

/// Why work on an open journal ended early.
#[derive(Debug)]
pub(super) enum Trouble {
    /// SQLite or the disk below it failed.
    Sqlite(rusqlite::Error),
    Fault(Fault),
    Superseded,
    /// Another process reads what would have to be written over.
    Busy,
    /// A number or a text beyond what the file can hold.
    TooLarge,
}

impl Trouble {
    /// As a driver is told.
    pub(super) fn kind(&self) -> JournalError {
        match self {
            Self::Sqlite(error) => sqlite_kind(error),
            Self::Fault(_) => JournalError::Corrupt,
            Self::Superseded => JournalError::Superseded,
            Self::Busy | Self::TooLarge => JournalError::Failed,
        }
    }

    /// The fault, where what is on the disk is to blame.
    pub(super) fn fault(&self) -> Option<Fault> {
        match self {
            Self::Fault(fault) => Some(fault.clone()),
            Self::Sqlite(error) if sqlite_kind(error) == JournalError::Corrupt => {
                Some(Fault::whole(Wrong::Structure(error.to_string())))
            }
            Self::Sqlite(_) | Self::Superseded | Self::Busy | Self::TooLarge => None,
        }
    }

    /// Says that a fault of the file was met at `seq`.
    pub(super) fn met_at(self, seq: Seq) -> Self {
        match self.fault() {
            Some(Fault { seq: None, what }) => Self::Fault(Fault::at(seq, what)),
            Some(_) | None => self,
        }
    }
}

impl From<rusqlite::Error> for Trouble {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl From<FromSqlError> for Trouble {
    fn from(error: FromSqlError) -> Self {
        Self::Fault(Fault::whole(Wrong::Structure(error.to_string())))
    }
}

fn sqlite_kind(error: &rusqlite::Error) -> JournalError {
    // What is not SQLite's own failure is a row or a type that our statements do not expect, so not what was written.
    let Some(inner) = error.sqlite_error() else { return JournalError::Corrupt };
    // The index that readers share could not grow.
    if inner.extended_code == ffi::SQLITE_IOERR_SHMSIZE {
        return JournalError::Full;
    }
    match inner.extended_code & 0xff {
        ffi::SQLITE_FULL => JournalError::Full,
        ffi::SQLITE_CORRUPT | ffi::SQLITE_NOTADB => JournalError::Corrupt,
        // Our statements are fixed: what does not fit them is another schema or other rows than those that were made.
        ffi::SQLITE_ERROR | ffi::SQLITE_CONSTRAINT => JournalError::Corrupt,
        _ => JournalError::Failed,
    }
}

/// Why a journal could not be opened, read or copied.
#[derive(Debug)]
pub struct OpenError {
    /// The journal, or the copy where that is what failed.
    pub path: PathBuf,
    /// Why.
    pub why: Why,
}

/// What stands in the way of a journal.
#[derive(Debug)]
#[non_exhaustive]
pub enum Why {
    /// There is none.
    Missing,
    /// Something is there already, and is not written over.
    Exists,
    /// Another process writes it; what that one said of itself.
    Held(String),
    /// A database of another program.
    Foreign,
    /// A later version of this program wrote it.
    Newer {
        /// The format of the file.
        format: u32,
        /// The version that wrote it last.
        written_by: String,
    },
    /// The log of a journal is there without its journal.
    Orphan(PathBuf),
    /// The journal itself fails.
    Journal(JournalError),
    /// It is damaged.
    Damaged(Fault),
    /// SQLite said no.
    Refused(String),
    /// The operating system said no.
    Io(io::Error),
}

impl OpenError {
    pub(super) fn new(path: &Path, why: Why) -> Self {
        Self { path: path.to_owned(), why }
    }

    /// What happened, without a full stop.
    fn message(&self) -> String {
        let path = self.path.display();
        match &self.why {
            Why::Missing => format!("there is no journal at {path}"),
            Why::Exists => format!("{path} is there already and is not written over"),
            Why::Held(holder) if holder.is_empty() => {
                format!("another process writes the journal {path}")
            }
            Why::Held(holder) => format!("process {holder} writes the journal {path}"),
            Why::Foreign => format!("{path} is no journal of relay"),
            Why::Newer { format, written_by } => format!(
                "the journal {path} was written by relay {written_by} in format {format}, and this is relay {}, which \
                 reads up to format {}",
                super::VERSION,
                super::FORMAT
            ),
            Why::Orphan(log) => format!("{} is there without {path}, which it belongs to", log.display()),
            Why::Journal(error) => format!("cannot use the journal {path}: {error}"),
            Why::Damaged(fault) => format!("the journal {path} is damaged: {fault}"),
            Why::Refused(text) => format!("cannot use the journal {path}: {text}"),
            Why::Io(error) => format!("cannot use {path}: {error}"),
        }
    }

    /// The next thing to try.
    fn hint(&self) -> String {
        match &self.why {
            Why::Missing => "A service makes it when it first starts with it; or name another home: --home DIR.".into(),
            Why::Exists => "Name another file, or move that one away.".into(),
            Why::Held(_) => "Stop that process first; to read a journal beside it is possible.".into(),
            Why::Foreign => "Move it away, or name another home: --home DIR.".into(),
            Why::Newer { written_by, .. } => {
                format!("Run relay {written_by} or later, or put a backup of this version in its place.")
            }
            Why::Orphan(_) => "Put the journal back beside it; if that is lost, move this file away.".into(),
            Why::Damaged(_) => {
                "See how far it holds: relay journal verify. What can be read: relay journal export. Then put a backup \
                 in its place."
                    .into()
            }
            Why::Journal(JournalError::Full) => "Free some space on that disk and try again.".into(),
            Why::Journal(_) | Why::Refused(_) | Why::Io(_) => {
                "Check the disk, who owns the file and its mode, and try again.".into()
            }
        }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}. {}", self.message(), self.hint())
    }
}

impl core::error::Error for OpenError {}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        let (message, hint) = (error.message(), error.hint());
        match error.why {
            Why::Damaged(_) | Why::Foreign | Why::Journal(JournalError::Corrupt) => {
                Self::check(message, hint)
            }
            Why::Missing
            | Why::Exists
            | Why::Held(_)
            | Why::Newer { .. }
            | Why::Orphan(_)
            | Why::Journal(_)
            | Why::Refused(_)
            | Why::Io(_) => Self::refused(message, hint),
        }
    }
}

impl From<Trouble> for Why {
    fn from(trouble: Trouble) -> Self {
        match (trouble.fault(), &trouble) {
            (Some(fault), _) => Self::Damaged(fault),
            (None, Trouble::Sqlite(error)) if trouble.kind() == JournalError::Failed => {
                Self::Refused(error.to_string())
            }
            (None, _) => Self::Journal(trouble.kind()),
        }
    }
}

impl From<rusqlite::Error> for Why {
    fn from(error: rusqlite::Error) -> Self {
        Trouble::from(error).into()
    }
}

impl From<io::Error> for Why {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::StorageFull {
            return Self::Journal(JournalError::Full);
        }
        Self::Io(error)
    }
}
