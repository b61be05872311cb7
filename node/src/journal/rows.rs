//! The rows of a journal, each with its checksum: the first 8 bytes of SHA-256 over what kind of row it is, its number and
//! its bytes. A row that was moved or changed is found when it is read.

use relay_core::journal::Seq;
use rusqlite::{Connection, OptionalExtension, Row};
use sha2::{Digest, Sha256};

use super::fault::{Fault, Trouble, Wrong};

/// The largest record and the largest snapshot, in bytes.
pub const MAX_ROW: usize = 256 << 20;

#[derive(Clone, Copy)]
#[repr(u8)]
enum Kind {
    Head = b'h',
    Record = b'r',
    Snapshot = b's',
}

fn checksum(kind: Kind, number: u64, bytes: &[u8]) -> i64 {
    let mut hash = Sha256::new();
    hash.update([kind as u8]);
    hash.update(number.to_be_bytes());
    hash.update(bytes);
    let hash: [u8; 32] = hash.finalize().into();
    let first = hash.first_chunk::<8>().expect("a hash has 32 bytes");
    i64::from_be_bytes(*first)
}

fn stored(number: u64) -> Result<i64, Trouble> {
    i64::try_from(number).map_err(|_| Trouble::TooLarge)
}

fn bounded(bytes: &[u8]) -> Result<&[u8], Trouble> {
    if bytes.len() > MAX_ROW { Err(Trouble::TooLarge) } else { Ok(bytes) }
}

/// The one row about the journal as a whole.
pub(super) struct Head {
    /// The newest epoch that wrote.
    pub(super) epoch: u64,
    /// How often it was opened again after a failure.
    pub(super) reopened: u64,
    /// The version of the program that opened it last.
    pub(super) written_by: String,
}

impl Head {
    pub(super) fn read(conn: &Connection) -> Result<Self, Trouble> {
        let mut statement =
            conn.prepare_cached("SELECT epoch, reopened, written_by, checksum FROM head WHERE id = 1")?;
        let row = statement.query_row([], |row| {
            let [epoch, reopened] = [row.get::<_, i64>(0)?, row.get(1)?].map(i64::cast_unsigned);
            Ok((Self { epoch, reopened, written_by: row.get(2)? }, row.get::<_, i64>(3)?))
        });
        match row.optional()? {
            Some((head, sum)) if head.checksum() == sum => Ok(head),
            Some(_) | None => Err(Trouble::Fault(Fault::whole(Wrong::Head))),
        }
    }

    pub(super) fn write(&self, conn: &Connection) -> Result<(), Trouble> {
        let sql = "INSERT OR REPLACE INTO head (id, epoch, reopened, written_by, checksum) VALUES (1, ?1, ?2, ?3, ?4)";
        let row = (stored(self.epoch)?, stored(self.reopened)?, &self.written_by, self.checksum());
        conn.prepare_cached(sql)?.execute(row)?;
        Ok(())
    }

    fn checksum(&self) -> i64 {
        let bytes = [self.reopened.to_be_bytes().as_slice(), self.written_by.as_bytes()].concat();
        checksum(Kind::Head, self.epoch, &bytes)
    }
}

/// What of a journal is there: the record that the snapshot reaches to, and the newest one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Extent {
    pub(super) base: Seq,
    pub(super) newest: Seq,
}

impl Extent {
    /// Reads it, and checks that the records begin where the snapshot ends.
    pub(super) fn read(conn: &Connection) -> Result<Self, Trouble> {
        let base = base(conn)?;
        let (first, newest): (Option<i64>, Option<i64>) = conn.query_row(
            "SELECT (SELECT min(seq) FROM records), (SELECT max(seq) FROM records)",
            [],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )?;
        let (Some(first), Some(newest)) = (first, newest) else { return Ok(Self { base, newest: base }) };
        let (first, newest) = (seq_of(first)?, seq_of(newest)?);
        if first <= base {
            return Err(Trouble::Fault(Fault::at(first, Wrong::Covered)));
        }
        if first > base.next() {
            return Err(Trouble::Fault(Fault::at(base.next(), Wrong::Missing)));
        }
        Ok(Self { base, newest })
    }
}

/// The record that the snapshot reaches to; that before the first without a snapshot.
pub(super) fn base(conn: &Connection) -> Result<Seq, Trouble> {
    let upto = conn.query_row("SELECT upto FROM snapshot WHERE id = 1", [], |row| row.get(0)).optional()?;
    upto.map_or(Ok(Seq::NONE), seq_of)
}

fn seq_of(number: i64) -> Result<Seq, Trouble> {
    u64::try_from(number).map(Seq::new).map_err(|_| Trouble::Fault(Fault::whole(Wrong::Order)))
}

