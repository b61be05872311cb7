//! Peers that do not read, and a process without descriptors.

use std::fs::File;
use std::process::Command;
use std::thread;
use std::time::Duration;

use relay_core::machine::CloseReason;
use relay_tests::probe::Seen;
use relay_tests::rig::{Over, PATIENCE, Rig, Running};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};

crate::everywhere![
    a_peer_that_does_not_read_costs_only_itself,
    a_client_that_reads_late_gets_every_answer_in_order,
    a_pause_with_nothing_unsent_ends_at_once,
    without_a_descriptor_nobody_is_lost,
];

fn a_peer_that_does_not_read_costs_only_itself(rig: &dyn Rig, over: Over) {
    let running = Running::start(rig, over);
    let (mut deaf, mut other) = (running.client(), running.client());
    deaf.send("limit 65536 16384 262144\n");
    assert_eq!(deaf.ask("echo ready"), "ready");
    assert_eq!(other.ask("echo before"), "before");
    deaf.send("flood 100000\n".repeat(200));
    running.until(|seen| *seen == Seen::Closed(0, CloseReason::Overflow));
    assert_eq!(other.ask("echo after"), "after");
    deaf.until_closed();
    assert_eq!(running.gauge("links"), 1);
}

fn a_client_that_reads_late_gets_every_answer_in_order(rig: &dyn Rig, over: Over) {
    const LINES: usize = 120_000;
    let running = Running::start(rig, over);
    let (mut client, mut other) = (running.client(), running.client());
    let padding = "p".repeat(200);
    let lines: Vec<String> = (0..LINES).map(|number| format!("{number} {padding}")).collect();
    let asked: String = lines.iter().map(|line| format!("echo {line}\n")).collect();
    client.patience(Duration::from_millis(500));
    let sent = client.send_until_full(asked.as_bytes());
    assert!(sent < asked.len(), "the driver takes without an end what is not read");
    // All room is used up, and others do not feel it.
    assert_eq!(other.ask("echo here"), "here");
    client.patience(PATIENCE);
    let mut sender = client.twin();
    thread::scope(|scope| {
        scope.spawn(move || sender.send(&asked.as_bytes()[sent..]));
        for line in &lines {
            assert_eq!(client.line(), *line, "{}", rig.name());
        }
    });
    assert!(running.gauge("drained") > 0);
}

fn a_pause_with_nothing_unsent_ends_at_once(rig: &dyn Rig, over: Over) {
    let running = Running::start(rig, over);
    let mut client = running.client();
    // No room at all, so that each answer pauses the connection.
    client.send("limit 0 0 1000000\n");
    for number in 0..200 {
        let text = number.to_string();
        assert_eq!(client.ask(&format!("echo {text}")), text);
    }
    assert!(running.gauge("drained") >= 200);
}

/// In a process of its own, since the limit is the process's.
fn without_a_descriptor_nobody_is_lost(rig: &dyn Rig, over: Over) {
    const CHILD: &str = "RELAY_TESTS_STARVED";
    if std::env::var_os(CHILD).is_some_and(|name| name == rig.name()) {
        starve(rig, over);
    } else if std::env::var_os(CHILD).is_none() {
        let test = thread::current().name().expect("a test's thread has its name").to_owned();
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture", &test])
            .env(CHILD, rig.name())
            .output()
            .unwrap();
        assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stderr));
    }
}

fn starve(rig: &dyn Rig, over: Over) {
    let running = Running::start(rig, over);
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(128), maximum: limit.maximum }).unwrap();
    let mut here = running.client();
    assert_eq!(here.ask("echo here"), "here");
    let mut fillers: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    assert!(!fillers.is_empty());
    // The one descriptor that becomes free is the caller's own, and there is none to accept it with.
    fillers.pop();
    let mut caller = running.client();
    caller.send("echo at last\n");
    let before = clock_gettime(ClockId::ProcessCPUTime);
    here.send("later 500 waited\n");
    assert_eq!(here.line(), "waited");
    let after = clock_gettime(ClockId::ProcessCPUTime);
    let spent = Duration::try_from(after).unwrap() - Duration::try_from(before).unwrap();
    assert!(spent < Duration::from_millis(200), "half a second without a descriptor took {spent:?}");
    drop(fillers);
    assert_eq!(caller.line(), "at last");
}
