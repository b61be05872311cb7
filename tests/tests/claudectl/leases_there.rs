//! Leases that our node asks claudectl for, and answers that are lost on the way to either.

use std::process::Output;
use std::time::{Duration, Instant};

use relay_tests::peers::{Claudectl, ClaudectlHome, Relay, RelayHome, Runtime, Version, Way};
use serde_json::{Value, json};

use super::Test;
use super::leases::{claim, give_back, listed};
use super::links::{KEY, ours};

pub(super) const TESTS: &[(&str, Test)] = &[
    ("we_are_granted_there_what_is_free_without_a_fencing_token", grant_and_conflict),
    ("three_of_our_machines_wait_there_in_the_order_in_which_they_came", queue),
    ("a_lease_there_lives_for_five_ttls_of_our_session_and_ends_with_it", renewal),
    ("our_killed_machine_loses_its_lease_there", killed),
    ("our_claim_and_release_survive_a_lost_answer_of_ours", lost_among_us),
    ("our_claim_and_release_survive_a_lost_answer_of_its", lost_there),
    ("its_claim_survives_a_lost_answer_of_ours", lost_here),
];

/// The shortest TTL that a renewal is shown with, in seconds.
const TTL: u64 = 2;
/// How long an attempt waits for its answer.
const ATTEMPT: Duration = Duration::from_secs(5);

/// A node of ours that asks claudectl for leases, and what counts its claims there.
struct Asker {
    home: RelayHome,
    relay: Relay,
    way: Way,
}

/// A claudectl that keeps the leases, and nodes of ours that are linked with it.
fn fleet<const N: usize>(runtime: Runtime, names: [&str; N]) -> (ClaudectlHome, Claudectl, [Asker; N]) {
    let theirs = ClaudectlHome::new(Version::Current, "ctl-t", 1).authority("ctl-t");
    names.iter().for_each(|name| theirs.knows(name, KEY, None));
    let mut serve = theirs.start(&["relay", "serve"]);
    serve.says("this machine is the lease authority");
    let askers = names.map(|name| {
        let home = ours(name, runtime);
        let way = Way::to(theirs.address, "lease_claim");
        home.knows("ctl-t", KEY, Some(way.address));
        let mut relay = home.serve();
        relay.event("link_up", |up| up["peer"] == "ctl-t");
        Asker { home, relay, way }
    });
    (theirs, serve, askers)
}

impl Asker {
    fn args<'a>(session: &'a str, id: &'a str, ttl: &'a str) -> [&'a str; 11] {
        ["lease", "claim", "res:demo", "--authority", "ctl-t", "--session", session, "--id", id, "--ttl", ttl]
    }

    fn claim(&self, session: &str, id: &str, ttl: &str) -> Output {
        self.home.run(&[&["--json"], &Self::args(session, id, ttl)[..]].concat())
    }

    /// A claim that waits, and has its place in the queue.
    fn wait(&self, session: &str, id: &str, ttl: &str) -> Relay {
        let before = self.way.carried();
        let args = [&["--json"], &Self::args(session, id, ttl)[..], &["--wait"]].concat();
        let waiting = self.home.start(&args, |_| {});
        // It polls once it was told of its place.
        self.way.until_carried(before + 2);
        waiting
    }

    fn release(&self, session: &str, id: &str) {
        let args = ["lease", "release", id, "--session", session, "--authority", "ctl-t"];
        let released = self.home.ask(&args);
        assert_eq!(released["id"], id, "{released}");
    }
}

