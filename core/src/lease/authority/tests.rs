//! The authority alone: a scenario builder, the rules one by one, and laws over random runs.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use quickcheck::{Arbitrary, Gen, quickcheck};

use super::super::resources::{MAX_WAITERS_PER_OWNER, MAX_WIDE, POLL_WITHIN};
use super::super::table::MAX_LEASES_PER_PEER;
use super::super::{HEARD_FOR, MAX_SESSIONS, MAX_SETTLED};
use super::*;
use crate::message::lease::{Blocker, LeaseClaim, Mode};
use crate::time::Wall;

/// An authority, its clock and its journal.
struct Rig {
    authority: Authority,
    now: Now,
    journal: Vec<Box<[u8]>>,
    changes: Vec<Change>,
    requests: u64,
}

struct Desk<'a> {
    journal: &'a mut Vec<Box<[u8]>>,
    changes: &'a mut Vec<Change>,
}

impl Effects for Desk<'_> {
    fn record(&mut self, record: &Record<'_>) -> Seq {
        let mut bytes = Vec::new();
        record.write(&mut bytes);
        self.journal.push(bytes.into());
        Seq::new(self.journal.len() as u64)
    }

    fn changed(&mut self, change: Change) {
        self.changes.push(change);
    }
}

fn peer(id: &str) -> PeerId {
    PeerId::parse(id).expect("a peer id")
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// `session@peer`, apart.
fn owner(name: &str) -> (&str, PeerId) {
    let (session, of) = name.split_once('@').expect("an owner is session@peer");
    (session, peer(of))
}

fn claim(name: &str, id: &str, resource: &str) -> LeaseClaim {
    let (kind, value) = resource.split_once(':').expect("a resource is kind:value");
    LeaseClaim {
        request_id: String::new(),
        lease_id: id.into(),
        session: owner(name).0.into(),
        kind: kind.into(),
        value: value.into(),
        mode: Mode::Exclusive,
        ttl_secs: 60,
        reason: String::new(),
        wait: false,
        waiter_id: None,
    }
}

impl Rig {
    fn new() -> Self {
        let now = Now { mono: Mono::from_nanos(1_000_000_000), wall: Wall::from_millis(1_700_000_000_000) };
        let mut rig = Self {
            authority: Authority::new(BootId::new("boot-1")),
            now,
            journal: Vec::new(),
            changes: Vec::new(),
            requests: 0,
        };
        rig.run(|authority, now, desk| authority.start(now, desk));
        rig
    }

    fn run<T>(&mut self, act: impl FnOnce(&mut Authority, Now, &mut Desk<'_>) -> T) -> T {
        let mut desk = Desk { journal: &mut self.journal, changes: &mut self.changes };
        let result = act(&mut self.authority, self.now, &mut desk);
        if !self.authority.is_failing() {
            self.authority.persisted(Seq::new(self.journal.len() as u64));
        }
        result
    }

    fn ask(&mut self, name: &str, mut claim: LeaseClaim) -> Outcome {
        if claim.request_id.is_empty() {
            self.requests += 1;
            claim.request_id = format!("r{}", self.requests);
        }
        let (_, peer) = owner(name);
        self.run(|authority, now, desk| authority.claim(now, &peer, &claim, desk))
    }

    fn claim(&mut self, name: &str, id: &str, resource: &str) -> Outcome {
        self.ask(name, claim(name, id, resource))
    }

    fn wait(&mut self, name: &str, id: &str, resource: &str) -> Outcome {
        self.ask(name, LeaseClaim { wait: true, ..claim(name, id, resource) })
    }

    fn poll(&mut self, name: &str, id: &str, resource: &str, waiter_id: &str) -> Outcome {
        let waiter_id = Some(waiter_id.into());
        self.ask(name, LeaseClaim { wait: true, waiter_id, ..claim(name, id, resource) })
    }

    fn release(&mut self, name: &str, id: &str) -> Outcome {
        self.requests += 1;
        let request_id = format!("r{}", self.requests);
        self.release_as(name, id, &request_id)
    }

    fn release_as(&mut self, name: &str, id: &str, request_id: &str) -> Outcome {
        let (session, peer) = owner(name);
        let release =
            LeaseRelease { request_id: request_id.into(), lease_id: id.into(), session: session.into() };
        self.run(|authority, now, desk| authority.release(now, &peer, &release, desk))
    }

    fn heard(&mut self, from: &str, sessions: &[&str]) {
        let peer = peer(from);
        self.run(|authority, now, desk| {
            authority.heard(now, &peer, |visit| sessions.iter().for_each(|session| visit(session)), desk);
        });
    }

    /// Time runs on, and whatever is due on the way happens at its instant.
    fn pass(&mut self, span: Duration) {
        let end = self.now.mono.after(span);
        while let Some(due) = self.authority.deadline().filter(|due| *due <= end) {
            self.step_to(due.max(self.now.mono));
            self.run(|authority, now, desk| authority.fire(now, desk));
        }
        self.step_to(end);
    }

    /// Time runs on without a timer.
    fn skip(&mut self, span: Duration) {
        self.step_to(self.now.mono.after(span));
    }

    fn step_to(&mut self, mono: Mono) {
        let by = mono.since(self.now.mono).as_millis() as u64;
        self.now = Now { mono, wall: Wall::from_millis(self.now.wall.as_millis() + by) };
    }

    fn list(&mut self) -> Vec<String> {
        let list = LeaseList { request_id: "r".into() };
        let Outcome::List { leases, .. } = self.run(|authority, now, _| authority.list(now, &list)) else {
            panic!("a list is answered with a list")
        };
        leases.into_iter().map(|lease| lease.id).collect()
    }

    fn fail(&mut self) {
        self.authority.persist_failed();
    }

    fn resume(&mut self) {
        self.run(|authority, now, desk| {
            let upto = Seq::new(desk.journal.len() as u64);
            authority.resumed(now, upto, desk);
        });
    }

    /// kill -9, and a start with what the journal has, on this or another start of the machine.
    fn restart(&mut self, boot: &str) {
        self.authority = self.restored(boot);
        self.run(|authority, now, desk| authority.start(now, desk));
    }

    fn restored(&self, boot: &str) -> Authority {
        let mut authority = Authority::new(BootId::new(boot));
        for (record, seq) in self.journal.iter().zip(1..) {
            let record = Record::read(record).expect("a record that was written");
            authority.restore(Seq::new(seq), record).expect("a journal that was written");
        }
        authority
    }

    fn image(&self) -> String {
        image(&self.authority)
    }
}

/// All that an authority holds that must outlive it.
fn image(authority: &Authority) -> String {
    let mut snapshot = Vec::new();
    authority.snapshot(&mut snapshot);
    String::from_utf8(snapshot).expect("a snapshot is text")
}

fn granted(outcome: Outcome) -> Lease {
    match outcome {
        Outcome::Granted(lease) => lease,
        other => panic!("not granted: {other:?}"),
    }
}

fn waits(outcome: Outcome) -> String {
    match outcome {
        Outcome::Queued { waiter_id, .. } => waiter_id,
        other => panic!("not queued: {other:?}"),
    }
}

fn is_error(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Error(_))
}

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
    let list = LeaseList { request_id: "r".into() };
    let answer = rig.run(|authority, now, _| authority.list(now, &list));
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

/// What a random run does.
#[derive(Clone, Debug)]
enum Act {
    Claim { who: u8, id: u8, what: u8, wait: bool },
    Release { who: u8, id: u8 },
    Heard { from: u8, sessions: u8 },
    Pass(u8),
    Skip(u8),
    Restart { reboot: bool },
    Fail,
    Resume,
}

impl Arbitrary for Act {
    fn arbitrary(g: &mut Gen) -> Self {
        let byte = u8::arbitrary;
        match byte(g) % 16 {
            0..=5 => Self::Claim { who: byte(g), id: byte(g), what: byte(g), wait: bool::arbitrary(g) },
            6 | 7 => Self::Release { who: byte(g), id: byte(g) },
            8 | 9 => Self::Heard { from: byte(g), sessions: byte(g) },
            10 | 11 => Self::Pass(byte(g)),
            12 => Self::Skip(byte(g)),
            13 => Self::Restart { reboot: bool::arbitrary(g) },
            14 => Self::Fail,
            _ => Self::Resume,
        }
    }
}

const WHO: [&str; 4] = ["a@p", "b@p", "a@q", "c@r"];
const WHAT: [&str; 5] = ["res:x", "path_glob:src/**", "path_glob:src/a", "path_glob:*.rs", "path_glob:a.rs"];

impl Rig {
    fn act(&mut self, act: &Act, places: &mut BTreeMap<String, String>, boots: &mut u32) {
        match act {
            Act::Claim { who, id, what, wait } => {
                let (who, what) = (WHO[usize::from(who % 4)], WHAT[usize::from(what % 5)]);
                let id = format!("l{}", id % 24);
                let key = format!("{who} {id}");
                let waiter_id = places.get(&key).cloned();
                let asked = LeaseClaim { wait: *wait, waiter_id, ttl_secs: 30, ..claim(who, &id, what) };
                match self.ask(who, asked) {
                    Outcome::Queued { waiter_id, .. } => {
                        places.insert(key, waiter_id);
                    }
                    Outcome::Granted(_) | Outcome::WaiterGone => {
                        places.remove(&key);
                    }
                    _ => {}
                }
            }
            Act::Release { who, id } => {
                let id = format!("l{}", id % 24);
                self.release(WHO[usize::from(who % 4)], &id);
            }
            Act::Heard { from, sessions } => {
                let named: Vec<_> =
                    ["a", "b", "c"].into_iter().enumerate().filter(|(n, _)| sessions >> n & 1 == 1).collect();
                let named: Vec<_> = named.into_iter().map(|(_, session)| session).collect();
                self.heard(["p", "q", "r"][usize::from(from % 3)], &named);
            }
            Act::Pass(by) => self.pass(secs((by % 64).into())),
            Act::Skip(by) => self.skip(secs((by % 64).into())),
            Act::Restart { reboot } => {
                *boots += u32::from(*reboot);
                self.restart(&format!("boot-{boots}"));
            }
            Act::Fail => self.fail(),
            Act::Resume => self.resume(),
        }
    }

    /// Leases that the journal says are held at the end of it: token, owner, resource.
    fn held_by_journal(&self) -> Vec<(u64, String, String)> {
        let mut held: Vec<(u64, String, String)> = Vec::new();
        for (bytes, seq) in self.journal.iter().zip(1_u64..) {
            match Record::read(bytes).expect("a record") {
                Record::LeaseGranted { session, peer, kind, value, mode: Mode::Exclusive, .. } => {
                    let new = (seq, format!("{session}@{peer}"), format!("{kind}:{value}"));
                    for (_, owner, resource) in &held {
                        assert!(
                            *owner == new.1 || !overlap(resource, &new.2),
                            "{owner} holds {resource}: {new:?}"
                        );
                    }
                    held.push(new);
                }
                Record::LeaseEnded { token, .. } => held.retain(|(other, ..)| *other != token),
                _ => {}
            }
        }
        held
    }
}

fn overlap(one: &str, other: &str) -> bool {
    let ((one_kind, one), (other_kind, other)) =
        (one.split_once(':').expect("a name"), other.split_once(':').expect("a name"));
    one_kind == other_kind
        && if one_kind == super::super::PATH_GLOB {
            super::super::paths_overlap(one, other)
        } else {
            one == other
        }
}

quickcheck! {
    /// S1: of what overlaps one owner holds at a time, as the journal tells it; and the state is what the journal says.
    fn one_owner_holds_what_overlaps_and_the_state_is_what_the_journal_says(acts: Vec<Act>) -> bool {
        let (mut rig, mut places, mut boots) = (Rig::new(), BTreeMap::new(), 1);
        for act in &acts {
            rig.act(act, &mut places, &mut boots);
            let again = rig.restored(&format!("boot-{boots}"));
            assert_eq!(image(&again), rig.image(), "after {act:?}");
            let mut from_snapshot = Authority::new(BootId::new(&format!("boot-{boots}")));
            from_snapshot.restore_snapshot(rig.image().as_bytes()).expect("a snapshot that was written");
            assert_eq!(image(&from_snapshot), rig.image(), "a snapshot after {act:?}");
        }
        rig.held_by_journal().len() <= rig.authority.table.len()
    }

    /// S2: of two leases on one resource the later has the higher fencing token, across restarts too.
    fn fencing_tokens_never_fall(acts: Vec<Act>) -> bool {
        let (mut rig, mut places, mut boots, mut last) = (Rig::new(), BTreeMap::new(), 1, 0);
        for act in &acts {
            let seen = rig.changes.len();
            rig.act(act, &mut places, &mut boots);
            for change in rig.changes[seen..].iter().filter(|change| change.lapse == Lapse::Granted) {
                assert!(change.fencing_token > last, "{change:?} after {last}");
                last = change.fencing_token;
            }
        }
        true
    }

    /// S4, as a metamorphic law: steps of the wall clock change no grant and no end.
    fn wall_clock_steps_change_nothing(acts: Vec<Act>, steps: Vec<i32>) -> bool {
        let run = |steps: &[i32]| {
            let (mut rig, mut places, mut boots) = (Rig::new(), BTreeMap::new(), 1);
            for (n, act) in acts.iter().enumerate() {
                let step = steps.get(n % steps.len().max(1)).copied().unwrap_or(0);
                let wall = rig.now.wall.as_millis().saturating_add_signed(i64::from(step) * 1000);
                rig.now.wall = Wall::from_millis(wall);
                rig.act(act, &mut places, &mut boots);
            }
            rig.changes.iter().map(|change| (change.id.clone(), change.lapse)).collect::<Vec<_>>()
        };
        run(&steps) == run(&[])
    }
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
