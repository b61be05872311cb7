//! When leases end, and what renews them.

use super::*;
use crate::lease::HEARD_FOR;

#[test]
fn a_lease_ends_at_its_instant_whether_its_timer_has_run_or_not() {
    let mut rig = Rig::new();
    granted(rig.claim("a@p", "l1", "res:x"));
    rig.skip(secs(60) - Duration::from_nanos(1));
    assert!(matches!(rig.claim("b@q", "l2", "res:x"), Outcome::Conflict(_)));
    rig.skip(Duration::from_nanos(1));
    assert!(rig.list().is_empty());
    granted(rig.claim("b@q", "l2", "res:x"));
    let ends: Vec<_> = rig.changes.iter().map(|change| (change.id.as_str(), change.lapse.as_str())).collect();
    assert_eq!(ends, [("l1", "granted"), ("l1", "expired"), ("l2", "granted")]);
}

#[test]
fn a_session_in_a_heartbeat_renews_for_90_seconds_and_its_lease_ends_a_ttl_later() {
    let mut rig = Rig::new();
    granted(rig.claim("a@p", "l1", "res:x"));
    rig.heard("p", &["a"]);
    rig.pass(HEARD_FOR + secs(60) - Duration::from_nanos(1));
    assert_eq!(rig.list(), ["l1"]);
    rig.pass(Duration::from_nanos(1));
    assert!(rig.list().is_empty());
}

#[test]
fn a_session_that_was_listed_before_its_claim_renews_too() {
    let mut rig = Rig::new();
    rig.heard("p", &["a"]);
    rig.pass(secs(30));
    granted(rig.claim("a@p", "l1", "res:x"));
    rig.pass(secs(119));
    assert_eq!(rig.list(), ["l1"]);
    rig.pass(secs(1));
    assert!(rig.list().is_empty());
}

#[test]
fn a_session_that_leaves_the_heartbeat_renews_until_then() {
    let mut rig = Rig::new();
    granted(rig.claim("a@p", "l1", "res:x"));
    rig.heard("p", &["a"]);
    rig.pass(secs(30));
    rig.heard("p", &["b"]);
    rig.pass(secs(60) - Duration::from_nanos(1));
    assert_eq!(rig.list(), ["l1"]);
    rig.pass(Duration::from_nanos(1));
    assert!(rig.list().is_empty());
}

#[test]
fn a_lease_that_lapsed_is_not_brought_back_by_a_later_heartbeat() {
    let mut rig = Rig::new();
    granted(rig.claim("a@p", "l1", "res:x"));
    rig.heard("p", &["a"]);
    rig.skip(HEARD_FOR + secs(60));
    rig.heard("p", &["a"]);
    assert!(rig.list().is_empty());
}

#[test]
fn another_peers_session_of_the_same_name_renews_nothing() {
    let mut rig = Rig::new();
    granted(rig.claim("a@p", "l1", "res:x"));
    rig.heard("q", &["a"]);
    rig.pass(secs(60));
    assert!(rig.list().is_empty());
}

#[test]
fn a_live_session_keeps_its_lease_for_five_ttls_and_says_so_to_its_holder() {
    let mut rig = Rig::new();
    let mut last = granted(rig.claim("a@p", "l1", "res:x")).expires_at;
    for _ in 0..10 {
        rig.heard("p", &["a"]);
        rig.pass(secs(30));
        let lease = granted(rig.claim("a@p", "l1", "res:x"));
        assert!(lease.expires_at > last, "the repeat says until when it is certain");
        last = lease.expires_at;
    }
}

#[test]
fn a_step_of_the_wall_clock_ends_and_extends_nothing() {
    for step in [-86_400_000_i64, 86_400_000] {
        let mut rig = Rig::new();
        granted(rig.claim("a@p", "l1", "res:x"));
        rig.now.wall = Wall::from_millis(rig.now.wall.as_millis().saturating_add_signed(step));
        rig.pass(secs(59));
        assert_eq!(rig.list(), ["l1"]);
        rig.pass(secs(1));
        assert!(rig.list().is_empty());
    }
}

#[test]
fn the_end_of_100_000_leases_at_one_instant_is_bounded_work_a_step() {
    let mut rig = Rig::new();
    for n in 0..100_000 {
        let name = format!("s@p{}", n / 10_000);
        granted(rig.claim(&name, &format!("l{n}"), &format!("res:{n}")));
    }
    rig.skip(secs(60));
    let mut steps = 0;
    while rig.authority.deadline().is_some_and(|due| due <= rig.now.mono) {
        let before = rig.journal.len();
        rig.run(|authority, now, desk| authority.fire(now, desk));
        assert!(rig.journal.len() - before <= BATCH);
        steps += 1;
    }
    assert_eq!((steps, rig.authority.table.len()), (100_000_usize.div_ceil(BATCH), 0));
}
