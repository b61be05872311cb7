//! Leases that claudectl asks our node for: it is the fleet's authority.

use std::time::{Duration, Instant};

use relay_tests::peers::{Claudectl, ClaudectlHome, Relay, RelayHome, Runtime, Version};
use serde_json::Value;

use super::Test;
use super::links::{KEY, ours};

pub(super) const TESTS: &[(&str, Test)] = &[
    ("it_is_granted_what_is_free_and_told_who_holds_what_is_not", grant_and_conflict),
    ("only_the_holder_there_releases", release),
    ("three_of_its_machines_wait_in_the_order_in_which_they_came", queue),
    ("what_it_waited_for_in_vain_goes_to_the_next", wait_in_vain),
    ("a_lease_of_its_session_lives_for_five_ttls_and_ends_with_the_session", renewal),
    ("a_killed_machine_that_is_back_without_the_session_loses_its_lease", killed_and_back),
];

/// Those that take minutes.
pub(super) const LONG_TESTS: &[(&str, Test)] =
    &[("a_killed_machine_loses_its_lease_a_ttl_after_its_last_heartbeat_has_run_out", killed)];

/// The shortest TTL that a renewal is shown with, in seconds.
const TTL: u64 = 2;
/// How long a heartbeat renews what its sessions hold.
const HEARD_FOR: Duration = Duration::from_secs(90);

/// A node of ours that keeps the leases; its home goes when it does.
struct Authority {
    relay: Relay,
    _home: RelayHome,
}

/// A node of ours, and machines of claudectl that ask it.
fn fleet<const N: usize>(runtime: Runtime, names: [&str; N]) -> (Authority, [ClaudectlHome; N]) {
    let home = ours("relay-a", runtime);
    names.iter().for_each(|name| home.knows(name, KEY, None));
    let relay = home.serve();
    let machines = names.map(|name| {
        let machine = ClaudectlHome::new(Version::Current, name, 1).authority("relay-a");
        machine.knows("relay-a", KEY, Some(relay.address));
        machine
    });
    (Authority { relay, _home: home }, machines)
}

/// What a claim of `session` for `res:demo` says, and whether it is granted.
pub(super) fn claim(machine: &ClaudectlHome, session: &str, ttl: u64) -> Result<String, String> {
    claim_of(machine, session, "res:demo", ttl)
}

fn claim_of(machine: &ClaudectlHome, session: &str, resource: &str, ttl: u64) -> Result<String, String> {
    let ttl = ttl.to_string();
    let args = ["coord", "claim", "--fleet", "--session", session, "--resource", resource, "--ttl", &ttl];
    let output = machine.run(&args);
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if output.status.success() { Ok(lease_id(&out)) } else { Err(format!("{out}{err}")) }
}

/// The lease that it says that it has.
fn lease_id(said: &str) -> String {
    let id = said.lines().find_map(|line| line.strip_prefix("Fleet lease acquired: "));
    id.unwrap_or_else(|| panic!("a lease in {said:?}")).trim().to_owned()
}

/// A claim that waits, and has its place in the queue.
pub(super) fn wait(machine: &ClaudectlHome, session: &str) -> Claudectl {
    let args = ["coord", "claim", "--fleet", "--session", session, "--resource", "res:demo", "--wait"];
    let mut waiting = machine.start(&args);
    waiting.says("Waiting: ");
    waiting
}

fn granted(waiting: &mut Claudectl) -> String {
    lease_id(&waiting.says("Fleet lease acquired: "))
}

pub(super) fn give_back(machine: &ClaudectlHome, session: &str, lease: &str) {
    let output = machine.run(&["coord", "release", "--fleet", "--session", session, lease]);
    assert!(output.status.success(), "{output:?}");
}

