//! Connections: each id ends once, in order, whoever ends it.

use relay_core::host::Host;
use relay_core::machine::{CloseReason, DialError, Endpoint, Target};
use relay_core::outbox::Close;

use crate::rig::{Puppet, Rig};

const PEER: Endpoint = Endpoint::Unix { uid: None, pid: None };

#[test]
fn ids_come_from_one_source_whether_accepted_or_dialled() {
    let mut rig = Rig::new();
    rig.accept();
    rig.order(|out, _| {
        let (one, two) = (out.dial(Target::unix("a")), out.dial(Target::unix("b")));
        assert_eq!((one.slot(), two.slot()), (1, 2));
    });
    assert_eq!(rig.calls(), ["dial conn 1.0", "dial conn 2.0"]);
    assert_eq!(rig.accept().slot(), 3);
}

/// Slots collide, so that the bytes would go to a stranger.
#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "conn 0.0 is an id of another host")]
fn an_id_of_another_host_is_caught() {
    let (mut one, mut other) = (Rig::new(), Rig::new());
    let conn = one.accept();
    assert_eq!(conn, other.accept());
    other.send(conn, "astray");
}

/// What a driver says may come from a record of another run.
#[test]
fn a_run_is_repeated_with_the_ids_that_it_had() {
    let (mut one, mut other) = (Rig::new(), Rig::new());
    let conn = one.accept();
    other.accept();
    other.host.received(other.now(), conn, b"x");
    other.host.eof(other.now(), conn);
    other.host.closed(other.now(), conn, CloseReason::Reset);
    other.settle();
    assert_eq!(other.heard(), ["bytes x", "eof conn 0.0", "closed conn 0.0 Reset 0"]);
}

#[test]
fn a_dial_sends_what_was_queued_meanwhile() {
    let mut rig = Rig::new();
    let conn = rig.dial("b");
    assert_eq!(rig.took(conn), "");
    rig.host.dialled(rig.now(), conn, &PEER, None);
    rig.settle();
    assert_eq!(rig.took(conn), "b");
}

#[test]
fn a_failed_dial_ends_once() {
    let mut rig = Rig::new();
    let conn = rig.dial("b");
    for _ in 0..2 {
        rig.host.closed(rig.now(), conn, CloseReason::DialFailed(DialError::Refused));
    }
    rig.host.dialled(rig.now(), conn, &PEER, None);
    rig.host.received(rig.now(), conn, b"x");
    rig.host.eof(rig.now(), conn);
    rig.settle();
    assert_eq!(rig.heard(), ["closed conn 0.0 DialFailed(Refused) 1"]);
}

#[test]
fn a_dial_that_is_closed_before_the_port_heard_of_it_is_never_named_to_it() {
    let mut rig = Rig::new();
    rig.order(|out, _| {
        let conn = out.dial(Target::unix("a"));
        out.close(conn, Close::Flush);
    });
    assert_eq!(rig.heard(), ["closed conn 0.0 Asked 0"]);
    assert_eq!(rig.calls(), [""; 0]);
}

#[test]
fn a_dial_under_way_can_be_closed() {
    let mut rig = Rig::new();
    let conn = rig.dial("b");
    rig.order(move |out, _| out.close(conn, Close::Abort));
    assert_eq!(rig.heard(), ["closed conn 0.0 Asked 1"]);
    assert_eq!(rig.calls(), ["dial conn 0.0", "close conn 0.0 Reset"]);
}

#[test]
fn a_slot_is_used_again_under_another_id_and_the_old_one_does_nothing() {
    let mut rig = Rig::new();
    let old = rig.accept();
    rig.host.closed(rig.now(), old, CloseReason::Reset);
    rig.settle();
    let new = rig.accept();
    assert_eq!((new.slot(), new.generation()), (old.slot(), old.generation() + 1));
    rig.heard();
    rig.host.received(rig.now(), old, b"x");
    rig.host.eof(rig.now(), old);
    rig.host.writable(old);
    rig.host.closed(rig.now(), old, CloseReason::Reset);
    let before = rig.gauge("stale_uses");
    rig.order(move |out, _| {
        out.send(old, |buf| buf.push(b'a'));
        out.send_free(old, |buf| buf.push(b'a'));
        out.pause(old);
        out.finish(old);
        out.close(old, Close::Abort);
        assert_eq!((out.room(old), out.unsent(old), out.progress(old)), (0, 0, 0));
    });
    assert_eq!(rig.heard(), [""; 0]);
    assert_eq!(rig.took(new), "");
    assert_eq!(rig.gauge("stale_uses"), before + 5);
}

#[test]
fn a_slot_is_free_only_behind_its_closed() {
    let mut rig = Rig::with_reflex(|line, out| {
        if line.starts_with("closed conn 0.0") {
            assert_eq!(out.dial(Target::unix("again")).slot(), 1);
        }
    });
    let conn = rig.accept();
    rig.host.closed(rig.now(), conn, CloseReason::Reset);
    rig.settle();
    assert_eq!(rig.calls(), ["dial conn 1.0"]);
}

#[test]
fn what_a_machine_does_behind_its_close_is_void() {
    let mut rig = Rig::new();
    let conn = rig.accept();
    rig.order(move |out, _| {
        out.close(conn, Close::Abort);
        out.close(conn, Close::Abort);
        out.close(conn, Close::Flush);
        out.send(conn, |buf| buf.push(b'a'));
        out.pause(conn);
        out.finish(conn);
    });
    assert_eq!(rig.heard(), ["closed conn 0.0 Asked 0"]);
    // Nothing was unsent, and yet no peer may take it for an end in order.
    assert_eq!(rig.calls(), ["close conn 0.0 Reset"]);
}

