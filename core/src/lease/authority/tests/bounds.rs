//! What is counted and cut off.

use super::*;
use crate::lease::resources::{MAX_WAITERS_PER_OWNER, MAX_WIDE};
use crate::lease::table::MAX_LEASES_PER_PEER;
use crate::lease::{MAX_SESSIONS, MAX_SETTLED};

#[test]
fn waiters_and_leases_past_their_bounds_are_errors_that_name_the_field() {
    let mut rig = Rig::new();
    granted(rig.claim("a@p", "l", "res:x"));
    for n in 0..MAX_WAITERS_PER_OWNER {
        waits(rig.wait("b@q", &format!("w{n}"), "res:x"));
    }
    let Outcome::Error(why) = rig.wait("b@q", "past", "res:x") else { panic!("the queue has no bound") };
    assert!(why.starts_with("wait: "), "{why}");
    for n in 1..MAX_LEASES_PER_PEER {
        granted(rig.claim("a@p", &format!("n{n}"), &format!("res:{n}")));
    }
    let Outcome::Error(why) = rig.claim("a@p", "past", "res:past") else { panic!("leases have no bound") };
    assert!(why.starts_with("lease_id: "), "{why}");
}

#[test]
fn paths_that_begin_with_a_wildcard_are_capped() {
    let mut rig = Rig::new();
    for n in 0..MAX_WIDE {
        granted(rig.claim("a@p", &format!("l{n}"), &format!("path_glob:*.{n}")));
    }
    let Outcome::Error(why) = rig.claim("a@p", "past", "path_glob:*.past") else { panic!("no cap") };
    assert!(why.starts_with("value: "), "{why}");
    granted(rig.claim("a@p", "again", "path_glob:*.0"));
    granted(rig.claim("a@p", "narrow", "path_glob:src/x"));
}

#[test]
fn the_oldest_ended_ids_are_forgotten_past_the_bound() {
    let mut rig = Rig::new();
    for n in 0..=MAX_SETTLED {
        let id = format!("l{n}");
        granted(rig.claim("a@p", &id, "res:x"));
        rig.release("a@p", &id);
        rig.journal.truncate(4);
    }
    assert_eq!(rig.release("a@p", "l0"), Outcome::NotFound);
    assert_eq!(rig.release("a@p", "l1"), Outcome::NotActive { status: Some("released".into()) });
}

#[test]
fn a_list_longer_than_a_frame_is_cut_behind_the_newest_and_says_so() {
    let mut rig = Rig::new();
    let reason = "\"".repeat(256);
    for n in 0..1200 {
        let claim =
            LeaseClaim { reason: reason.clone(), ..claim("a@p", &format!("l{n}"), &format!("res:{n}")) };
        granted(rig.ask("a@p", claim));
    }
    let answer = rig.run(|authority, now, _| authority.list(now));
    let bytes = serde_json::to_string(&crate::message::lease::LeaseResult {
        request_id: "r".into(),
        outcome: answer.clone(),
    })
    .expect("an answer is JSON")
    .len();
    let Outcome::List { leases, truncated } = answer else { panic!("a list is answered with a list") };
    assert!(truncated && leases[0].id == "l1199" && bytes < Authority::LIST_BYTES, "{bytes}");
}

#[test]
fn one_session_past_the_bound_of_strangers_is_not_remembered_and_owners_always_are() {
    let mut rig = Rig::new();
    granted(rig.claim("owner@p", "l1", "res:x"));
    let others: Vec<_> = (0..=MAX_SESSIONS).map(|n| format!("s{n}")).collect();
    let named: Vec<_> = others.iter().map(String::as_str).chain(["owner"]).collect();
    rig.heard("p", &named);
    granted(rig.claim(&format!("s{}@p", MAX_SESSIONS - 1), "l2", "res:y"));
    granted(rig.claim(&format!("s{MAX_SESSIONS}@p"), "l3", "res:z"));
    rig.pass(secs(61));
    assert_eq!(rig.list(), ["l2", "l1"]);
}
