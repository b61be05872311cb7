use std::fs;
use std::os::unix::fs::PermissionsExt;

use rusqlite::OpenFlags;

use super::*;

struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("link.db")
    }

    fn open(&self) -> SqliteJournal {
        SqliteJournal::open(&self.path()).unwrap()
    }

    /// A journal of `count` records that is closed again.
    fn filled(count: u64) -> Self {
        let place = Self::new();
        let mut journal = place.open();
        journal.append(journal.epoch(), &batch(1, count)).unwrap();
        place
    }

    /// Runs SQL on the file, as damage or another program would change it.
    fn sql(&self, sql: &str) {
        let conn = Connection::open_with_flags(self.path(), OpenFlags::SQLITE_OPEN_READ_WRITE).unwrap();
        conn.execute_batch(sql).unwrap();
    }

    fn why(&self) -> Why {
        SqliteJournal::open(&self.path()).unwrap_err().why
    }
}

fn text(seq: u64) -> String {
    format!("{{\"record\":{seq}}}")
}

fn batch(first: u64, count: u64) -> Records {
    let mut records = Records::reuse(Records::default(), Seq::new(first));
    for seq in first..first + count {
        records.push(|out| out.extend_from_slice(text(seq).as_bytes()));
    }
    records
}

fn one(seq: u64, record: &[u8]) -> Records {
    let mut records = Records::reuse(Records::default(), Seq::new(seq));
    records.push(|out| out.extend_from_slice(record));
    records
}

fn replayed(journal: &mut SqliteJournal, from: u64) -> Result<Vec<u64>, JournalError> {
    let mut seqs = Vec::new();
    journal.replay(Seq::new(from), &mut |seq, record| {
        assert_eq!(record, text(seq.number()).as_bytes());
        seqs.push(seq.number());
    })?;
    Ok(seqs)
}

#[test]
fn what_was_appended_is_there_after_it_was_opened_again() {
    let place = Place::new();
    let mut journal = place.open();
    assert_eq!(journal.newest(), Seq::NONE);
    journal.append(journal.epoch(), &batch(1, 3)).unwrap();
    journal.append(journal.epoch(), &batch(4, 1)).unwrap();
    journal.append(journal.epoch(), &Records::default()).unwrap();
    drop(journal);
    let mut journal = place.open();
    assert_eq!(journal.newest(), Seq::new(4));
    assert_eq!(replayed(&mut journal, 1).unwrap(), [1, 2, 3, 4]);
    assert_eq!(replayed(&mut journal, 3).unwrap(), [3, 4]);
    assert_eq!(replayed(&mut journal, 5).unwrap(), [0; 0]);
    assert_eq!(journal.snapshot().unwrap(), None);
}

#[test]
fn the_files_and_folders_of_a_journal_are_its_owners_alone() {
    let place = Place::new();
    let path = place.dir.path().join("home/link.db");
    let mut journal = SqliteJournal::open(&path).unwrap();
    journal.append(journal.epoch(), &batch(1, 1)).unwrap();
    let home = path.parent().unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(home), 0o700);
    let mut names = Vec::new();
    for entry in fs::read_dir(home).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(mode(&entry.path()), 0o600, "{entry:?}");
        names.push(entry.file_name().into_string().unwrap());
    }
    names.sort();
    assert_eq!(names, ["link.db", "link.db-shm", "link.db-wal", "link.db.lock"]);
}

#[test]
fn every_commit_is_synced() {
    let place = Place::new();
    let journal = place.open();
    let conn = journal.conn.as_ref().unwrap();
    let pragma = |name| conn.pragma_query_value(None, name, |row| row.get::<_, rusqlite::types::Value>(0));
    assert_eq!(pragma("synchronous").unwrap(), 2.into());
    assert_eq!(pragma("journal_mode").unwrap(), "wal".to_owned().into());
}

#[test]
fn a_second_writer_is_refused_and_told_who_is_the_first() {
    let place = Place::new();
    let first = place.open();
    let error = SqliteJournal::open(&place.path()).unwrap_err();
    assert!(error.to_string().contains(&format!("process {} writes", std::process::id())), "{error}");
    drop(first);
    drop(place.open());
}

#[test]
fn each_opening_takes_the_next_epoch_and_an_older_one_is_refused() {
    let place = Place::new();
    assert_eq!(place.open().epoch(), 1);
    let mut journal = place.open();
    assert_eq!(journal.epoch(), 2);
    assert_eq!(journal.append(1, &batch(1, 1)), Err(JournalError::Superseded));
    journal.append(2, &batch(1, 1)).unwrap();
    journal.append(7, &batch(2, 1)).unwrap();
    assert_eq!(journal.append(6, &batch(3, 1)), Err(JournalError::Superseded));
    drop(journal);
    assert_eq!(place.open().epoch(), 8);
}

