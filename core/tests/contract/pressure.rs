//! Bounds: pauses that always end, peers that do not read, journals that fall behind.

use relay_core::host::Host;
use relay_core::machine::ConnId;
use relay_core::outbox::{Close, Limits};

use crate::rig::{Puppet, Rig};

const LIMITS: Limits = Limits { high: 100, low: 10, cap: 1000 };

fn limited(rig: &mut Rig) -> ConnId {
    let conn = rig.accept();
    rig.order(move |out, _| out.limit(conn, LIMITS));
    conn
}

#[test]
fn a_pause_ends_with_drained_once_little_is_unsent() {
    let mut rig = Rig::new();
    let conn = limited(&mut rig);
    rig.allow(conn, 0);
    rig.fill(conn, 50);
    rig.order(move |out, _| out.pause(conn));
    assert_eq!(rig.calls(), ["reading conn 0.0 false"]);
    rig.allow(conn, 39);
    assert_eq!(rig.heard(), [""; 0]);
    rig.allow(conn, 1);
    assert_eq!(rig.calls(), ["reading conn 0.0 true"]);
    assert_eq!(rig.heard(), ["drained conn 0.0"]);
}

#[test]
fn a_pause_with_nothing_unsent_ends_at_once() {
    let mut rig = Rig::new();
    let conn = limited(&mut rig);
    rig.order(move |out, _| out.pause(conn));
    assert_eq!(rig.heard(), ["drained conn 0.0"]);
    assert_eq!(rig.calls(), [""; 0], "the socket is not troubled");
}

#[test]
fn a_pause_at_the_low_mark_with_held_bytes_ends_too() {
    let mut rig = Rig::new();
    let conn = limited(&mut rig);
    rig.record();
    rig.fill(conn, 50);
    rig.order(move |out, _| out.pause(conn));
    assert_eq!(rig.heard(), [""; 0]);
    rig.persisted(1);
    assert_eq!(rig.heard(), ["persisted 1", "drained conn 0.0"]);
}

#[test]
fn a_pause_while_paused_is_one_pause() {
    let mut rig = Rig::new();
    let conn = limited(&mut rig);
    rig.allow(conn, 0);
    rig.fill(conn, 50);
    for _ in 0..3 {
        rig.order(move |out, _| out.pause(conn));
    }
    rig.allow(conn, 50);
    assert_eq!(rig.heard(), ["drained conn 0.0"]);
    assert_eq!(rig.calls(), ["reading conn 0.0 false", "reading conn 0.0 true"]);
}

#[test]
fn a_machine_that_pauses_whenever_room_is_short_never_stalls() {
    // Paused a little below the high mark, a connection has no mark to fall below.
    let mut rig = Rig::new();
    let conn = limited(&mut rig);
    rig.allow(conn, 0);
    for size in (1..=LIMITS.high as usize).rev() {
        rig.fill(conn, size);
        rig.order(move |out, _| out.pause(conn));
        let before = rig.heard().len();
        rig.allow(conn, size);
        assert_eq!(before + rig.heard().len(), 1, "{size} bytes unsent");
    }
}

#[test]
fn a_slow_peer_costs_only_itself() {
    let mut rig = Rig::new();
    let (slow, quick) = (rig.accept(), rig.accept());
    rig.allow(slow, 0);
    rig.fill(slow, 1 << 20);
    rig.send(quick, "a");
    assert_eq!(rig.took(quick), "a");
    assert_eq!(rig.took(slow), "");
}

#[test]
fn past_the_hard_cap_a_connection_ends() {
    let mut rig = Rig::new();
    let conn = limited(&mut rig);
    rig.allow(conn, 0);
    rig.fill(conn, 1000);
    assert_eq!(rig.heard(), [""; 0]);
    rig.fill(conn, 1);
    assert_eq!(rig.heard(), ["closed conn 0.0 Overflow 1001"]);
    assert_eq!(rig.calls(), ["close conn 0.0 Reset"]);
}

#[test]
fn held_bytes_count_against_the_cap_and_the_room() {
    let mut rig = Rig::new();
    let conn = limited(&mut rig);
    rig.record();
    rig.fill(conn, 40);
    rig.order(move |out, _| {
        assert_eq!((out.room(conn), out.unsent(conn), out.progress(conn)), (60, 40, 0));
    });
    rig.persisted(1);
    rig.order(move |out, _| {
        assert_eq!((out.room(conn), out.unsent(conn), out.progress(conn)), (100, 0, 40));
    });
    rig.record();
    rig.fill(conn, 1001);
    assert_eq!(rig.heard(), ["persisted 1", "closed conn 0.0 Overflow 1001"]);
}

#[test]
fn there_is_no_room_where_nothing_may_be_queued() {
    let mut rig = Rig::new();
    let (flushing, finished) = (rig.accept(), rig.accept());
    rig.order(move |out, _| {
        out.close(flushing, Close::Flush);
        out.finish(finished);
        // A machine that fills whatever room there is would never end.
        assert_eq!((out.room(flushing), out.room(finished)), (0, 0));
    });
}

#[test]
fn a_journal_that_falls_behind_congests_until_it_has_caught_up() {
    let mut rig = Rig::new();
    let half = Host::<Puppet>::JOURNAL_BYTES / 2;
    for _ in 0..2 {
        rig.order(move |out, _| {
            out.record(|buf| buf.resize(half, 0));
        });
        assert!(!rig.host.is_congested());
    }
    rig.record();
    assert!(rig.host.is_congested());
    // The machine can know, since whoever is not read seems silent.
    rig.order(|out, _| assert!(out.is_congested()));
    rig.persisted(1);
    assert!(!rig.host.is_congested());
    rig.order(|out, _| assert!(!out.is_congested()));
    rig.persisted(3);
    assert_eq!(rig.gauge("journal_pending_bytes"), 0);
    rig.record();
    rig.order(|out, _| (0..=Host::<Puppet>::HELD_EMISSIONS as u32).for_each(|event| out.event(event)));
    assert!(rig.host.is_congested());
    rig.persisted(4);
    assert!(!rig.host.is_congested());
}
