//! A journal that fails, and restarts.

use alloc::borrow::ToOwned;
use alloc::string::ToString;
use alloc::vec;

use super::*;
use crate::lease::HEARD_FOR;

#[test]
fn while_the_journal_fails_nothing_changes_and_what_is_durable_is_told() {
    let mut rig = Rig::new();
    granted(rig.claim("a@p", "l1", "res:x"));
    rig.fail();
    let before = rig.image();
    assert!(is_error(&rig.claim("a@p", "l2", "res:y")));
    assert!(is_error(&rig.release("a@p", "l1")));
    assert!(is_error(&rig.wait("b@q", "l3", "res:x")));
    granted(rig.claim("a@p", "l1", "res:x"));
    assert_eq!(rig.list(), ["l1"]);
    rig.pass(secs(120));
    assert_eq!((rig.image(), rig.list()), (before, vec!["l1".to_owned()]));
    rig.resume();
    rig.pass(secs(1));
    assert!(rig.list().is_empty());
    granted(rig.claim("b@q", "l3", "res:x"));
}

#[test]
fn a_list_while_the_journal_fails_shows_durable_rows_only() {
    let mut rig = Rig::new();
    granted(rig.claim("a@p", "durable", "res:x"));
    let upto = Seq::new(rig.journal.len() as u64);
    let mut desk = Desk { journal: &mut rig.journal, changes: &mut rig.changes };
    let mut young = claim("a@p", "young", "res:y");
    young.request_id = "r".into();
    rig.authority.claim(rig.now, &peer("p"), &young, &mut desk);
    let release = LeaseRelease { request_id: "r2".into(), lease_id: "durable".into(), session: "a".into() };
    rig.authority.release(rig.now, &peer("p"), &release, &mut desk);
    rig.authority.persisted(upto);
    rig.fail();
    assert_eq!(rig.list(), ["durable"], "neither the grant nor the end is durable");
    assert!(is_error(&rig.claim("a@p", "young", "res:y")));
    rig.resume();
    assert_eq!(rig.list(), ["young"]);
}

#[test]
fn a_heartbeat_while_the_journal_fails_counts_from_when_it_came() {
    let mut rig = Rig::new();
    granted(rig.claim("a@p", "l1", "res:x"));
    rig.fail();
    rig.skip(secs(30));
    rig.heard("p", &["a"]);
    rig.skip(secs(60));
    rig.resume();
    rig.pass(secs(59));
    assert_eq!(rig.list(), ["l1"], "30 s + 90 s + 60 s");
    rig.pass(secs(1));
    rig.pass(secs(30));
    assert!(rig.list().is_empty());
}

#[test]
fn what_was_promised_while_the_journal_fails_is_what_a_restart_knows() {
    let mut rig = Rig::new();
    let first = granted(rig.claim("a@p", "l1", "res:x"));
    rig.fail();
    rig.heard("p", &["a"]);
    rig.skip(secs(30));
    assert_eq!(granted(rig.claim("a@p", "l1", "res:x")).expires_at, first.expires_at);
}

#[test]
fn after_a_restart_on_the_same_boot_a_lease_ends_when_it_would_have() {
    let mut rig = Rig::new();
    granted(rig.claim("a@p", "l1", "res:x"));
    rig.skip(secs(20));
    rig.restart("boot-1");
    rig.pass(secs(40) - Duration::from_nanos(1));
    assert_eq!(rig.list(), ["l1"]);
    rig.pass(Duration::from_nanos(1));
    assert!(rig.list().is_empty());
}

#[test]
fn after_a_restart_on_another_boot_a_lease_has_its_full_time_again() {
    let mut rig = Rig::new();
    rig.skip(secs(500));
    granted(rig.claim("a@p", "l1", "res:x"));
    // Another machine's clock, as far as it can be told: it starts anew.
    rig.now.mono = Mono::from_nanos(5);
    rig.restart("boot-2");
    rig.pass(secs(60) - Duration::from_nanos(1));
    assert_eq!(rig.list(), ["l1"]);
    rig.restart("boot-2");
    rig.pass(Duration::from_nanos(1));
    assert!(rig.list().is_empty());
}

#[test]
fn after_a_restart_who_was_listed_counts_as_heard_then() {
    let mut rig = Rig::new();
    granted(rig.claim("a@p", "l1", "res:x"));
    rig.heard("p", &["a"]);
    rig.skip(secs(80));
    rig.restart("boot-1");
    rig.pass(HEARD_FOR + secs(59));
    assert_eq!(rig.list(), ["l1"]);
    rig.pass(secs(1));
    assert!(rig.list().is_empty());
}

#[test]
fn queue_places_survive_a_restart() {
    let mut rig = Rig::new();
    granted(rig.claim("a@p", "l1", "res:x"));
    let second = waits(rig.wait("b@p", "l2", "res:x"));
    let third = waits(rig.wait("c@q", "l3", "res:x"));
    rig.restart("boot-1");
    rig.release("a@p", "l1");
    assert!(matches!(rig.poll("c@q", "l3", "res:x", &third), Outcome::Queued { .. }));
    granted(rig.poll("b@p", "l2", "res:x", &second));
}

#[test]
fn what_an_owner_renewed_before_it_only_waits_is_no_part_of_the_state() {
    let mut rig = Rig::new();
    granted(rig.claim("a@p", "l1", "res:x"));
    granted(rig.claim("b@q", "l2", "res:y"));
    let waiter = waits(rig.wait("b@q", "l3", "res:x"));
    rig.heard("q", &["b"]);
    rig.heard("q", &[]);
    rig.release("b@q", "l2");
    let snapshot = (rig.image(), rig.journal.len());
    rig.release("a@p", "l1");
    granted(rig.poll("b@q", "l3", "res:x", &waiter));
    assert_eq!(image(&rig.restored_from(&snapshot, "boot-1")), rig.image());
}

#[test]
fn a_session_that_left_the_heartbeat_while_it_only_waited_is_not_listed_after_a_restart() {
    let mut rig = Rig::new();
    granted(rig.claim("a@p", "l1", "res:x"));
    granted(rig.claim("b@q", "l2", "res:y"));
    let waiter = waits(rig.wait("b@q", "l3", "res:x"));
    rig.heard("q", &["b"]);
    rig.release("b@q", "l2");
    rig.heard("q", &[]);
    rig.release("a@p", "l1");
    granted(rig.poll("b@q", "l3", "res:x", &waiter));
    rig.restart("boot-1");
    rig.pass(secs(60));
    assert!(rig.list().is_empty(), "its time began with its grant");
}

#[test]
fn a_record_that_no_version_wrote_is_refused() {
    for bad in ["", "{}", "[]", r#"{"record":"lease_new"}"#, r#"{"record":"lease_ended","token":1}"#] {
        assert!(Record::read(bad.as_bytes()).is_err(), "{bad}");
    }
    let mut authority = Authority::new(BootId::default());
    let ended = Record::LeaseEnded { token: 7, how: Ended::Expired, request_id: "".into() };
    assert!(authority.restore(Seq::new(1), ended).is_err());
    assert!(authority.restore(Seq::new(1), Record::LeaseUnqueued { place: 7 }).is_err());
    assert!(authority.restore_snapshot(b"no number\n").is_err());
    assert_eq!(BootId::new(&"x".repeat(65)).as_str().to_string().len(), BootId::MAX_BYTES);
}
