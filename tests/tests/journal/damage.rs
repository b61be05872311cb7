//! Bytes that the disk changed.

use std::path::Path;

use relay_core::journal::{Journal, Seq};
use relay_node::journal::{SqliteJournal, export, verify};
use relay_tests::batches::Batches;

/// What is exported of a journal in which nothing is found wrong; `None` where something is.
fn passed(path: &Path) -> Option<Vec<u8>> {
    let sound = verify(path).is_ok_and(|verified| verified.fault.is_none());
    let mut out = Vec::new();
    if sound { export(path, &mut out).ok().map(|_| out) } else { None }
}

fn journal(path: &Path, batches: &mut Batches) -> Vec<u8> {
    let mut journal = SqliteJournal::open(path).unwrap();
    for _ in 0..3 {
        journal.append(journal.epoch(), &batches.next_batch()).unwrap();
    }
    journal.put_snapshot(Seq::new(5), &[7; 5000]).unwrap();
    drop(journal);
    std::fs::read(path).unwrap()
}

#[test]
fn damage_anywhere_in_the_file_is_found_or_changes_no_record() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("link.db");
    let mut chance = Batches::new(3, Seq::NONE);
    let whole = journal(&path, &mut chance);
    let sound = passed(&path).unwrap();
    let mut found = 0;
    for round in 0..200 {
        let mut bytes = whole.clone();
        let at = chance.draw(whole.len() as u64) as usize;
        match round % 4 {
            0 | 1 => bytes[at] ^= 1 << chance.draw(8),
            // A sector that was never written, and a file that ends too early.
            2 => bytes[at / 512 * 512..][..512].fill(0),
            _ => bytes.truncate(at),
        }
        std::fs::write(&path, &bytes).unwrap();
        match passed(&path) {
            Some(exported) => assert!(exported == sound, "round {round}: damage at {at} passed"),
            None => found += 1,
        }
    }
    assert!(found > 100, "most damage is found: {found}");
}

#[test]
fn one_wrong_bit_in_any_record_is_found_and_its_record_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("link.db");
    let mut journal = SqliteJournal::open(&path).unwrap();
    let mut batches = Batches::new(5, Seq::NONE);
    let mut records = Vec::new();
    for _ in 0..3 {
        let batch = batches.next_batch();
        journal.append(1, &batch).unwrap();
        // A record's own bytes begin where its filler does: no other record has the same, and no page ends in between.
        records.extend(batch.iter().filter_map(|(seq, record)| {
            let filler = record.iter().position(|byte| *byte == b' ')? + 1;
            Some((seq, record.get(filler..filler + 24)?.to_vec()))
        }));
    }
    drop(journal);
    let whole = std::fs::read(&path).unwrap();
    let mut tried = 0;
    for (seq, own) in records {
        // Pages that were given up may hold it still, beside the one that counts.
        let mut bytes = whole.clone();
        let places = whole.windows(own.len()).enumerate().filter(|(_, window)| **window == own);
        let places: Vec<_> = places.map(|(at, _)| at).collect();
        if places.is_empty() {
            continue;
        }
        places.iter().for_each(|at| bytes[at + 12] ^= 0x10);
        std::fs::write(&path, &bytes).unwrap();
        let verified = verify(&path).unwrap();
        assert_eq!((verified.faults, verified.fault.unwrap().seq), (1, Some(seq)));
        tried += 1;
    }
    assert!(tried > 10, "records were found in the file: {tried}");
}
