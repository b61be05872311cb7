//! Durable before visible: in order, held until the journal says so, and what comes of its failures.

use relay_core::action::{Action, FilePath};
use relay_core::journal::Seq;
use relay_core::machine::Refused;
use relay_core::outbox::Close;

use crate::rig::Rig;

#[test]
fn a_send_that_rests_on_nothing_leaves_at_once() {
    let mut rig = Rig::new();
    let conn = rig.accept();
    rig.send(conn, "a");
    assert_eq!(rig.took(conn), "a");
}

#[test]
fn a_send_waits_for_every_record_made_before_it() {
    let mut rig = Rig::new();
    let (one, two) = (rig.accept(), rig.accept());
    rig.record();
    rig.send(one, "a");
    rig.send(two, "b");
    rig.record();
    rig.send(one, "c");
    assert_eq!((rig.took(one), rig.took(two)), (String::new(), String::new()));
    rig.persisted(1);
    assert_eq!((rig.took(one), rig.took(two)), ("a".into(), "b".into()));
    rig.persisted(2);
    assert_eq!(rig.took(one), "ac");
    assert_eq!(rig.heard(), ["persisted 1", "persisted 2"]);
}

#[test]
fn a_free_send_leaves_at_once_unless_held_bytes_stand_before_it() {
    let mut rig = Rig::new();
    let (one, two) = (rig.accept(), rig.accept());
    rig.record();
    rig.send_free(one, "a");
    assert_eq!(rig.took(one), "a");
    rig.send(one, "b");
    rig.send_free(one, "c");
    rig.send_free(two, "d");
    assert_eq!((rig.took(one), rig.took(two)), ("a".into(), "d".into()));
    rig.persisted(1);
    assert_eq!(rig.took(one), "abc");
}

#[test]
fn connections_that_queue_by_turns_keep_their_order() {
    let mut rig = Rig::new();
    let (one, two) = (rig.accept(), rig.accept());
    rig.record();
    for text in ["a", "b", "c"] {
        rig.send(one, text);
        rig.send(two, text);
        rig.send_free(one, "-");
    }
    rig.record();
    rig.send(two, "d");
    rig.persisted(1);
    assert_eq!((rig.took(one), rig.took(two)), ("a-b-c-".into(), "abc".into()));
    rig.persisted(2);
    assert_eq!(rig.took(two), "abcd");
}

#[test]
fn the_records_of_a_turn_are_one_batch_and_go_before_all_else() {
    let mut rig = Rig::new();
    rig.order(|out, _| {
        assert_eq!(out.record(|buf| buf.push(b'a')), Seq::new(1));
        assert_eq!(out.record(|buf| buf.push(b'b')), Seq::new(2));
    });
    rig.record();
    let batches: Vec<_> =
        rig.port.appended.iter().map(|batch| (batch.first().number(), batch.len())).collect();
    assert_eq!(batches, [(1, 2), (3, 1)]);
}

#[test]
fn no_more_is_durable_than_was_appended() {
    let mut rig = Rig::new();
    let conn = rig.accept();
    rig.record();
    rig.order_only(move |out, _| {
        out.record(|buf| buf.push(b'r'));
        out.send(conn, |buf| buf.push(b'a'));
    });
    // Only the first was handed to the journal so far.
    rig.host.persisted(rig.now(), Seq::new(99));
    rig.settle();
    assert_eq!(rig.took(conn), "");
    assert_eq!(rig.heard(), ["persisted 1"]);
    rig.persisted(99);
    assert_eq!(rig.took(conn), "a");
    assert_eq!(rig.heard(), ["persisted 2"]);
    rig.persisted(99);
    assert_eq!(rig.heard(), [""; 0]);
}

#[test]
fn events_answers_and_actions_wait_as_bytes_do() {
    let mut rig = Rig::new();
    rig.record();
    let remove = || Action::RemoveFile { path: FilePath::new("a").expect("a plain path") };
    rig.order(move |out, ticket| {
        out.event(1);
        out.answer(ticket, 2);
        out.act(remove());
        out.event_free(3);
        out.act_free(remove());
    });
    assert_eq!((&rig.port.events[..], rig.port.answers.len()), (&[3][..], 0));
    assert_eq!(rig.calls(), ["act 2"]);
    rig.persisted(1);
    assert_eq!(rig.port.events, [3, 1]);
    assert_eq!(rig.port.answers, [(2, Ok(2))]);
    assert_eq!(rig.calls(), ["act 1"]);
}