#[test]
fn a_write_that_fails_ends_the_connection() {
    let mut rig = Rig::new();
    let conn = rig.accept();
    rig.port.broken.insert(conn);
    rig.send(conn, "abc");
    assert_eq!(rig.heard(), ["closed conn 0.0 Reset 3"]);
}

#[test]
fn a_finish_half_closes_behind_what_is_owed() {
    let mut rig = Rig::new();
    let conn = rig.accept();
    rig.record();
    rig.send(conn, "abc");
    rig.order(move |out, _| {
        out.finish(conn);
        out.send(conn, |buf| buf.push(b'd'));
    });
    assert_eq!(rig.calls(), [""; 0]);
    rig.persisted(1);
    assert_eq!((rig.took(conn), rig.calls()), ("abc".into(), vec!["finish conn 0.0".to_owned()]));
    rig.host.received(rig.now(), conn, b"more");
    rig.host.eof(rig.now(), conn);
    rig.settle();
    assert_eq!(rig.heard(), ["persisted 1", "bytes more", "eof conn 0.0", "closed conn 0.0 Finished 0"]);
    assert_eq!(rig.calls(), ["close conn 0.0 Orderly"]);
}

#[test]
fn what_was_asked_before_the_end_of_the_stream_is_still_answered() {
    let mut rig = Rig::new();
    let conn = rig.accept();
    rig.host.received(rig.now(), conn, b"ask");
    rig.host.eof(rig.now(), conn);
    rig.host.eof(rig.now(), conn);
    rig.host.received(rig.now(), conn, b"behind the end");
    rig.settle();
    assert_eq!(rig.heard(), ["bytes ask", "eof conn 0.0"]);
    rig.send(conn, "answer");
    rig.order(move |out, _| out.finish(conn));
    assert_eq!(rig.took(conn), "answer");
    assert_eq!(rig.heard(), ["closed conn 0.0 Finished 0"]);
}

#[test]
fn a_flush_delivers_what_is_queued_and_throws_away_what_arrives() {
    let mut rig = Rig::new();
    let conn = rig.accept();
    rig.allow(conn, 1);
    rig.send(conn, "abc");
    rig.order(move |out, _| {
        out.pause(conn);
        out.close(conn, Close::Flush);
        out.send(conn, |buf| buf.push(b'd'));
    });
    rig.host.received(rig.now(), conn, b"late");
    rig.allow(conn, 9);
    assert_eq!(rig.took(conn), "abc");
    rig.host.eof(rig.now(), conn);
    rig.settle();
    assert_eq!(rig.heard(), ["closed conn 0.0 Asked 0"]);
    assert_eq!(rig.calls().last().map(String::as_str), Some("close conn 0.0 Orderly"));
}

#[test]
fn a_flush_waits_for_the_journal() {
    let mut rig = Rig::new();
    let conn = rig.accept();
    rig.record();
    rig.send(conn, "abc");
    rig.order(move |out, _| out.close(conn, Close::Flush));
    assert_eq!(rig.took(conn), "");
    rig.persisted(1);
    assert_eq!(rig.took(conn), "abc");
}

#[test]
fn a_pause_of_a_connection_that_was_closed_promises_nothing() {
    let mut rig = Rig::new();
    let conn = rig.accept();
    rig.order(move |out, _| out.close(conn, Close::Flush));
    rig.order(move |out, _| out.pause(conn));
    assert_eq!(rig.heard(), [""; 0]);
}

#[test]
fn the_reason_is_the_machines_where_the_machine_closed() {
    let mut rig = Rig::new();
    let conn = rig.accept();
    rig.order(move |out, _| out.close(conn, Close::Flush));
    rig.host.closed(rig.now(), conn, CloseReason::Reset);
    assert_eq!(rig.heard(), ["closed conn 0.0 Asked 0"]);
}

#[test]
fn a_step_is_given_no_more_than_it_may_be() {
    let mut rig = Rig::new();
    let conn = rig.accept();
    let most = Host::<Puppet>::MAX_READ;
    rig.host.received(rig.now(), conn, &vec![b'x'; 2 * most + 100]);
    assert_eq!(rig.heard(), [format!("bytes {most}"), format!("bytes {most}"), "bytes 100".to_owned()]);
    rig.host.received(rig.now(), conn, b"");
    assert_eq!(rig.heard(), [""; 0]);
}

#[test]
fn a_connection_that_is_closed_within_a_read_hears_no_more_of_it() {
    let most = Host::<Puppet>::MAX_READ;
    let ids = alloc::rc::Rc::new(core::cell::Cell::new(None));
    let known = alloc::rc::Rc::clone(&ids);
    let mut rig = Rig::with_reflex(move |line, out| {
        if let Some(conn) = known.get().filter(|_| line.starts_with("bytes")) {
            out.close(conn, Close::Abort);
        }
    });
    let conn = rig.accept();
    ids.set(Some(conn));
    rig.host.received(rig.now(), conn, &vec![b'x'; most + 1]);
    rig.settle();
    assert_eq!(rig.heard(), [format!("bytes {most}"), "closed conn 0.0 Asked 0".to_owned()]);
}
