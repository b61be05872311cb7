//! A journal as lines of JSON, for people and for other programs.

use std::io::{self, Write};
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use relay_core::journal::Seq;
use rusqlite::Connection;
use serde::Serialize;
use serde::de::IgnoredAny;

use super::fault::{OpenError, Trouble, Why};
use super::{file, rows};

/// What an exported line is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
#[allow(clippy::exhaustive_enums)]
pub enum Kind {
    /// The snapshot, which stands for all records up to its number.
    Snapshot,
    /// A record.
    Record,
}

/// A line: the snapshot, which comes first, or a record.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct Exported<'r> {
    /// Which of the two.
    pub kind: Kind,
    /// The record's number, or the last that the snapshot stands for.
    pub seq: u64,
    /// Its bytes, where they are JSON: as a text, since that keeps every one of them.
    pub text: Option<&'r str>,
    /// Its bytes in base64, where they are not.
    pub base64: Option<String>,
    /// Whether its checksum holds.
    pub checksum_ok: bool,
}

impl<'r> Exported<'r> {
    fn new(kind: Kind, seq: Seq, bytes: &'r [u8], checksum_ok: bool) -> Self {
        let text = str::from_utf8(bytes).ok().filter(|text| serde_json::from_str::<IgnoredAny>(text).is_ok());
        let base64 = if text.is_none() { Some(STANDARD.encode(bytes)) } else { None };
        Self { kind, seq: seq.number(), text, base64, checksum_ok }
    }
}

/// How much was exported.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// How many records.
    pub records: u64,
    /// How many rows have a checksum that does not hold.
    pub faults: u64,
}

/// Writes the journal at `path` to `out`, an object a line, beside whoever writes it. Rows whose checksum does not hold are
/// written too, and say so.
///
/// # Errors
/// As for [`each_row`]; and `out` failed.
pub fn export(path: &Path, out: &mut dyn Write) -> Result<Tally, OpenError> {
    let tally = each_row(path, &mut |row| {
        serde_json::to_writer(&mut *out, row)?;
        out.write_all(b"\n")
    })?;
    out.flush().map_err(|error| OpenError::new(path, Why::Io(error)))?;
    Ok(tally)
}

/// Gives each row of the journal at `path` as it is exported, one in memory at a time.
///
/// # Errors
/// There is none, it is none of ours, a later version wrote it, the disk fails, or the file is damaged so far that it
/// cannot be read on; and `each` failed.
pub fn each_row(
    path: &Path,
    each: &mut dyn FnMut(&Exported<'_>) -> io::Result<()>,
) -> Result<Tally, OpenError> {
    let mut read = || {
        let conn = file::reader(path)?;
        let mut failed = None;
        let mut tally = Tally::default();
        let read = give(&conn, &mut |row| {
            tally.records += u64::from(row.kind == Kind::Record);
            tally.faults += u64::from(!row.checksum_ok);
            let given = each(row);
            given.map_err(|error| {
                failed = Some(error);
                // Ends the walk; what is told is the error above.
                Trouble::Busy
            })
        });
        match (failed, read) {
            (Some(error), _) => Err(Why::Io(error)),
            (None, Err(trouble)) => Err(trouble.into()),
            (None, Ok(())) => Ok(tally),
        }
    };
    read().map_err(|why| OpenError::new(path, why))
}

fn give(
    conn: &Connection,
    each: &mut dyn FnMut(&Exported<'_>) -> Result<(), Trouble>,
) -> Result<(), Trouble> {
    if let Some((upto, bytes, sound)) = rows::snapshot(conn)? {
        each(&Exported::new(Kind::Snapshot, upto, &bytes, sound))?;
    }
    rows::walk(conn, Seq::NONE, &mut |held| {
        each(&Exported::new(Kind::Record, held.seq, held.record, held.sound))
    })
}