#[test]
fn a_writer_whose_lock_was_removed_is_fenced_once_another_has_opened() {
    let place = Place::new();
    let mut first = place.open();
    first.append(1, &batch(1, 1)).unwrap();
    fs::remove_file(place.dir.path().join("link.db.lock")).unwrap();
    let mut second = place.open();
    assert_eq!(first.append(1, &batch(2, 1)), Err(JournalError::Superseded));
    assert_eq!(first.put_snapshot(Seq::new(1), b""), Err(JournalError::Superseded));
    assert_eq!(first.reopen(), Err(JournalError::Superseded));
    second.append(2, &batch(2, 1)).unwrap();
    assert_eq!(replayed(&mut second, 1).unwrap(), [1, 2]);
}

#[test]
fn a_batch_that_is_held_already_is_no_error_and_its_rest_is_taken() {
    let place = Place::filled(3);
    let mut journal = place.open();
    assert_eq!(journal.reopen(), Ok(Seq::new(3)));
    journal.append(journal.epoch(), &batch(1, 3)).unwrap();
    journal.append(journal.epoch(), &batch(3, 3)).unwrap();
    assert_eq!(journal.newest(), Seq::new(5));
    journal.append(journal.epoch(), &batch(1, 2)).unwrap();
    assert_eq!(journal.newest(), Seq::new(5));
    assert_eq!(replayed(&mut journal, 1).unwrap(), [1, 2, 3, 4, 5]);
}

#[test]
fn another_record_under_a_held_number_is_refused_with_its_whole_batch() {
    let place = Place::filled(2);
    let mut journal = place.open();
    let mut records = one(2, b"another");
    records.append(&batch(3, 1));
    assert_eq!(journal.append(journal.epoch(), &records), Err(JournalError::Corrupt));
    assert_eq!(journal.fault(), Some(&Fault::at(Seq::new(2), Wrong::Differs)));
    assert_eq!(journal.newest(), Seq::new(2));
    journal.append(journal.epoch(), &batch(3, 1)).unwrap();
    assert_eq!(replayed(&mut journal, 1).unwrap(), [1, 2, 3]);
}

#[test]
fn a_gap_is_refused() {
    let place = Place::filled(2);
    let mut journal = place.open();
    assert_eq!(journal.append(journal.epoch(), &batch(4, 1)), Err(JournalError::Corrupt));
    assert_eq!(journal.fault(), Some(&Fault::at(Seq::new(3), Wrong::Missing)));
    assert_eq!(journal.append(journal.epoch(), &batch(0, 1)), Err(JournalError::Corrupt));
    assert_eq!(journal.reopen(), Ok(Seq::new(2)));
}

#[test]
fn replay_ends_at_a_record_whose_checksum_does_not_hold_and_names_it() {
    for damage in [
        "UPDATE records SET record = x'00' WHERE seq = 3",
        "UPDATE records SET checksum = checksum + 1 WHERE seq = 3",
        "UPDATE records SET (record, checksum) = (SELECT record, checksum FROM records WHERE seq = 2) WHERE seq = 3",
    ] {
        let place = Place::filled(4);
        place.sql(damage);
        let mut journal = place.open();
        let mut seen = Vec::new();
        let outcome = journal.replay(Seq::new(1), &mut |seq, _| seen.push(seq.number()));
        assert_eq!((outcome, seen), (Err(JournalError::Corrupt), vec![1, 2]), "{damage}");
        assert_eq!(journal.fault(), Some(&Fault::at(Seq::new(3), Wrong::Checksum)));
    }
}

#[test]
fn replay_ends_at_a_record_that_is_missing_and_names_it() {
    let place = Place::filled(4);
    place.sql("DELETE FROM records WHERE seq = 3");
    let mut journal = place.open();
    assert_eq!(replayed(&mut journal, 1), Err(JournalError::Corrupt));
    assert_eq!(journal.fault(), Some(&Fault::at(Seq::new(3), Wrong::Missing)));
}

#[test]
fn a_journal_that_lost_what_was_acknowledged_is_not_opened_again() {
    let place = Place::new();
    let mut journal = place.open();
    journal.append(1, &batch(1, 3)).unwrap();
    place.sql("DELETE FROM records WHERE seq = 3");
    assert_eq!(journal.reopen(), Err(JournalError::Corrupt));
    assert_eq!(journal.fault(), Some(&Fault::at(Seq::new(3), Wrong::Missing)));
    assert_eq!(journal.append(1, &batch(3, 1)), Err(JournalError::Corrupt));
    fs::remove_file(place.path()).unwrap();
    assert_eq!(journal.reopen(), Err(JournalError::Failed));
    assert!(!place.path().exists());
}

