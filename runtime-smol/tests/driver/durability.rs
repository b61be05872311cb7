//! What rests on the journal: nothing leaves before it, and its failure is told.

use std::io::{ErrorKind, Read};
use std::net::Shutdown;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use relay_core::journal::{Journal, JournalError, Records, Seq};
use relay_core::machine::{CloseReason, Refused};
use relay_smol::Options;

use crate::machine::{Answer, Ask, Heard, Puppet};
use crate::peers::{LONG, Running, start, start_plain};

/// What a journal does with the next batch.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gate {
    Open,
    Shut,
    Broken,
}

/// Stands before a journal that keeps nothing.
#[derive(Clone)]
pub(crate) struct Gatekeeper(Arc<(Mutex<Gate>, Condvar)>);

impl Gatekeeper {
    pub(crate) fn new(gate: Gate) -> Self {
        Self(Arc::new((Mutex::new(gate), Condvar::new())))
    }

    pub(crate) fn set(&self, gate: Gate) {
        *self.0.0.lock().unwrap() = gate;
        self.0.1.notify_all();
    }

    /// Waits while it is shut; the gate as it is then.
    fn wait(&self) -> Gate {
        *self.0.1.wait_while(self.0.0.lock().unwrap(), |gate| *gate == Gate::Shut).unwrap()
    }

    fn pass(&self) -> Result<(), JournalError> {
        if self.wait() == Gate::Broken { Err(JournalError::Failed) } else { Ok(()) }
    }

    pub(crate) fn start(&self) -> Running {
        let journal = GatedJournal { gate: self.clone(), newest: Seq::NONE };
        start(Puppet::default(), Options { journal: Some(Box::new(journal)), ..Options::default() })
    }
}

struct GatedJournal {
    gate: Gatekeeper,
    newest: Seq,
}

impl Journal for GatedJournal {
    fn newest(&self) -> Seq {
        self.newest
    }

    fn append(&mut self, _epoch: u64, records: &Records) -> Result<(), JournalError> {
        self.gate.pass()?;
        self.newest = records.last();
        Ok(())
    }

    fn reopen(&mut self) -> Result<Seq, JournalError> {
        self.gate.pass().map(|()| self.newest)
    }

    fn replay(&mut self, _from: Seq, _each: &mut dyn FnMut(Seq, &[u8])) -> Result<(), JournalError> {
        Ok(())
    }

    fn put_snapshot(&mut self, _upto: Seq, _snapshot: &[u8]) -> Result<(), JournalError> {
        Ok(())
    }

    fn snapshot(&mut self) -> Result<Option<(Seq, Vec<u8>)>, JournalError> {
        Ok(None)
    }
}

fn gauge(running: &Running, name: &str) -> u64 {
    let gauges = running.handle.gauges(LONG).expect("the driver runs");
    gauges.iter().find(|(gauge, _)| *gauge == name).expect("the host has it").1
}

#[test]
fn a_machine_without_a_journal_records_all_the_same() {
    let running = start_plain();
    assert_eq!(running.ask(Ask::Keep("one".into())), Answer::Number(1));
    assert_eq!(running.ask(Ask::Keep("two".into())), Answer::Number(2));
    assert!(running.stop());
}

#[test]
fn nothing_leaves_before_it_is_durable_and_a_half_close_does_not_hasten_it() {
    let gate = Gatekeeper::new(Gate::Shut);
    let running = gate.start();
    let mut client = running.client();
    client.say("keep one\nsay two\n");
    client.stream.shutdown(Shutdown::Write).unwrap();
    running.find(|heard| matches!(heard, Heard::Eof(_)).then_some(()));
    let mut other = running.client();
    other.say("say three\n");
    assert_eq!(other.line(), "three", "who rests on nothing waits for nothing");
    client.stream.set_nonblocking(true).unwrap();
    assert_eq!(client.stream.read(&mut [0; 8]).unwrap_err().kind(), ErrorKind::WouldBlock);
    client.stream.set_nonblocking(false).unwrap();
    gate.set(Gate::Open);
    assert_eq!(client.rest(), "one\ntwo\nend\n");
    assert!(running.stop());
}