pub(super) fn listed(machine: &ClaudectlHome) -> String {
    let output = machine.run(&["coord", "leases", "--fleet"]);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// What our node says happens to a lease of this owner.
fn change(relay: &mut Relay, change: &str, owner: &str) -> Value {
    relay.event("lease", |lease| lease["change"] == change && lease["owner"] == owner)
}

fn grant_and_conflict(runtime: Runtime) {
    let (Authority { mut relay, _home }, [b, c]) = fleet(runtime, ["ctl-b", "ctl-c"]);
    let lease = claim(&b, "s1", 60).expect("the resource is free");
    let event = change(&mut relay, "granted", "s1@ctl-b");
    assert_eq!((&event["id"], &event["resource"]), (&lease.as_str().into(), &"res:demo".into()));
    assert!(event["fencing_token"].is_u64(), "{event}");
    // For another machine, and for another session of the same one.
    for (machine, session) in [(&c, "s1"), (&b, "s2")] {
        let refused = claim(machine, session, 60).expect_err("it is held");
        assert!(refused.contains("Conflict: s1@ctl-b holds res:demo"), "{refused}");
    }
    claim_of(&c, "s1", "res:other", 60).expect("nothing overlaps it");
    let list = listed(&c);
    let row = list.lines().find(|row| row.starts_with(&lease)).expect("the lease is listed");
    assert!(row.contains("s1@ctl-b") && row.contains("res:demo"), "{list}");
    assert!(list.contains("s1@ctl-c") && list.contains("2 active"), "{list}");
    // Paths overlap as they do with an authority of its own.
    claim_of(&b, "s1", "path_glob:src/a/**", 60).expect("the path is free");
    let refused = claim_of(&c, "s1", "path_glob:src/a/b.rs", 60).expect_err("it is within");
    assert!(refused.contains("s1@ctl-b holds"), "{refused}");
    claim_of(&c, "s1", "path_glob:src/b/**", 60).expect("the path is beside it");
}

fn release(runtime: Runtime) {
    let (Authority { mut relay, _home }, [b, c]) = fleet(runtime, ["ctl-b", "ctl-c"]);
    let lease = claim(&b, "s1", 60).expect("the resource is free");
    for (machine, session, told) in [(&c, "s1", "is held by s1@ctl-b"), (&b, "s2", "is held by s1@ctl-b")] {
        let output = machine.run(&["coord", "release", "--fleet", "--session", session, &lease]);
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && err.contains(told), "{output:?}");
    }
    let output = b.run(&["coord", "release", "--fleet", "--session", "s1", "another"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("No fleet lease another"), "{output:?}");
    give_back(&b, "s1", &lease);
    change(&mut relay, "released", "s1@ctl-b");
    assert!(!listed(&c).contains(&lease));
    let output = b.run(&["coord", "release", "--fleet", "--session", "s1", &lease]);
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && err.contains("not_active"), "{output:?}");
    claim(&c, "s1", 60).expect("it is free again");
}

fn queue(runtime: Runtime) {
    let (Authority { mut relay, _home }, [b, c, d]) = fleet(runtime, ["ctl-b", "ctl-c", "ctl-d"]);
    let mut lease = claim(&b, "s1", 60).expect("the resource is free");
    let (mut second, mut third, mut fourth) = (wait(&c, "s1"), wait(&d, "s1"), wait(&b, "s2"));
    // Nobody gets past them, whether it waits or not.
    give_back(&b, "s1", &lease);
    for (machine, session, waiting) in
        [(&c, "s1", &mut second), (&d, "s1", &mut third), (&b, "s2", &mut fourth)]
    {
        let late = claim(&b, "late", 60).expect_err("others came before");
        assert!(late.contains("Conflict"), "{late}");
        lease = granted(waiting);
        give_back(machine, session, &lease);
    }
    for owner in ["s1@ctl-b", "s1@ctl-c", "s1@ctl-d", "s2@ctl-b"] {
        assert_eq!(relay.event("lease", |_| true)["owner"], owner, "granted:\n{}", relay.seen());
        let released = relay.event("lease", |_| true);
        assert_eq!((&released["owner"], &released["change"]), (&owner.into(), &"released".into()));
    }
    claim(&b, "late", 60).expect("nobody waits any more");
}

