//! The file of a journal: how it is made, opened, told from other files and kept from a second writer.

use core::time::Duration;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};

use super::fault::{Trouble, Why};
use super::rows::Head;
use super::{FORMAT, VERSION};
use crate::{atomic, sole};

/// What marks a file as a journal of ours: `RLYJ`.
const APPLICATION: i32 = 0x524c_594a;
/// How long a statement waits for another process.
const BUSY: Duration = Duration::from_secs(2);
/// The log is cut back to this where it was longer, in bytes.
const LOG_KEPT: i64 = 16 << 20;

const SCHEMA: &str = "
    CREATE TABLE head (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        epoch INTEGER NOT NULL,
        reopened INTEGER NOT NULL,
        written_by TEXT NOT NULL,
        checksum INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE records (
        seq INTEGER PRIMARY KEY,
        record BLOB NOT NULL,
        checksum INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE snapshot (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        upto INTEGER NOT NULL,
        snapshot BLOB NOT NULL,
        checksum INTEGER NOT NULL
    ) STRICT;
";

/// Makes an empty journal at `path` unless something is there. It has its name only once it is whole and synced.
pub(super) fn make(path: &Path) -> Result<(), Why> {
    if path.try_exists()? {
        return Ok(());
    }
    // SQLite would take a log that was left behind for this new file's own.
    let log = beside(path, "-wal");
    if log.try_exists()? {
        return Err(Why::Orphan(log));
    }
    atomic::fill_new(path, atomic::PRIVATE, |temporary| {
        let conn = connect(temporary, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        conn.execute_batch("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF")?;
        conn.execute_batch(SCHEMA)?;
        Head { epoch: 0, reopened: 0, written_by: VERSION.to_owned() }.write(&conn)?;
        conn.pragma_update(None, "application_id", APPLICATION)?;
        conn.pragma_update(None, "user_version", FORMAT)?;
        close(conn)
    })?;
    Ok(())
}

/// Opens the journal at `path` to write it; never makes one.
pub(super) fn writer(path: &Path) -> Result<Connection, Why> {
    let conn = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    check_format(&conn)?;
    conn.execute_batch("PRAGMA synchronous = FULL; PRAGMA fullfsync = ON; PRAGMA checkpoint_fullfsync = ON")?;
    conn.pragma_update(None, "journal_size_limit", LOG_KEPT)?;
    let mode: String = conn.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
    if mode != "wal" {
        return Err(Why::Refused(format!("it cannot be written beside readers there (mode {mode})")));
    }
    Ok(conn)
}

/// Opens the journal at `path` to read it as it is now, beside whoever writes it. Nothing that is written later is seen.
pub(super) fn reader(path: &Path) -> Result<Connection, Why> {
    if !path.try_exists()? {
        return Err(Why::Missing);
    }
    let conn = connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    conn.execute_batch("BEGIN")?;
    check_format(&conn)?;
    Ok(conn)
}

/// Makes the copy of a journal one file without companions.
pub(super) fn detach(path: &Path) -> Result<(), Why> {
    let conn = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    conn.query_row("PRAGMA journal_mode = DELETE", [], |_| Ok(()))?;
    close(conn)
}

/// Closes what was written, and tells of what went wrong at that.
pub(super) fn close(conn: Connection) -> Result<(), Why> {
    conn.close().map_err(|(_, error)| error.into())
}

pub(super) fn connect(path: &Path, flags: OpenFlags) -> Result<Connection, Why> {
    let conn = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    conn.busy_timeout(BUSY)?;
    conn.execute_batch("PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON")?;
    Ok(conn)
}

fn check_format(conn: &Connection) -> Result<(), Why> {
    let number = |name| conn.pragma_query_value(None, name, |row| row.get::<_, i32>(0));
    if number("application_id")? != APPLICATION {
        return Err(Why::Foreign);
    }
    let format = u32::try_from(number("user_version")?).unwrap_or(0);
    if format > FORMAT {
        // Every format has this column in this table.
        let written_by = conn.query_row("SELECT written_by FROM head", [], |row| row.get(0));
        return Err(Why::Newer { format, written_by: written_by.unwrap_or_else(|_| "(unknown)".into()) });
    }
    if format == 0 { Err(Why::Foreign) } else { Ok(()) }
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(ending);
    name.into()
}

/// Keeps other processes from writing the same journal, until it is dropped or the process ends, however it ends.
///
/// It is a file of its own: SQLite's locks on the journal would be lost where any other descriptor of it is closed.
#[derive(Debug)]
pub(super) struct Lock {
    file: File,
}

impl Lock {
    pub(super) fn take(path: &Path) -> Result<Self, Why> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(atomic::PRIVATE);
        let mut file = options.open(beside(path, ".lock"))?;
        if !sole::take(&mut file).map_err(|error| Why::Io(error.into()))? {
            return Err(Why::Held(sole::holder(&mut file, 16)));
        }
        // Who holds it is only for people: a full disk does not stop it.
        let _ = file.set_len(0).and_then(|()| file.rewind());
        let _ = writeln!(file, "{}", std::process::id());
        Ok(Self { file })
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        sole::leave(&self.file);
    }
}

/// Writes the whole log into the file, so that none of it rests on a sync that failed.
///
/// What a failed sync leaves in the log may be in memory alone, and a second sync would not tell. Written again, into the
/// file and synced there, it is durable or fails.
pub(super) fn fold_log(conn: &Connection) -> Result<(), Trouble> {
    let busy: i64 = conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))?;
    if busy == 0 { Ok(()) } else { Err(Trouble::Busy) }
}
