//! What a machine leaves for a later step.

use std::cell::Cell;
use std::rc::Rc;

use relay_core::host::Host;
use relay_core::machine::ConnId;

use crate::rig::{Puppet, Rig};

/// A machine that leaves this of what it gets in the one step that is told of so many bytes.
fn leaving(at: &'static str, rest: &'static [u8]) -> (Rig, ConnId) {
    let conn = Rc::new(Cell::new(None::<ConnId>));
    let told = Rc::clone(&conn);
    let mut rig = Rig::with_reflex(move |line, out| {
        if line == at
            && let Some(conn) = told.get()
        {
            out.leave(conn, rest);
        }
    });
    conn.set(Some(rig.accept()));
    rig.heard();
    rig.calls();
    let id = conn.get().expect("it was accepted");
    (rig, id)
}

#[test]
fn what_is_left_comes_again_and_nothing_is_read_meanwhile() {
    let (mut rig, conn) = leaving("bytes whole", b"left");
    rig.host.received(rig.now(), conn, b"whole");
    rig.host.received(rig.now(), conn, b" and more");
    assert_eq!(rig.heard(), ["bytes whole"], "what follows waits too");
    rig.settle();
    assert_eq!(rig.heard(), ["bytes left and more"]);
    assert_eq!(rig.calls(), ["reading conn 0.0 false", "reading conn 0.0 true"]);
}

#[test]
fn a_step_may_be_asked_for_without_bytes() {
    let (mut rig, conn) = leaving("bytes whole", b"");
    rig.host.received(rig.now(), conn, b"whole");
    rig.settle();
    assert_eq!(rig.heard(), ["bytes whole", "bytes "]);
}

#[test]
fn the_end_of_the_stream_comes_behind_what_was_left() {
    let (mut rig, conn) = leaving("bytes whole", b"left");
    rig.host.received(rig.now(), conn, b"whole");
    rig.host.eof(rig.now(), conn);
    assert_eq!(rig.heard(), ["bytes whole"]);
    rig.settle();
    assert_eq!(rig.heard(), ["bytes left", "eof conn 0.0"]);
}

#[test]
fn what_was_left_ends_with_its_connection() {
    let (mut rig, conn) = leaving("bytes whole", b"left");
    rig.host.received(rig.now(), conn, b"whole");
    rig.order(move |out, _| out.close(conn, relay_core::outbox::Close::Abort));
    assert!(!rig.heard().iter().any(|line| line == "bytes left"));
}

#[test]
fn beyond_its_part_of_a_turn_a_share_waits_for_the_next() {
    let (mut rig, conn) = leaving("never", b"");
    let most = Host::<Puppet>::MAX_READ;
    rig.host.received(rig.now(), conn, &vec![0; Host::<Puppet>::SHARE_WORK + most]);
    assert_eq!(rig.heard().len(), Host::<Puppet>::SHARE_WORK / most);
    rig.settle();
    assert_eq!(rig.heard(), [format!("bytes {most}")]);
}