#[test]
fn a_failing_journal_costs_those_who_waited_for_it_until_it_works_again() {
    let gate = Gatekeeper::new(Gate::Shut);
    let running = gate.start();
    let mut client = running.client();
    client.say("keep one\n");
    let pending = running.handle.command(Ask::Keep("two".into())).unwrap();
    // Told once the record before it was made.
    client.say("finish\n");
    client.stream.shutdown(Shutdown::Write).unwrap();
    running.find(|heard| matches!(heard, Heard::Eof(_)).then_some(()));
    gate.set(Gate::Broken);
    running.find(|heard| matches!(heard, Heard::Failed).then_some(()));
    running.find(|heard| matches!(heard, Heard::Closed(_, CloseReason::NotDurable, 4..)).then_some(()));
    assert_eq!(client.read_error(), ErrorKind::ConnectionReset);
    assert_eq!(pending.wait_timeout(LONG), Ok(Err(Refused::NotDurable)));
    gate.set(Gate::Open);
    assert_eq!(running.event(), Heard::Resumed);
    assert_eq!(running.ask(Ask::Keep("three".into())), Answer::Number(3));
    assert!(running.stop());
}

#[test]
fn while_the_journal_is_behind_nobody_is_read() {
    let gate = Gatekeeper::new(Gate::Shut);
    let running = gate.start();
    let mut client = running.client();
    client.say("say one\n");
    assert_eq!(client.line(), "one");
    let kept: Vec<_> =
        (0..20).map(|_| running.handle.command(Ask::Keep("x".repeat(1 << 20))).unwrap()).collect();
    while gauge(&running, "journal_pending_bytes") <= 16 << 20 {}
    client.say("say two\n");
    let more = running.handle.command(Ask::Echo(7)).unwrap();
    gauge(&running, "journal_pending_bytes");
    client.stream.set_nonblocking(true).unwrap();
    assert_eq!(client.stream.read(&mut [0; 8]).unwrap_err().kind(), ErrorKind::WouldBlock);
    client.stream.set_nonblocking(false).unwrap();
    assert!(more.wait_timeout(Duration::ZERO).is_err());
    gate.set(Gate::Open);
    assert_eq!(client.line(), "two");
    assert_eq!(more.wait_timeout(LONG), Ok(Ok(Answer::Number(7))));
    for (number, kept) in (1..).zip(kept) {
        assert_eq!(kept.wait_timeout(LONG), Ok(Ok(Answer::Number(number))));
    }
    assert!(running.stop());
}

#[test]
fn a_shutdown_does_not_wait_for_a_journal_that_is_behind() {
    let gate = Gatekeeper::new(Gate::Shut);
    let running = gate.start();
    let kept: Vec<_> =
        (0..20).map(|_| running.handle.command(Ask::Keep("x".repeat(1 << 20))).unwrap()).collect();
    while gauge(&running, "journal_pending_bytes") <= 16 << 20 {}
    running.handle.shutdown(Duration::ZERO);
    for kept in kept {
        assert_eq!(kept.wait_timeout(LONG), Ok(Err(Refused::Stopped)));
    }
    gate.set(Gate::Open);
    assert!(running.handle.join());
}

#[test]
fn a_drain_waits_for_what_is_under_way() {
    let gate = Gatekeeper::new(Gate::Shut);
    let running = gate.start();
    let mut client = running.client();
    client.say("keep one\n");
    while gauge(&running, "journal_pending_bytes") < 3 {}
    let kept = running.handle.command(Ask::Keep("two".into())).unwrap();
    running.handle.shutdown(LONG);
    running.find(|heard| matches!(heard, Heard::Draining).then_some(()));
    gate.set(Gate::Open);
    assert_eq!(client.rest(), "one\n");
    assert_eq!(kept.wait_timeout(LONG), Ok(Ok(Answer::Number(2))));
    drop(client);
    assert!(running.handle.join());
}