#[test]
fn a_snapshot_cuts_what_it_reaches_over_and_restores() {
    let place = Place::filled(5);
    let mut journal = place.open();
    journal.put_snapshot(Seq::new(2), b"two").unwrap();
    journal.put_snapshot(Seq::new(3), b"three").unwrap();
    assert_eq!(journal.put_snapshot(Seq::new(2), b"older"), Err(JournalError::Corrupt));
    assert_eq!(journal.put_snapshot(Seq::new(6), b"not there yet"), Err(JournalError::Corrupt));
    drop(journal);
    let mut journal = place.open();
    assert_eq!(journal.snapshot().unwrap(), Some((Seq::new(3), b"three".to_vec())));
    assert_eq!(replayed(&mut journal, 1).unwrap(), [4, 5]);
    assert_eq!(journal.append(journal.epoch(), &batch(3, 3)), Err(JournalError::Corrupt));
    journal.append(journal.epoch(), &batch(5, 2)).unwrap();
    journal.put_snapshot(Seq::new(6), b"all").unwrap();
    assert_eq!(journal.reopen(), Ok(Seq::new(6)));
    drop(journal);
    let mut journal = place.open();
    assert_eq!(journal.newest(), Seq::new(6));
    assert_eq!(replayed(&mut journal, 1).unwrap(), [0; 0]);
    journal.append(journal.epoch(), &batch(7, 1)).unwrap();
    assert_eq!(replayed(&mut journal, 1).unwrap(), [7]);
    drop(journal);
    assert_eq!(verify(&place.path()).unwrap().fault, None);
}

#[test]
fn a_snapshot_whose_checksum_does_not_hold_is_a_fault() {
    let place = Place::filled(1);
    place.open().put_snapshot(Seq::new(1), b"one").unwrap();
    place.sql("UPDATE snapshot SET snapshot = x'00'");
    assert_eq!(place.open().snapshot(), Err(JournalError::Corrupt));
    assert_eq!(verify(&place.path()).unwrap().fault, Some(Fault::whole(Wrong::Snapshot)));
}

#[test]
fn a_later_format_is_refused_with_the_version_that_wrote_it() {
    let place = Place::filled(1);
    place.sql("UPDATE head SET written_by = '9.8.7'; PRAGMA user_version = 2");
    for text in [
        SqliteJournal::open(&place.path()).unwrap_err().to_string(),
        verify(&place.path()).unwrap_err().to_string(),
        export(&place.path(), &mut Vec::new()).unwrap_err().to_string(),
    ] {
        assert!(text.contains("written by relay 9.8.7 in format 2"), "{text}");
        assert!(text.contains("Run relay 9.8.7 or later, or put a backup"), "{text}");
    }
}

#[test]
fn a_file_of_another_kind_is_refused_and_left_as_it_is() {
    let place = Place::new();
    place_foreign(&place);
    assert!(matches!(place.why(), Why::Foreign));
    let before = b"no database at all, but long enough that it could begin as one does".repeat(20);
    fs::write(place.path(), &before).unwrap();
    assert!(matches!(place.why(), Why::Damaged(_)));
    assert_eq!(fs::read(place.path()).unwrap(), before);
    fs::write(place.path(), b"").unwrap();
    assert!(matches!(place.why(), Why::Foreign));
    assert_eq!(fs::read(place.path()).unwrap(), b"");
}

fn place_foreign(place: &Place) {
    let conn = Connection::open(place.path()).unwrap();
    conn.execute_batch("CREATE TABLE songs (id)").unwrap();
}

#[test]
fn the_log_of_a_lost_journal_is_not_taken_for_that_of_a_new_one() {
    let place = Place::new();
    let mut journal = place.open();
    journal.append(1, &batch(1, 1)).unwrap();
    let log = place.dir.path().join("link.db-wal");
    let bytes = fs::read(&log).unwrap();
    drop(journal);
    fs::remove_file(place.path()).unwrap();
    fs::write(&log, bytes).unwrap();
    assert!(matches!(place.why(), Why::Orphan(path) if path == log));
}

/// No filesystem is filled here: the file has a bound, which SQLite treats as a full disk before anything is written.
#[test]
fn a_journal_at_a_page_limit_is_full_takes_nothing_and_goes_on_once_there_is_room() {
    let place = Place::filled(1);
    let mut journal = place.open();
    let conn = journal.conn.as_ref().unwrap();
    conn.pragma_update_and_check(None, "max_page_count", 8, |_| Ok(())).unwrap();
    let large = one(2, &[b'x'; 64 << 10]);
    assert_eq!(journal.append(journal.epoch(), &large), Err(JournalError::Full));
    assert_eq!(journal.newest(), Seq::new(1));
    // The limit is gone with the connection that had it.
    assert_eq!(journal.reopen(), Ok(Seq::new(1)));
    journal.append(journal.epoch(), &large).unwrap();
    assert_eq!(journal.newest(), Seq::new(2));
    assert_eq!(verify(&place.path()).unwrap().faults, 0);
}

