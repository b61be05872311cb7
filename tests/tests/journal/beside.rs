//! Reading beside a writer in another process.

use relay_core::journal::{Journal, Seq};
use relay_node::journal::{OpenError, SqliteJournal, Why, backup, verify};
use relay_tests::batches::Part;

use crate::Writer;

#[test]
fn a_backup_beside_a_running_writer_is_what_the_journal_was_at_one_moment() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("link.db");
    let mut writer = Writer::start(&path, 1);
    for number in 0..5 {
        let until = writer.durable + 100;
        while writer.durable < until {
            assert!(writer.hear());
        }
        let to = dir.path().join(format!("copy-{number}.db"));
        let copied = backup(&path, &to).unwrap();
        assert_eq!(copied.verified.fault, None);
        let mut copy = SqliteJournal::open(&to).unwrap();
        assert!(copy.newest().number() >= writer.durable, "what was durable before is in it");
        let (cut, _) = copy.snapshot().unwrap().unwrap_or_default();
        let (mut next, mut ends) = (cut.number() + 1, 0);
        copy.replay(Seq::new(1), &mut |seq, record| {
            let part = Part::read(seq, record).unwrap();
            assert_eq!(seq.number(), next);
            (next, ends) = (next + 1, part.first + part.of - 1);
        })
        .unwrap();
        assert!(copy.newest() == cut || ends == copy.newest().number(), "no batch is there in part");
    }
    assert!(writer.hear(), "the writer goes on");
}

#[test]
fn a_journal_is_verified_beside_its_writer_but_not_written() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("link.db");
    let mut writer = Writer::start(&path, 2);
    while writer.durable < 200 {
        assert!(writer.hear());
        assert_eq!(verify(&path).unwrap().fault, None);
    }
    let refused: OpenError = SqliteJournal::open(&path).unwrap_err();
    assert!(matches!(refused.why, Why::Held(_)), "{refused}");
    writer.kill();
    assert_eq!(verify(&path).unwrap().fault, None, "what a killed writer left is read without being written");
    assert!(SqliteJournal::open(&path).is_ok());
}
