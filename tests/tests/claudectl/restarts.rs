//! Restarts and crashes of either end.

use relay_tests::peers::{ClaudectlHome, Runtime, Version};

use super::Test;
use super::links::{KEY, ours};

pub(super) const TESTS: &[(&str, Test)] = &[
    ("it_restarts_and_we_are_back", it_restarts),
    ("we_restart_and_it_is_back_within_its_backoff", we_restart),
    ("we_survive_its_kill", we_survive_its_kill),
    ("it_survives_our_kill", it_survives_our_kill),
];

fn it_restarts(runtime: Runtime) {
    let home = ours("relay-a", runtime);
    let theirs = ClaudectlHome::new(Version::Current, "ctl-b", 1);
    theirs.knows("relay-a", KEY, None);
    home.knows("ctl-b", KEY, Some(theirs.address));
    let peer = theirs.serve();
    let mut relay = home.serve();
    relay.event("link_up", |_| true);
    drop(peer);
    relay.event("link_down", |_| true);
    let _peer = theirs.serve();
    // It has learnt where we are, so either end may be first to dial.
    relay.event("link_up", |up| up["peer"] == "ctl-b");
}

fn we_restart(runtime: Runtime) {
    let listen = relay_tests::peers::free_address();
    let home = ours("relay-a", runtime).listen(listen);
    let theirs = ClaudectlHome::new(Version::Current, "ctl-b", 1);
    home.knows("ctl-b", KEY, None);
    let mut relay = home.serve();
    theirs.knows("relay-a", KEY, Some(listen));
    let _peer = theirs.serve();
    relay.event("link_up", |_| true);
    relay.terminate();
    let mut relay = home.serve();
    // Its heartbeats have told us where it is, so either end may be first to dial.
    relay.event("link_up", |up| up["peer"] == "ctl-b");
}

fn we_survive_its_kill(runtime: Runtime) {
    let home = ours("relay-a", runtime);
    let theirs = ClaudectlHome::new(Version::Current, "ctl-b", 1);
    home.knows("ctl-b", KEY, None);
    let mut relay = home.serve();
    theirs.knows("relay-a", KEY, Some(relay.address));
    for _ in 0..2 {
        let peer = theirs.serve();
        relay.event("link_up", |_| true);
        peer.kill();
        relay.event("link_down", |_| true);
    }
    relay.terminate();
}

fn it_survives_our_kill(runtime: Runtime) {
    let listen = relay_tests::peers::free_address();
    let home = ours("relay-a", runtime).listen(listen);
    let theirs = ClaudectlHome::new(Version::Current, "ctl-b", 1);
    home.knows("ctl-b", KEY, Some(theirs.address));
    theirs.knows("relay-a", KEY, None);
    let _peer = theirs.serve();
    for _ in 0..2 {
        let mut relay = home.serve();
        relay.event("link_up", |_| true);
        relay.kill();
    }
    let mut relay = home.serve();
    relay.event("link_up", |_| true);
}