/// A record as it is held.
pub(super) struct Held<'r> {
    pub(super) seq: Seq,
    pub(super) record: &'r [u8],
    /// Whether its checksum holds.
    pub(super) sound: bool,
}

impl<'r> Held<'r> {
    fn of(row: &'r Row<'_>) -> Result<Self, Trouble> {
        let seq = seq_of(row.get(0)?)?;
        let record = row.get_ref(1)?.as_blob()?;
        let sound = checksum(Kind::Record, seq.number(), record) == row.get::<_, i64>(2)?;
        Ok(Self { seq, record, sound })
    }
}

/// Gives every record from `from` on, one at a time. A fault of the file itself names the record behind the last one that
/// could be read.
pub(super) fn walk(
    conn: &Connection,
    from: Seq,
    each: &mut dyn FnMut(Held<'_>) -> Result<(), Trouble>,
) -> Result<(), Trouble> {
    let mut at = from;
    let sql = "SELECT seq, record, checksum FROM records WHERE seq >= ?1 ORDER BY seq";
    let mut walk = || -> Result<(), Trouble> {
        let mut statement = conn.prepare_cached(sql)?;
        let mut rows = statement.query([stored(from.number())?])?;
        while let Some(row) = rows.next()? {
            let held = Held::of(row)?;
            let next = held.seq.next();
            each(held)?;
            at = next;
        }
        Ok(())
    };
    let walked = walk();
    walked.map_err(|trouble| trouble.met_at(at))
}

/// Writes a record that is not held; its checksum.
pub(super) fn insert(conn: &Connection, seq: Seq, record: &[u8]) -> Result<i64, Trouble> {
    let sum = checksum(Kind::Record, seq.number(), record);
    let sql = "INSERT INTO records (seq, record, checksum) VALUES (?1, ?2, ?3)";
    conn.prepare_cached(sql)?.execute((stored(seq.number())?, bounded(record)?, sum))?;
    Ok(sum)
}

/// Checks that the record held at `seq` is `record`.
pub(super) fn compare(conn: &Connection, seq: Seq, record: &[u8]) -> Result<(), Trouble> {
    let wrong = |what| Err(Trouble::Fault(Fault::at(seq, what)));
    let mut statement = conn.prepare_cached("SELECT seq, record, checksum FROM records WHERE seq = ?1")?;
    let mut rows = statement.query([stored(seq.number())?])?;
    match rows.next()?.map(Held::of).transpose()? {
        None => wrong(Wrong::Missing),
        Some(held) if !held.sound => wrong(Wrong::Checksum),
        Some(held) if held.record != record => wrong(Wrong::Differs),
        Some(_) => Ok(()),
    }
}

/// Checks that the record held at `seq` is the one of this checksum.
pub(super) fn compare_checksum(conn: &Connection, seq: Seq, sum: i64) -> Result<(), Trouble> {
    let wrong = |what| Err(Trouble::Fault(Fault::at(seq, what)));
    let mut statement = conn.prepare_cached("SELECT seq, record, checksum FROM records WHERE seq = ?1")?;
    let mut rows = statement.query([stored(seq.number())?])?;
    let Some(row) = rows.next()? else { return wrong(Wrong::Missing) };
    if !Held::of(row)?.sound {
        return wrong(Wrong::Checksum);
    }
    if row.get::<_, i64>(2)? == sum { Ok(()) } else { wrong(Wrong::Differs) }
}

/// Puts a snapshot in the place of an older one, and cuts the records that it reaches over.
pub(super) fn put_snapshot(conn: &Connection, upto: Seq, snapshot: &[u8]) -> Result<(), Trouble> {
    let sum = checksum(Kind::Snapshot, upto.number(), snapshot);
    let sql = "INSERT OR REPLACE INTO snapshot (id, upto, snapshot, checksum) VALUES (1, ?1, ?2, ?3)";
    conn.prepare_cached(sql)?.execute((stored(upto.number())?, bounded(snapshot)?, sum))?;
    conn.prepare_cached("DELETE FROM records WHERE seq <= ?1")?.execute([stored(upto.number())?])?;
    Ok(())
}

/// The snapshot, what it reaches to, and whether its checksum holds.
pub(super) fn snapshot(conn: &Connection) -> Result<Option<(Seq, Vec<u8>, bool)>, Trouble> {
    let sql = "SELECT upto, snapshot, checksum FROM snapshot WHERE id = 1";
    let mut statement = conn.prepare_cached(sql)?;
    let mut rows = statement.query([])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let (upto, bytes) = (seq_of(row.get(0)?)?, row.get_ref(1)?.as_blob()?);
    let sound = checksum(Kind::Snapshot, upto.number(), bytes) == row.get::<_, i64>(2)?;
    Ok(Some((upto, bytes.to_vec(), sound)))
}