#[test]
fn an_append_behind_a_failed_snapshot_opens_the_journal_again_by_itself() {
    let place = Place::filled(1);
    let mut journal = place.open();
    let conn = journal.conn.as_ref().unwrap();
    conn.pragma_update_and_check(None, "max_page_count", 8, |_| Ok(())).unwrap();
    assert_eq!(journal.put_snapshot(Seq::new(1), &[b'x'; 64 << 10]), Err(JournalError::Full));
    journal.append(journal.epoch(), &batch(2, 1)).unwrap();
    assert_eq!(replayed(&mut journal, 1).unwrap(), [1, 2]);
    assert_eq!(journal.snapshot().unwrap(), None);
}

#[test]
fn verify_counts_and_finds_the_first_fault_of_each_kind() {
    let place = Place::filled(5);
    let verified = verify(&place.path()).unwrap();
    assert_eq!((verified.records, verified.first, verified.newest), (5, Some(Seq::new(1)), Seq::new(5)));
    assert_eq!((verified.epoch, verified.written_by.as_deref()), (Some(1), Some(VERSION)));
    assert_eq!((verified.snapshot, verified.faults, verified.fault), (None, 0, None));
    let at = |seq, what| Some(Fault::at(Seq::new(seq), what));
    for (damage, faults, fault) in [
        ("UPDATE records SET record = x'00' WHERE seq IN (2, 4)", 2, at(2, Wrong::Checksum)),
        ("DELETE FROM records WHERE seq = 1", 1, at(1, Wrong::Missing)),
        ("DELETE FROM records WHERE seq = 3", 1, at(3, Wrong::Missing)),
        ("INSERT INTO snapshot VALUES (1, 2, x'', 0)", 3, at(1, Wrong::Covered)),
        ("UPDATE head SET epoch = 9", 1, Some(Fault::whole(Wrong::Head))),
        ("DELETE FROM head", 1, Some(Fault::whole(Wrong::Head))),
    ] {
        let place = Place::filled(5);
        place.sql(damage);
        let verified = verify(&place.path()).unwrap();
        assert_eq!((verified.faults, verified.fault), (faults, fault), "{damage}");
    }
    let missing = verify(&place.dir.path().join("none.db")).unwrap_err();
    assert!(matches!(missing.why, Why::Missing));
}

#[test]
fn an_export_has_the_snapshot_and_every_record_and_says_which_checksum_fails() {
    let place = Place::filled(1);
    let mut journal = place.open();
    journal.put_snapshot(Seq::new(1), &[0xff]).unwrap();
    journal.append(journal.epoch(), &batch(2, 1)).unwrap();
    journal.append(journal.epoch(), &one(3, b"no json")).unwrap();
    journal.append(journal.epoch(), &batch(4, 1)).unwrap();
    place.sql("UPDATE records SET checksum = 0 WHERE seq = 4");
    let mut out = Vec::new();
    assert_eq!(export(&place.path(), &mut out).unwrap(), Tally { records: 3, faults: 1 });
    let lines = [
        r#"{"kind":"snapshot","seq":1,"text":null,"base64":"/w==","checksum_ok":true}"#,
        r#"{"kind":"record","seq":2,"text":"{\"record\":2}","base64":null,"checksum_ok":true}"#,
        r#"{"kind":"record","seq":3,"text":null,"base64":"bm8ganNvbg==","checksum_ok":true}"#,
        r#"{"kind":"record","seq":4,"text":"{\"record\":4}","base64":null,"checksum_ok":false}"#,
    ];
    assert_eq!(String::from_utf8(out).unwrap().lines().collect::<Vec<_>>(), lines);
}

#[test]
fn a_backup_is_one_private_file_that_opens_as_a_journal_and_is_never_written_over() {
    let place = Place::filled(3);
    let to = place.dir.path().join("copy.db");
    let done = backup(&place.path(), &to).unwrap();
    assert_eq!((done.verified.records, done.verified.fault), (3, None));
    assert_eq!(fs::metadata(&to).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(matches!(backup(&place.path(), &to).unwrap_err().why, Why::Exists));
    let names = || {
        let entries = fs::read_dir(place.dir.path()).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.retain(|name| name.contains("copy"));
        names
    };
    assert_eq!(names(), ["copy.db"]);
    assert_eq!(replayed(&mut SqliteJournal::open(&to).unwrap(), 1).unwrap(), [1, 2, 3]);
    let nowhere = place.dir.path().join("nowhere/copy.db");
    assert!(matches!(backup(&place.path(), &nowhere).unwrap_err().why, Why::Io(_)));
}
