//! The journal under the drivers' own journal thread.

use std::path::Path;
use std::time::Duration;

use relay_core::journal::{Journal, Seq};
use relay_core::machine::{BadRecord, Durable, Input, Machine};
use relay_core::outbox::Outbox;
use relay_core::time::{Mono, Now};
use relay_mio::{Events, Handle, Listener, Options};
use relay_node::journal::{SqliteJournal, verify};
use relay_tests::rig::PATIENCE;

/// Adds up what it is told, and answers with the sum once that is durable.
#[derive(Default)]
struct Tally {
    sum: u64,
}

impl Machine for Tally {
    type Command = u64;
    type Answer = u64;
    type Event = ();

    fn step(&mut self, _now: Now, input: Input<'_, u64>, out: &mut Outbox<(), u64>) {
        match input {
            Input::Command { ticket, command } => {
                self.sum += command;
                out.record(|record| record.extend_from_slice(command.to_string().as_bytes()));
                out.answer(ticket, self.sum);
            }
            Input::Opened { .. }
            | Input::Bytes { .. }
            | Input::Eof { .. }
            | Input::Drained { .. }
            | Input::Closed { .. }
            | Input::Persisted { .. }
            | Input::PersistFailed { .. }
            | Input::Resumed { .. }
            | Input::Acted { .. }
            | Input::Drain { .. }
            | Input::Timer => {}
        }
    }

    fn deadline(&self) -> Option<Mono> {
        None
    }
}

impl Durable for Tally {
    fn restore(&mut self, _seq: Seq, record: &[u8]) -> Result<(), BadRecord> {
        let number = str::from_utf8(record).ok().and_then(|text| text.parse::<u64>().ok());
        self.sum += number.ok_or(BadRecord { reason: "no number" })?;
        Ok(())
    }

    fn snapshot(&self, into: &mut Vec<u8>) {
        into.extend_from_slice(self.sum.to_string().as_bytes());
    }

    fn restore_snapshot(&mut self, snapshot: &[u8]) -> Result<(), BadRecord> {
        self.restore(Seq::NONE, snapshot)
    }
}

type Start = fn(Tally, Seq, Vec<Listener>, Options) -> std::io::Result<(Handle<Tally>, Events<()>)>;

const DRIVERS: [(&str, Start); 2] =
    [("mio", relay_mio::start as Start), ("smol", relay_smol::start as Start)];

/// The journal and the machine that it restores.
fn restored(path: &Path) -> (SqliteJournal, Tally) {
    let mut journal = SqliteJournal::open(path).unwrap();
    let mut tally = Tally::default();
    if let Some((_, snapshot)) = journal.snapshot().unwrap() {
        tally.restore_snapshot(&snapshot).unwrap();
    }
    journal.replay(Seq::new(1), &mut |seq, record| tally.restore(seq, record).unwrap()).unwrap();
    (journal, tally)
}

#[test]
fn a_machine_goes_on_from_its_journal_after_each_restart_on_every_driver() {
    for (name, start) in DRIVERS {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("link.db");
        let mut expected = 0;
        for restart in 0..4 {
            let (mut journal, tally) = restored(&path);
            assert_eq!(tally.sum, expected, "{name}, restart {restart}");
            if restart == 2 {
                let mut snapshot = Vec::new();
                tally.snapshot(&mut snapshot);
                journal.put_snapshot(journal.newest(), &snapshot).unwrap();
            }
            let (newest, epoch) = (journal.newest(), journal.epoch());
            assert_eq!(epoch, restart + 1);
            let options = Options { journal: Some(Box::new(journal)), epoch, ..Options::default() };
            let (handle, _events) = start(tally, newest, Vec::new(), options).unwrap();
            let answers: Vec<_> = (1..=200).map(|number| handle.command(number).unwrap()).collect();
            for (number, answer) in (1..=200).zip(answers) {
                expected += number;
                assert_eq!(answer.wait(), Some(Ok(expected)), "{name}, restart {restart}");
                // Answered means durable, and anybody can see that it is.
                if number == 200 {
                    assert_eq!(verify(&path).unwrap().newest.number(), 200 * (restart + 1));
                }
            }
            handle.shutdown(PATIENCE);
            assert!(handle.join());
        }
        assert_eq!(verify(&path).unwrap().snapshot, Some(Seq::new(400)));
    }
}

#[test]
fn a_superseded_writer_answers_nothing_on_every_driver() {
    for (name, start) in DRIVERS {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("link.db");
        let (journal, tally) = restored(&path);
        let options =
            Options { epoch: journal.epoch(), journal: Some(Box::new(journal)), ..Options::default() };
        let (handle, _events) = start(tally, Seq::NONE, Vec::new(), options).unwrap();
        assert_eq!(handle.call(1, PATIENCE), Ok(1), "{name}");
        std::fs::remove_file(dir.path().join("link.db.lock")).unwrap();
        let (_second, tally) = restored(&path);
        assert_eq!(tally.sum, 1);
        assert!(handle.call(1, PATIENCE).is_err(), "{name}");
        handle.shutdown(Duration::ZERO);
        assert!(handle.join());
        assert_eq!(verify(&path).unwrap().records, 1);
    }
}
