//! Time: exact deadlines, clocks that only go on, and an end to everything that waits.

use core::cell::RefCell;

use relay_core::host::Host;
use relay_core::machine::Refused;
use relay_core::outbox::Close;
use relay_core::time::{Mono, Now, Wall};

use crate::rig::{Puppet, Rig};

const FLUSH: u64 = Host::<Puppet>::FLUSH_TIME.as_nanos() as u64;

fn set(deadline: &RefCell<Option<Mono>>, nanos: u64) {
    deadline.replace(Some(Mono::from_nanos(nanos)));
}

#[test]
fn a_timer_before_the_deadline_does_nothing() {
    let mut rig = Rig::new();
    set(&rig.deadline, 10);
    assert_eq!(rig.host.deadline(), Some(Mono::from_nanos(10)));
    for clock in [1, 9] {
        rig.clock = clock;
        rig.host.timer(rig.now());
    }
    assert_eq!(rig.heard(), [""; 0]);
    rig.clock = 10;
    rig.host.timer(rig.now());
    assert_eq!(rig.heard(), ["timer 10"]);
    rig.host.timer(rig.now());
    assert_eq!(rig.heard(), [""; 0]);
}

#[test]
fn a_clock_that_goes_back_stands_still() {
    let mut rig = Rig::new();
    set(&rig.deadline, 100);
    rig.clock = 50;
    rig.host.timer(rig.now());
    rig.clock = 100;
    rig.host.timer(rig.now());
    set(&rig.deadline, 120);
    rig.clock = 130;
    rig.host.timer(rig.now());
    rig.clock = 20;
    set(&rig.deadline, 131);
    rig.host.timer(rig.now());
    assert_eq!(rig.heard(), ["timer 100", "timer 130"]);
    // The wall clock may do what it likes.
    rig.host.timer(Now { mono: Mono::from_nanos(131), wall: Wall::from_millis(0) });
    assert_eq!(rig.heard(), ["timer 131"]);
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "after a step the deadline lies behind now")]
fn a_deadline_that_is_over_is_caught() {
    let mut rig = Rig::new();
    let deadline = alloc::rc::Rc::clone(&rig.deadline);
    rig.clock = 10;
    set(&deadline, 5);
    rig.order(|_, _| ());
}

#[test]
fn a_flush_that_nobody_reads_ends_in_its_time() {
    let mut rig = Rig::new();
    let conn = rig.accept();
    rig.allow(conn, 0);
    rig.send(conn, "abc");
    rig.order(move |out, _| out.close(conn, Close::Flush));
    assert_eq!(rig.host.deadline(), Some(Mono::from_nanos(1 + FLUSH)));
    rig.clock = FLUSH;
    rig.host.timer(rig.now());
    rig.settle();
    assert_eq!(rig.heard(), [""; 0]);
    rig.clock = 1 + FLUSH;
    rig.host.timer(rig.now());
    rig.settle();
    assert_eq!(rig.heard(), ["closed conn 0.0 Asked 3"]);
    assert_eq!(rig.calls(), ["close conn 0.0 Reset"]);
    assert_eq!(rig.host.deadline(), None);
}

#[test]
fn a_peer_that_never_ends_its_half_is_left_in_the_same_time() {
    let mut rig = Rig::new();
    let conn = rig.accept();
    rig.send(conn, "abc");
    rig.order(move |out, _| out.close(conn, Close::Flush));
    assert_eq!(rig.calls(), ["finish conn 0.0"]);
    rig.host.received(rig.now(), conn, b"late");
    rig.clock = 1 + FLUSH;
    rig.host.timer(rig.now());
    rig.settle();
    assert_eq!(rig.heard(), ["closed conn 0.0 Asked 0"]);
    assert_eq!(rig.calls(), ["close conn 0.0 Orderly"]);
}

#[test]
fn a_connection_that_ended_wakes_nobody() {
    let mut rig = Rig::new();
    let conn = rig.accept();
    rig.order(move |out, _| out.close(conn, Close::Flush));
    assert!(rig.host.deadline().is_some());
    rig.host.eof(rig.now(), conn);
    rig.settle();
    assert_eq!(rig.heard(), ["closed conn 0.0 Asked 0"]);
    assert_eq!(rig.host.deadline(), None);
}

#[test]
fn a_drain_waits_for_connections_and_records_and_no_longer_than_it_was_told() {
    let mut rig = Rig::new();
    let conn = rig.accept();
    rig.record();
    rig.host.drain(rig.now(), Mono::from_nanos(100));
    rig.host.drain(rig.now(), Mono::from_nanos(900));
    assert_eq!(rig.heard(), ["drain"]);
    rig.order(move |out, _| out.close(conn, Close::Abort));
    assert!(!rig.host.is_done(rig.now()));
    rig.persisted(1);
    assert!(rig.host.is_done(rig.now()));

    let mut rig = Rig::new();
    rig.accept();
    rig.host.drain(rig.now(), Mono::from_nanos(100));
    assert_eq!(rig.host.deadline(), Some(Mono::from_nanos(100)));
    rig.clock = 99;
    assert!(!rig.host.is_done(rig.now()));
    rig.clock = 100;
    assert!(rig.host.is_done(rig.now()));
}

#[test]
fn a_stop_ends_every_id_and_refuses_every_answer_that_waits() {
    let mut rig = Rig::with_reflex(|line, out| {
        // As a machine does that dials again at once.
        if line.starts_with("closed conn 0.0") {
            out.dial(relay_core::machine::Target::unix("again"));
        }
    });
    rig.accept();
    let flushing = rig.accept();
    rig.allow(flushing, 0);
    rig.send(flushing, "abc");
    rig.order(move |out, _| out.close(flushing, Close::Flush));
    rig.record();
    let asked = rig.order(|out, ticket| out.answer(ticket, 1));
    rig.heard();
    let now = rig.now();
    rig.host.stop(now, &mut rig.port);
    let mut heard = rig.heard();
    heard.sort();
    assert_eq!(heard, ["closed conn 0.0 Stopped 0", "closed conn 1.0 Asked 3", "closed conn 2.0 Stopped 0"]);
    assert_eq!(rig.port.answers, [(asked.number(), Err(Refused::Stopped))]);
    assert_eq!(rig.gauge("connections"), 0);
}
