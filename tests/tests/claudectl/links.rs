//! Links: who dials, which framing, which protocol version, what heartbeats show.

use std::time::Duration;

use relay_tests::peers::{Claudectl, ClaudectlHome, Relay, RelayHome, Runtime, Version};

use super::Test;

pub(super) const TESTS: &[(&str, Test)] = &[
    ("it_dials_us_and_heartbeats_go_both_ways_for_five_intervals", it_dials_us),
    ("we_dial_it_and_heartbeats_go_both_ways_for_five_intervals", we_dial_it),
    ("it_connects_by_hand", it_connects_by_hand),
    ("without_frame_bin_the_link_stays_on_ndjson", without_frame_bin),
    ("a_peer_from_before_proto_dials_us", an_old_peer_dials_us),
    ("we_dial_a_peer_from_before_proto", we_dial_an_old_peer),
    ("each_sees_capabilities_addresses_and_headroom_of_the_other", each_sees_the_other),
    ("simultaneous_dials_leave_one_link_ours_being_lower", |runtime| simultaneous(runtime, "aaa", "zzz")),
    ("simultaneous_dials_leave_one_link_ours_being_higher", |runtime| simultaneous(runtime, "zzz", "aaa")),
    ("ping_takes_the_time_of_a_handshake", ping),
    ("a_task_delegated_there_arrives_here", delegate),
];

/// A key for a pair that was paired before.
pub(super) const KEY: &str = "4b1f0c2d3e4f5061728394a5b6c7d8e9fa0b1c2d3e4f5061728394a5b6c7d8e9";

pub(super) fn ours(id: &str, runtime: Runtime) -> RelayHome {
    RelayHome::new(env!("CARGO_BIN_EXE_relay-under-test"), id, runtime)
}

/// A node of ours and one of theirs that know each other's key, both serving.
struct Pair {
    home: RelayHome,
    relay: Relay,
    theirs: ClaudectlHome,
    _peer: Claudectl,
}

/// Who is told where the other is, and so dials.
#[derive(Clone, Copy)]
enum Dialler {
    They,
    We,
}

/// Our features where they are not all.
type Features = Option<&'static [&'static str]>;

fn pair(dialler: Dialler, runtime: Runtime, version: Version, features: Features) -> Pair {
    let mut home = ours("relay-a", runtime);
    if let Some(features) = features {
        home = home.features(features);
    }
    let theirs = ClaudectlHome::new(version, "ctl-b", 1);
    home.knows("ctl-b", KEY, None);
    theirs.knows("relay-a", KEY, None);
    match dialler {
        Dialler::They => {
            let relay = home.serve();
            theirs.knows("relay-a", KEY, Some(relay.address));
            let peer = theirs.serve();
            Pair { home, relay, theirs, _peer: peer }
        }
        Dialler::We => {
            let peer = theirs.serve();
            home.knows("ctl-b", KEY, Some(theirs.address));
            let relay = home.serve();
            Pair { home, relay, theirs, _peer: peer }
        }
    }
}

fn it_dials_us(runtime: Runtime) {
    let Pair { home, mut relay, theirs, _peer } = pair(Dialler::They, runtime, Version::Current, None);
    let up = relay.event("link_up", |_| true);
    assert_eq!(
        (&up["direction"], &up["framing"], &up["proto"]),
        (&"inbound".into(), &"binary".into(), &1.into())
    );
    beats_go_both_ways(&home, &theirs, 5);
    assert!(!relay.seen().contains("link_down"), "{}", relay.seen());
}

fn we_dial_it(runtime: Runtime) {
    let Pair { home, mut relay, theirs, _peer } = pair(Dialler::We, runtime, Version::Current, None);
    let up = relay.event("link_up", |_| true);
    assert_eq!(
        (&up["direction"], &up["framing"], &up["proto"]),
        (&"outbound".into(), &"binary".into(), &1.into())
    );
    beats_go_both_ways(&home, &theirs, 5);
    assert!(!relay.seen().contains("link_down"), "{}", relay.seen());
}

fn it_connects_by_hand(runtime: Runtime) {
    let home = ours("relay-a", runtime);
    let theirs = ClaudectlHome::new(Version::Current, "ctl-b", 1);
    home.knows("ctl-b", KEY, None);
    let mut relay = home.serve();
    theirs.knows("relay-a", KEY, None);
    let _peer = theirs.start(&["relay", "connect", &relay.address.to_string()]);
    let up = relay.event("link_up", |_| true);
    assert_eq!((&up["peer"], &up["direction"]), (&"ctl-b".into(), &"inbound".into()));
}

fn without_frame_bin(runtime: Runtime) {
    let features: Features = Some(&["headroom", "unknown-ok"]);
    let Pair { home, mut relay, theirs, _peer } = pair(Dialler::They, runtime, Version::Current, features);
    assert_eq!(relay.event("link_up", |_| true)["framing"], "ndjson");
    beats_go_both_ways(&home, &theirs, 2);
    let Pair { home, mut relay, theirs, _peer } = pair(Dialler::We, runtime, Version::Current, features);
    assert_eq!(relay.event("link_up", |_| true)["framing"], "ndjson");
    beats_go_both_ways(&home, &theirs, 2);
}

fn an_old_peer_dials_us(runtime: Runtime) {
    let Pair { home, mut relay, theirs, _peer } = pair(Dialler::They, runtime, Version::BeforeProto, None);
    let up = relay.event("link_up", |_| true);
    assert_eq!(
        (&up["direction"], &up["framing"], &up["proto"]),
        (&"inbound".into(), &"ndjson".into(), &0.into())
    );
    assert_eq!(up["features"].as_array().map(Vec::len), Some(0));
    old_beats_go_both_ways(&home, &theirs);
}

