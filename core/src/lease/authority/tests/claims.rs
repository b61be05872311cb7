//! Claims, releases, and who waits.

use super::*;
use crate::lease::POLL_WITHIN;
use crate::message::lease::Blocker;

#[test]
fn a_free_resource_is_granted_with_its_fencing_token() {
    let mut rig = Rig::new();
    let lease = granted(rig.claim("s@p", "l1", "res:demo"));
    assert_eq!(
        (lease.owner_session_id.as_str(), lease.owner_agent.as_str(), lease.status.as_str()),
        ("s@p", "claude-code", "active")
    );
    assert_eq!(lease.expires_at.as_secs() - lease.acquired_at.as_secs(), 60);
    assert_eq!(lease.fencing_token, Some(rig.journal.len() as u64));
}

#[test]
fn a_held_resource_is_a_conflict_that_names_its_holder() {
    let mut rig = Rig::new();
    let held = granted(rig.claim("s@p", "l1", "res:demo"));
    let Outcome::Conflict(Blocker::Lease { holder, lease_id, expires_at }) =
        rig.claim("t@q", "l2", "res:demo")
    else {
        panic!("two hold one resource")
    };
    assert_eq!((holder.as_str(), lease_id.as_str(), expires_at), ("s@p", "l1", Some(held.expires_at)));
}

#[test]
fn another_session_of_the_same_peer_conflicts_and_the_same_session_does_not() {
    let mut rig = Rig::new();
    granted(rig.claim("s@p", "l1", "res:demo"));
    assert!(matches!(rig.claim("t@p", "l2", "res:demo"), Outcome::Conflict(_)));
    granted(rig.claim("s@p", "l3", "res:demo"));
}

#[test]
fn an_advisory_lease_is_always_granted_and_blocks_nobody() {
    let mut rig = Rig::new();
    let advisory = |name: &str, id: &str| LeaseClaim { mode: Mode::Advisory, ..claim(name, id, "res:demo") };
    granted(rig.ask("s@p", advisory("s@p", "a1")));
    granted(rig.claim("t@q", "l1", "res:demo"));
    granted(rig.ask("u@r", advisory("u@r", "a2")));
    assert_eq!(rig.list(), ["a2", "l1", "a1"]);
}

#[test]
fn a_repeated_claim_is_granted_with_the_stored_lease_whatever_it_asks() {
    let mut rig = Rig::new();
    let first = granted(rig.claim("s@p", "l1", "res:demo"));
    rig.pass(secs(7));
    let repeat = LeaseClaim { ttl_secs: 3600, mode: Mode::Advisory, ..claim("s@p", "l1", "res:other") };
    assert_eq!(granted(rig.ask("s@p", repeat)), first);
}

#[test]
fn a_lease_id_of_another_owner_or_of_an_ended_lease_is_an_error() {
    let mut rig = Rig::new();
    granted(rig.claim("s@p", "l1", "res:demo"));
    for other in ["t@p", "s@q"] {
        assert!(is_error(&rig.claim(other, "l1", "res:free")), "{other}");
    }
    rig.release("s@p", "l1");
    assert!(is_error(&rig.claim("s@p", "l1", "res:demo")));
    granted(rig.claim("s@p", "l2", "res:demo"));
    rig.pass(secs(60));
    assert!(is_error(&rig.claim("s@p", "l2", "res:demo")));
}

#[test]
fn a_release_says_what_became_of_it() {
    let mut rig = Rig::new();
    granted(rig.claim("s@p", "l1", "res:demo"));
    assert_eq!(rig.release("s@p", "none"), Outcome::NotFound);
    assert_eq!(rig.release("t@p", "l1"), Outcome::NotOwner { holder: Some("s@p".into()) });
    assert_eq!(rig.release("s@p", "l1"), Outcome::Released);
    assert_eq!(rig.release("s@p", "l1"), Outcome::NotActive { status: Some("released".into()) });
    granted(rig.claim("t@q", "l2", "res:demo"));
    rig.pass(secs(60));
    assert_eq!(rig.release("t@q", "l2"), Outcome::NotActive { status: Some("expired".into()) });
}

#[test]
fn a_lapsed_lease_whose_timer_has_not_run_is_not_released_but_expired() {
    let mut rig = Rig::new();
    granted(rig.claim("s@p", "l1", "res:demo"));
    rig.skip(secs(60));
    assert_eq!(rig.release("s@p", "l1"), Outcome::NotActive { status: Some("expired".into()) });
}

#[test]
fn a_repeated_request_has_the_same_answer() {
    let mut rig = Rig::new();
    granted(rig.claim("s@p", "l1", "res:demo"));
    let again = LeaseClaim { request_id: "same".into(), ..claim("t@q", "l2", "res:demo") };
    let first = rig.ask("t@q", again.clone());
    rig.release("s@p", "l1");
    assert_eq!(rig.ask("t@q", again), first, "a conflict stays one for its request");
    assert_eq!(rig.release_as("s@p", "l9", "again"), Outcome::NotFound);
    granted(rig.claim("s@p", "l9", "res:other"));
    assert_eq!(rig.release_as("s@p", "l9", "again"), Outcome::NotFound);
}