/// What a claim that was granted says.
fn granted(output: &Output) -> Value {
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// What a claim that was refused says.
fn refused(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn grant_and_conflict(runtime: Runtime) {
    let (theirs, _serve, [a, b]) = fleet(runtime, ["relay-a", "relay-b"]);
    let claimed = granted(&a.claim("s1", "a-1", "60"));
    assert_eq!(claimed["fencing_token"], Value::Null, "{claimed}");
    assert_eq!(claimed["authority"], "ctl-t", "{claimed}");
    let lease = &claimed["lease"];
    let (id, owner) = (&lease["id"], &lease["owner"]);
    assert_eq!((id, owner, &lease["ttl"]), (&json!("a-1"), &json!("s1@relay-a"), &json!(60)));
    assert!(claimed["certain_for"].as_f64().is_some_and(|left| (40.0..=60.0).contains(&left)), "{claimed}");
    // Said to a person too; a repeat of a claim is granted again.
    let again = a.home.run(&Asker::args("s1", "a-1", "60"));
    let err = String::from_utf8_lossy(&again.stderr);
    assert!(again.status.success() && err.contains("gives no fencing tokens"), "{again:?}");
    let said = refused(&b.claim("s1", "b-1", "60"));
    assert!(said.contains("held by s1@relay-a") && said.contains("a-1"), "{said}");
    let list = b.home.ask(&["lease", "list", "--authority", "ctl-t"]);
    assert_eq!((&list["id"], &list["owner"]), (&json!("a-1"), &json!("s1@relay-a")), "{list}");
    let show = b.home.ask(&["lease", "show", "a-1", "--authority", "ctl-t"]);
    assert_eq!(show["resource"], "res:demo", "{show}");
    // Its own command sees it, and is in its way where it is.
    assert!(listed(&theirs).contains("s1@relay-a"));
    let said = claim(&theirs, "own", 60).expect_err("it is held");
    assert!(said.contains("s1@relay-a holds"), "{said}");
    // Only the holder releases.
    let release = ["lease", "release", "a-1", "--session", "s1", "--authority", "ctl-t"];
    let said = refused(&b.home.run(&release));
    assert!(said.contains("held by s1@relay-a"), "{said}");
    a.release("s1", "a-1");
    let said = refused(&a.home.run(&release));
    assert!(said.contains("had ended before"), "{said}");
    let own = claim(&theirs, "own", 60).expect("it is free again");
    let said = refused(&a.claim("s1", "a-2", "60"));
    assert!(said.contains("res:demo is held by own"), "{said}");
    give_back(&theirs, "own", &own);
}

fn queue(runtime: Runtime) {
    let (_theirs, _serve, [a, b, c]) = fleet(runtime, ["relay-a", "relay-b", "relay-c"]);
    granted(&a.claim("s1", "a-1", "60"));
    let mut second = b.wait("s1", "b-1", "60");
    let mut third = c.wait("s1", "c-1", "60");
    let mut fourth = a.wait("s2", "a-2", "60");
    a.release("s1", "a-1");
    for (asker, session, id, waiting) in
        [(&b, "s1", "b-1", &mut second), (&c, "s1", "c-1", &mut third), (&a, "s2", "a-2", &mut fourth)]
    {
        // Nobody gets past those who wait.
        let late = refused(&b.claim("late", "late", "60"));
        assert!(late.contains("res:demo is "), "{late}");
        waiting.says("\"fencing_token\":null");
        let list = asker.home.ask(&["lease", "list", "--authority", "ctl-t"]);
        assert_eq!(list["id"], id, "{list}");
        asker.release(session, id);
    }
    granted(&b.claim("late", "late", "60"));
}

fn renewal(runtime: Runtime) {
    let (theirs, _serve, [a, b]) = fleet(runtime, ["relay-a", "relay-b"]);
    let session = a.home.session("s1");
    // Its list tells the end of a lease as it was put off last.
    let probe = [&["--json"], &Asker::args("s1", "probe", "600")[..]].concat();
    let probe: Vec<_> =
        probe.into_iter().map(|arg| if arg == "res:demo" { "res:probe" } else { arg }).collect();
    let first = granted(&a.home.run(&probe))["lease"]["expires_at"].clone();
    let renewed = |_: &ClaudectlHome| {
        let shown = a.home.ask(&["lease", "show", "probe", "--authority", "ctl-t"]);
        (shown["expires_at"] != first).then_some(())
    };
    theirs.until("that it renews what our session holds", renewed);
    granted(&a.claim("s1", "a-1", &TTL.to_string()));
    let granted_at = Instant::now();
    while granted_at.elapsed() < Duration::from_secs(5 * TTL) {
        let said = refused(&b.claim("s1", "b-1", "60"));
        assert!(said.contains("held by s1@relay-a"), "{said}");
    }
    session.kill();
    let mut next = b.wait("s1", "b-1", "60");
    next.says("\"id\":\"b-1\"");
}

fn killed(runtime: Runtime) {
    let (theirs, _serve, [a, b]) = fleet(runtime, ["relay-a", "relay-b"]);
    let session = a.home.session("s1");
    granted(&a.claim("s1", "a-1", "5"));
    theirs
        .until("the lease to its own command", |theirs| listed(theirs).contains("s1@relay-a").then_some(()));
    a.relay.kill();
    session.kill();
    let mut next = b.wait("s1", "b-1", "60");
    next.says("\"id\":\"b-1\"");
    assert!(!listed(&theirs).contains("s1@relay-a"));
}

/// Claims and releases through the ways, the first of each unanswered.
fn through(home: &RelayHome, authority: &str, claims: &Way, releases: &Way) {
    let begun = Instant::now();
    let at = ["--session", "s1", "--authority", authority];
    let claimed =
        home.ask(&[&["lease", "claim", "res:demo", "--id", "a-1", "--ttl", "60"], &at[..]].concat());
    assert_eq!(claimed["lease"]["id"], "a-1", "{claimed}");
    assert_eq!(claims.carried(), 2);
    assert!(begun.elapsed() >= ATTEMPT, "the first attempt was given its time");
    let released = home.ask(&[&["lease", "release", "a-1"], &at[..]].concat());
    assert_eq!(released["id"], "a-1", "{released}");
    assert_eq!(releases.carried(), 2);
}

fn lost_among_us(runtime: Runtime) {
    let theirs = ours("relay-t", runtime);
    let home = ours("relay-a", runtime);
    theirs.knows("relay-a", KEY, None);
    let mut authority = theirs.serve();
    let claims = Way::losing_the_first_answer(authority.address, "lease_claim");
    let releases = Way::losing_the_first_answer(claims.address, "lease_release");
    home.knows("relay-t", KEY, Some(releases.address));
    let mut relay = home.serve();
    relay.event("link_up", |_| true);
    through(&home, "relay-t", &claims, &releases);
    // Each was carried out once.
    for change in ["granted", "released"] {
        assert_eq!(authority.event("lease", |_| true)["change"], change);
    }
    let list = theirs.run(&["--json", "lease", "list"]);
    assert!(list.status.success() && list.stdout.is_empty(), "{list:?}");
    assert_eq!(authority.seen().matches("\"lease\"").count(), 2, "{}", authority.seen());
}

fn lost_there(runtime: Runtime) {
    let theirs = ClaudectlHome::new(Version::Current, "ctl-t", 1).authority("ctl-t");
    theirs.knows("relay-a", KEY, None);
    let _serve = theirs.serve();
    let home = ours("relay-a", runtime);
    let claims = Way::losing_the_first_answer(theirs.address, "lease_claim");
    let releases = Way::losing_the_first_answer(claims.address, "lease_release");
    home.knows("ctl-t", KEY, Some(releases.address));
    let mut relay = home.serve();
    relay.event("link_up", |_| true);
    through(&home, "ctl-t", &claims, &releases);
    assert!(!listed(&theirs).contains("s1@relay-a"));
}

fn lost_here(runtime: Runtime) {
    let home = ours("relay-a", runtime);
    home.knows("ctl-b", KEY, None);
    let mut relay = home.serve();
    let theirs = ClaudectlHome::new(Version::Current, "ctl-b", 1).authority("relay-a");
    let claims = Way::losing_the_first_answer(relay.address, "lease_claim");
    theirs.knows("relay-a", KEY, Some(claims.address));
    let lease = claim(&theirs, "s1", 60).expect("its second attempt is answered");
    assert_eq!(claims.carried(), 2);
    assert_eq!(relay.event("lease", |_| true)["id"], lease.as_str());
    assert!(listed(&theirs).contains(&lease));
    assert_eq!(relay.seen().matches("\"lease\"").count(), 1, "{}", relay.seen());
}
