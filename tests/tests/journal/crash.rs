//! A writer that is killed.

use std::time::Duration;

use relay_core::journal::{Journal, Seq};
use relay_node::journal::{SqliteJournal, verify};
use relay_tests::batches::{Batches, Part};

use crate::Writer;

const KILLS: u64 = 25;

#[test]
fn of_a_killed_writer_every_acknowledged_batch_is_there_and_none_in_part() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("link.db");
    let mut chance = Batches::new(7, Seq::NONE);
    let mut newest = 0;
    for kill in 1..=KILLS {
        let mut writer = Writer::start(&path, kill);
        for _ in 0..chance.draw(12) {
            assert!(writer.hear(), "the writer ended by itself");
        }
        // Nothing waits for this: it moves the kill to anywhere within a commit.
        std::thread::sleep(Duration::from_micros(chance.draw(4000)));
        writer.kill();

        let mut journal = SqliteJournal::open(&path).unwrap();
        assert_eq!(journal.epoch(), 2 * kill);
        assert!(journal.newest().number() >= writer.durable.max(newest), "kill {kill}: a batch was lost");
        newest = journal.newest().number();
        let (cut, snapshot) = journal.snapshot().unwrap().unwrap_or_default();
        assert!(cut.number() >= writer.cut, "kill {kill}: a snapshot was lost");
        assert!(cut == Seq::NONE || snapshot == cut.number().to_string().as_bytes());
        let mut next = cut.number() + 1;
        let mut ends = cut.number();
        let replay = &mut |seq: Seq, record: &[u8]| {
            let part = Part::read(seq, record).unwrap();
            assert_eq!(seq.number(), next, "kill {kill}: a record is missing");
            assert!((part.first..part.first + part.of).contains(&next), "kill {kill}: {part:?} at {next}");
            ends = part.first + part.of - 1;
            next += 1;
        };
        journal.replay(Seq::new(1), replay).unwrap();
        assert_eq!((next - 1, ends), (newest, newest), "kill {kill}: a batch is there in part");
        drop(journal);
        assert_eq!(verify(&path).unwrap().fault, None);
    }
    assert!(newest > KILLS, "the writers wrote");
}