fn wait_in_vain(runtime: Runtime) {
    let (_authority, [b, c, d]) = fleet(runtime, ["ctl-b", "ctl-c", "ctl-d"]);
    let lease = claim(&b, "s1", 60).expect("the resource is free");
    let args = ["coord", "claim", "--fleet", "--session", "s1", "--resource", "res:demo", "--wait"];
    let output = c.run(&[&args[..], &["--timeout", "1"]].concat());
    assert!(String::from_utf8_lossy(&output.stderr).contains("timed out"), "{output:?}");
    // Its place goes stale 10 s after its last poll; one who is killed leaves as it does.
    wait(&c, "s2").kill();
    let mut next = wait(&d, "s1");
    give_back(&b, "s1", &lease);
    granted(&mut next);
}

/// A machine whose session holds `res:demo` for a TTL that is over before the next collection, were it not renewed.
fn renewed(machine: &ClaudectlHome, relay: &mut Relay) {
    // Whether our node has heard of the session shows in what it renews for it.
    let probe = claim_of(machine, "s1", "res:probe", 600).expect("the probe is free");
    let ends = |machine: &ClaudectlHome| {
        let list = listed(machine);
        let row = list.lines().find(|row| row.starts_with(&probe)).map(ToOwned::to_owned);
        row.and_then(|row| row.split_whitespace().last().map(ToOwned::to_owned))
    };
    let first = ends(machine);
    machine.until("its session to our node", |machine| (ends(machine) != first).then_some(()));
    claim(machine, "s1", TTL).expect("the resource is free");
    change(relay, "granted", "s1@ctl-b");
    change(relay, "granted", "s1@ctl-b");
}

fn renewal(runtime: Runtime) {
    let (Authority { mut relay, _home }, [b, c]) = fleet(runtime, ["ctl-b", "ctl-c"]);
    let session = b.session("s1");
    let _serve = b.serve();
    renewed(&b, &mut relay);
    let granted_at = Instant::now();
    c.until("that five TTLs are over", |c| {
        let refused = claim(c, "s1", TTL).expect_err("it is renewed");
        assert!(refused.contains("s1@ctl-b holds"), "{refused}");
        (granted_at.elapsed() > Duration::from_secs(5 * TTL)).then_some(())
    });
    let mut next = wait(&c, "s1");
    session.kill();
    granted(&mut next);
    // All that comes of the lease in between is its end.
    let ended = relay.event("lease", |lease| lease["resource"] == "res:demo");
    assert_eq!((&ended["owner"], &ended["change"]), (&"s1@ctl-b".into(), &"expired".into()));
}

fn killed_and_back(runtime: Runtime) {
    let (Authority { mut relay, _home }, [b, c]) = fleet(runtime, ["ctl-b", "ctl-c"]);
    let session = b.session("s1");
    let serve = b.serve();
    renewed(&b, &mut relay);
    let mut next = wait(&c, "s1");
    serve.kill();
    session.kill();
    let _serve = b.serve();
    granted(&mut next);
    let ended = relay.event("lease", |lease| lease["resource"] == "res:demo");
    assert_eq!((&ended["owner"], &ended["change"]), (&"s1@ctl-b".into(), &"expired".into()));
}

fn killed(runtime: Runtime) {
    let (Authority { mut relay, _home }, [b, c]) = fleet(runtime, ["ctl-b", "ctl-c"]);
    let session = b.session("s1");
    let serve = b.serve();
    renewed(&b, &mut relay);
    let mut next = wait(&c, "s1");
    serve.kill();
    session.kill();
    let killed_at = Instant::now();
    // Its last heartbeat came at most an interval before, and a poll follows within a second and its dial.
    let (least, ttl) = (HEARD_FOR.saturating_sub(Duration::from_secs(1)), Duration::from_secs(TTL));
    next.says_within(HEARD_FOR + ttl + Duration::from_secs(20), "Fleet lease acquired: ");
    let took = killed_at.elapsed();
    assert!(took >= least + ttl - Duration::from_secs(1), "it ended after {took:?}");
    let ended = relay.event("lease", |lease| lease["resource"] == "res:demo");
    assert_eq!((&ended["owner"], &ended["change"]), (&"s1@ctl-b".into(), &"expired".into()));
}