#[test]
fn a_repeated_release_is_answered_released_after_a_restart_too() {
    let mut rig = Rig::new();
    granted(rig.claim("s@p", "l1", "res:demo"));
    assert_eq!(rig.release_as("s@p", "l1", "r-same"), Outcome::Released);
    assert_eq!(rig.release_as("s@p", "l1", "r-same"), Outcome::Released);
    rig.restart("boot-1");
    assert_eq!(rig.release_as("s@p", "l1", "r-same"), Outcome::Released);
    assert_eq!(rig.release_as("s@p", "l1", "other"), Outcome::NotActive { status: Some("released".into()) });
}

#[test]
fn who_waits_is_granted_first_come_first_served() {
    let mut rig = Rig::new();
    granted(rig.claim("a@p", "l1", "res:x"));
    let second = waits(rig.wait("b@p", "l2", "res:x"));
    let third = waits(rig.wait("c@q", "l3", "res:x"));
    rig.release("a@p", "l1");
    let Outcome::Queued { blocker, .. } = rig.poll("c@q", "l3", "res:x", &third) else {
        panic!("somebody waits before it")
    };
    assert_eq!(blocker, Blocker::Queue { ahead: 1 });
    assert_eq!(rig.claim("d@r", "l4", "res:x"), Outcome::Conflict(Blocker::Queue { ahead: 2 }));
    granted(rig.poll("b@p", "l2", "res:x", &second));
    rig.release("b@p", "l2");
    granted(rig.poll("c@q", "l3", "res:x", &third));
}

#[test]
fn a_place_is_kept_for_10_seconds_without_a_poll_and_no_longer() {
    for (after, gone) in [(POLL_WITHIN, false), (POLL_WITHIN + Duration::from_nanos(1), true)] {
        let mut rig = Rig::new();
        granted(rig.claim("a@p", "l1", "res:x"));
        let waiter = waits(rig.wait("b@p", "l2", "res:x"));
        rig.skip(after);
        assert_eq!(rig.poll("b@p", "l2", "res:x", &waiter) == Outcome::WaiterGone, gone);
    }
}

#[test]
fn one_who_does_not_poll_is_in_nobodys_way() {
    let mut rig = Rig::new();
    granted(rig.claim("a@p", "l1", "res:x"));
    waits(rig.wait("b@p", "l2", "res:x"));
    rig.release("a@p", "l1");
    assert!(matches!(rig.claim("c@q", "l3", "res:x"), Outcome::Conflict(_)));
    rig.pass(secs(11));
    granted(rig.claim("c@q", "l3", "res:x"));
}

#[test]
fn a_waiter_id_belongs_to_its_owner_and_resource() {
    let mut rig = Rig::new();
    granted(rig.claim("a@p", "l1", "res:x"));
    let waiter = waits(rig.wait("b@p", "l2", "res:x"));
    assert_eq!(rig.poll("c@q", "l3", "res:x", &waiter), Outcome::WaiterGone);
    assert_eq!(rig.poll("c@q", "l3", "res:free", &waiter), Outcome::WaiterGone);
    assert_eq!(waits(rig.poll("b@p", "l2", "res:x", &waiter)), waiter, "the place stands");
}

#[test]
fn a_retried_first_poll_keeps_its_place() {
    let mut rig = Rig::new();
    granted(rig.claim("a@p", "l1", "res:x"));
    let waiter = waits(rig.wait("b@p", "l2", "res:x"));
    waits(rig.wait("c@q", "l3", "res:x"));
    assert_eq!(waits(rig.wait("b@p", "l2", "res:x")), waiter);
}

#[test]
fn a_waiter_is_gone_after_its_grant_and_an_unknown_one_always() {
    let mut rig = Rig::new();
    granted(rig.claim("a@p", "l1", "res:x"));
    let waiter = waits(rig.wait("b@p", "l2", "res:x"));
    rig.release("a@p", "l1");
    granted(rig.poll("b@p", "l2", "res:x", &waiter));
    assert_eq!(rig.poll("b@p", "l9", "res:x", &waiter), Outcome::WaiterGone);
    for unknown in ["w999", "w", "x1", "w01"] {
        assert_eq!(rig.poll("b@p", "l9", "res:x", unknown), Outcome::WaiterGone, "{unknown}");
    }
}

#[test]
fn who_gives_up_waiting_leaves_its_place_at_once() {
    let mut rig = Rig::new();
    granted(rig.claim("a@p", "l1", "res:x"));
    waits(rig.wait("b@p", "l2", "res:x"));
    assert_eq!(rig.release("b@p", "l2"), Outcome::NotFound);
    rig.release("a@p", "l1");
    granted(rig.claim("c@q", "l3", "res:x"));
}