fn we_dial_an_old_peer(runtime: Runtime) {
    let Pair { home, mut relay, theirs, _peer } = pair(Dialler::We, runtime, Version::BeforeProto, None);
    let up = relay.event("link_up", |_| true);
    assert_eq!(
        (&up["direction"], &up["framing"], &up["proto"]),
        (&"outbound".into(), &"ndjson".into(), &0.into())
    );
    old_beats_go_both_ways(&home, &theirs);
}

fn each_sees_the_other(runtime: Runtime) {
    // A node on loopback alone has no address to tell.
    let home = ours("relay-a", runtime).listen(([0, 0, 0, 0], 0).into());
    let theirs = ClaudectlHome::new(Version::Current, "ctl-b", 1);
    home.knows("ctl-b", KEY, None);
    let mut relay = home.serve();
    theirs.knows("relay-a", KEY, Some(([127, 0, 0, 1], relay.address.port()).into()));
    let _peer = theirs.serve();
    relay.event("link_up", |_| true);
    // What it keeps of us.
    let caps = theirs.until("our capabilities", |theirs| theirs.file("relay-a", "caps"));
    assert!(caps.contains("\"os\"") && caps.contains("\"tools\""), "{caps}");
    theirs.until("our headroom", |theirs| theirs.file("relay-a", "headroom"));
    let port = relay.address.port().to_string();
    theirs.until("our addresses", |theirs| {
        let meta = theirs.file("relay-a", "meta")?;
        (meta.matches(&format!(":{port}")).count() > 2).then_some(())
    });
    // What we keep of it.
    let shown = theirs.until("itself to us", |_| {
        let shown = home.ask(&["peers", "show", "ctl-b"])["live"].clone();
        (!shown["headroom"].is_null() && !shown["capabilities"].is_null()).then_some(shown)
    });
    assert_eq!(shown["capabilities"]["claudectl_version"], "0.92.4", "{shown}");
    assert!(shown["headroom"]["mem_free_mb"].is_u64(), "{shown}");
    let port = theirs.address.port().to_string();
    assert!(shown["listen_addrs"].to_string().contains(&port), "{shown}");
}

fn simultaneous(runtime: Runtime, our_id: &str, their_id: &str) {
    let listen = relay_tests::peers::free_address();
    let home = ours(our_id, runtime).listen(listen);
    let theirs = ClaudectlHome::new(Version::Current, their_id, 1);
    home.knows(their_id, KEY, Some(theirs.address));
    theirs.knows(our_id, KEY, Some(listen));
    // Each finds the other's address refused at first or not, as it comes; both dial.
    let peer = theirs.start(&["relay", "serve"]);
    let mut relay = home.serve();
    relay.event("link_up", |_| true);
    // Whatever happened in between, one link stands and stays: heartbeats go both ways over it.
    beats_go_both_ways(&home, &theirs, 5);
    let seen = relay.seen();
    let (ups, downs) = (seen.matches("\"link_up\"").count(), seen.matches("\"link_down\"").count());
    assert_eq!(ups, downs + 1, "{seen}");
    drop(peer);
}

fn ping(runtime: Runtime) {
    let Pair { home, mut relay, theirs: _theirs, _peer } = pair(Dialler::We, runtime, Version::Current, None);
    relay.event("link_up", |_| true);
    let pong = home.ask(&["ping", "ctl-b"]);
    assert!(pong["ms"].as_f64().is_some_and(|ms| ms > 0.0), "{pong}");
    relay.terminate();
    // And without a running serve.
    let pong = home.ask(&["ping", "ctl-b"]);
    assert!(pong["ms"].as_f64().is_some_and(|ms| ms > 0.0), "{pong}");
}

fn delegate(runtime: Runtime) {
    let Pair { home: _home, mut relay, theirs, _peer } = pair(Dialler::They, runtime, Version::Current, None);
    relay.event("link_up", |_| true);
    let sent = theirs.run(&["relay", "delegate", "relay-a", "say hello"]);
    let message = relay.event("message", |message| message["msg_type"] == "delegate_task");
    assert_eq!(message["peer"], "ctl-b", "{sent:?}");
}

/// Waits until each has heard `count` further heartbeats of the other: it stamps each of ours into a file.
fn beats_go_both_ways(home: &RelayHome, theirs: &ClaudectlHome, count: usize) {
    let mut stamps = Vec::new();
    theirs.until("our heartbeats", |theirs| {
        let stamp = theirs.file(&home.id, "beat")?;
        if stamps.last() != Some(&stamp) {
            stamps.push(stamp);
        }
        (stamps.len() > count).then_some(())
    });
    beats_come(home, theirs, count);
}

/// As `beats_go_both_ways`, with a release that stamps nothing: it keeps what our first heartbeat said, and falls silent
/// three intervals behind the last that it heard.
fn old_beats_go_both_ways(home: &RelayHome, theirs: &ClaudectlHome) {
    theirs.until("what our heartbeats say", |theirs| theirs.file(&home.id, "caps"));
    beats_come(home, theirs, 6);
}

/// Waits for `count` heartbeats of the other: we tell how old its newest is, which falls whenever one comes.
fn beats_come(home: &RelayHome, theirs: &ClaudectlHome, count: usize) {
    let mut newest = Duration::ZERO;
    let mut beats = 0;
    theirs.until("its own heartbeats to us", |theirs| {
        let shown = home.ask(&["peers", "show", &theirs.id])["live"].clone();
        let age = Duration::from_secs_f64(shown["heartbeat_age"].as_f64()?);
        beats += usize::from(age < newest);
        newest = age;
        (beats >= count).then_some(())
    });
}