#[test]
fn a_failing_journal_ends_what_holds_bytes_and_nothing_else() {
    let mut rig = Rig::new();
    let (holder, other) = (rig.accept(), rig.accept());
    rig.record();
    rig.send(holder, "abc");
    rig.host.persist_failed(rig.now());
    rig.settle();
    assert_eq!(rig.heard(), ["failing 1", "closed conn 0.0 NotDurable 3"]);
    assert_eq!(rig.calls(), ["close conn 0.0 Reset"]);
    assert_eq!(rig.took(holder), "");
    rig.send_free(other, "refused");
    assert_eq!(rig.took(other), "refused");
    rig.order(|out, _| assert!(!out.writable()));
}

#[test]
fn a_failing_journal_refuses_answers_and_keeps_events_and_actions() {
    let mut rig = Rig::new();
    rig.record();
    let asked = rig.order(|out, ticket| {
        out.event(1);
        out.answer(ticket, 2);
        out.act(Action::RemoveFile { path: FilePath::new("a").expect("a plain path") });
    });
    rig.host.persist_failed(rig.now());
    rig.settle();
    assert_eq!(rig.port.answers, [(asked.number(), Err(Refused::NotDurable))]);
    assert_eq!((rig.port.events.len(), rig.calls().len()), (0, 0));
    // Told again, it is the same failure.
    rig.host.persist_failed(rig.now());
    rig.host.resumed(rig.now(), Seq::new(1));
    rig.settle();
    assert_eq!(rig.heard(), ["failing 1", "resumed 1"]);
    assert_eq!(rig.port.events, [1]);
    assert_eq!(rig.calls(), ["act 1"]);
    rig.order(|out, _| assert!(out.writable()));
}

#[test]
fn that_the_journal_fails_can_be_said_while_it_fails() {
    let mut rig = Rig::new();
    rig.record();
    rig.host.persist_failed(rig.now());
    let asked = rig.order(|out, ticket| out.answer_free(ticket, 7));
    assert_eq!(rig.port.answers, [(asked.number(), Ok(7))]);
}

#[test]
fn what_is_recorded_while_the_journal_fails_waits_for_its_own_record() {
    let mut rig = Rig::new();
    let conn = rig.accept();
    rig.record();
    rig.host.persist_failed(rig.now());
    rig.record();
    rig.send(conn, "b");
    // A journal that fails confirms nothing.
    rig.persisted(2);
    assert_eq!(rig.took(conn), "");
    rig.host.resumed(rig.now(), Seq::new(1));
    rig.settle();
    assert_eq!(rig.took(conn), "");
    rig.persisted(2);
    assert_eq!(rig.took(conn), "b");
    assert_eq!(rig.heard(), ["failing 1", "resumed 1", "persisted 2"]);
}

#[test]
fn a_confirmation_that_came_too_late_does_not_hide_the_next() {
    let mut rig = Rig::new();
    let conn = rig.accept();
    rig.record();
    rig.host.persist_failed(rig.now());
    rig.persisted(1);
    rig.host.resumed(rig.now(), Seq::new(1));
    rig.settle();
    rig.send(conn, "a");
    assert_eq!(rig.heard(), ["failing 1", "resumed 1"]);
    assert_eq!(rig.took(conn), "a");
}

#[test]
fn a_held_connection_that_ends_releases_nothing_of_the_next_in_its_slot() {
    let mut rig = Rig::new();
    let old = rig.accept();
    rig.record();
    rig.send(old, "old");
    rig.order(move |out, _| out.close(old, Close::Abort));
    let new = rig.accept();
    assert_eq!(new.slot(), old.slot());
    rig.record();
    rig.send(new, "new");
    rig.persisted(1);
    assert_eq!(rig.took(new), "");
    rig.persisted(2);
    assert_eq!(rig.took(new), "new");
}
