//! Whether a journal is what was written.

use std::path::Path;

use relay_core::journal::Seq;
use rusqlite::Connection;

use super::fault::{Fault, OpenError, Trouble, Why, Wrong};
use super::rows::{self, Head};
use super::{FORMAT, file};

/// The most faults that are looked for in the structure of the file.
const MAX_STRUCTURE: usize = 100;

/// What a journal holds, and what is wrong with it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Verified {
    /// The format of the file.
    pub format: u32,
    /// The version of the program that opened it last, where that can be read.
    pub written_by: Option<String>,
    /// The epoch of the newest writer, where that can be read.
    pub epoch: Option<u64>,
    /// How many records there are.
    pub records: u64,
    /// The first record.
    pub first: Option<Seq>,
    /// The newest record; that which the snapshot reaches to, where none is behind it.
    pub newest: Seq,
    /// The record that the snapshot reaches to.
    pub snapshot: Option<Seq>,
    /// How many faults were found.
    pub faults: u64,
    /// The first of them: those of records by their order, then those of the rest.
    pub fault: Option<Fault>,
}

impl Verified {
    fn found(&mut self, fault: Fault) {
        self.faults += 1;
        self.fault.get_or_insert(fault);
    }

    /// Counts a fault; whatever else went wrong ends the check.
    fn judge<T>(&mut self, outcome: Result<T, Trouble>) -> Result<Option<T>, Why> {
        match outcome {
            Ok(value) => Ok(Some(value)),
            Err(trouble) => match trouble.fault() {
                Some(fault) => {
                    self.found(fault);
                    Ok(None)
                }
                None => Err(trouble.into()),
            },
        }
    }
}

/// Reads all of the journal at `path`, beside whoever writes it: every checksum, that no record is missing or out of its
/// order, the snapshot, and the structure of the file. It looks on behind a fault.
///
/// # Errors
/// There is none, it is none of ours, a later version wrote it, or the disk fails. Damage is no error.
pub fn verify(path: &Path) -> Result<Verified, OpenError> {
    let mut verified = Verified { format: FORMAT, ..Verified::default() };
    let checked = match file::reader(path) {
        Ok(conn) => check(&conn, &mut verified),
        Err(Why::Damaged(fault)) => {
            verified.found(fault);
            Ok(())
        }
        Err(why) => Err(why),
    };
    checked.map(|()| verified).map_err(|why| OpenError::new(path, why))
}

fn check(conn: &Connection, verified: &mut Verified) -> Result<(), Why> {
    let base = rows::base(conn);
    let base = verified.judge(base)?.unwrap_or(Seq::NONE);
    verified.newest = base;
    let mut next = base.next();
    let walked = rows::walk(conn, Seq::NONE, &mut |held| {
        verified.records += 1;
        verified.first.get_or_insert(held.seq);
        verified.newest = verified.newest.max(held.seq);
        if held.seq <= base {
            verified.found(Fault::at(held.seq, Wrong::Covered));
        } else if held.seq < next {
            verified.found(Fault::at(held.seq, Wrong::Order));
        } else if held.seq > next {
            verified.found(Fault::at(next, Wrong::Missing));
        }
        if !held.sound {
            verified.found(Fault::at(held.seq, Wrong::Checksum));
        }
        next = next.max(held.seq.next());
        Ok(())
    });
    verified.judge(walked)?;
    if let Some(Some((upto, _, sound))) = verified.judge(rows::snapshot(conn))? {
        verified.snapshot = Some(upto);
        if !sound {
            verified.found(Fault::whole(Wrong::Snapshot));
        }
    }
    if let Some(head) = verified.judge(Head::read(conn))? {
        (verified.epoch, verified.written_by) = (Some(head.epoch), Some(head.written_by));
    }
    let faults = structure(conn);
    for fault in verified.judge(faults)?.unwrap_or_default() {
        verified.found(Fault::whole(Wrong::Structure(fault)));
    }
    Ok(())
}

/// What SQLite itself finds wrong.
fn structure(conn: &Connection) -> Result<Vec<String>, Trouble> {
    let mut statement = conn.prepare(&format!("PRAGMA integrity_check({MAX_STRUCTURE})"))?;
    let rows = statement.query_map([], |row| row.get::<_, String>(0))?;
    let mut faults = rows.collect::<Result<Vec<_>, _>>()?;
    faults.retain(|text| text != "ok");
    Ok(faults)
}
