//! Heartbeats both ways, and what counts as death.

use core::time::Duration;

use relay_core::message::RawValue;
use relay_core::message::heartbeat::{Headroom, Heartbeat};
use relay_core::peer::{Command, Life, Report};
use relay_tests::fleet::{Fleet, Raw, Relay, Talk, wire};
use serde_json::json;

const PLAIN: &str = r#""proto":1,"features":["unknown-ok"]"#;

fn linked(beat: u64, extra: &str) -> (Fleet, Relay, Raw, Talk) {
    let mut fleet = Fleet::new(1);
    let relay = fleet.relay("relay", |spec| {
        spec.knows("raw");
        spec.settings.heartbeat = Duration::from_secs(beat);
    });
    let raw = fleet.raw();
    let talk = fleet.join(&raw, relay, "raw", extra);
    (fleet, relay, raw, talk)
}

fn raw_value(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).expect("it is JSON")
}

fn headroom() -> Headroom {
    let payload = raw_value(r#"{"headroom":{"mem_free_mb":5,"running_tasks":1,"tags":["gpu"]}}"#);
    Heartbeat::parse(&payload).headroom.expect("a good headroom")
}

#[test]
fn beats_leave_at_their_interval() {
    let (mut fleet, _, _, talk) = linked(30, PLAIN);
    assert_eq!(talk.of_type("heartbeat").len(), 1, "the first at once");
    let mut times = Vec::new();
    for _ in 0..300 {
        fleet.pass(1);
        let beats = talk.of_type("heartbeat").len();
        if beats > times.len() + 1 {
            times.push(fleet.world.now().as_secs());
        }
        // A sign of life.
        fleet.send(&talk, &wire::line("ack", "{}"));
    }
    assert!((22..=31).contains(&times[0]), "the second within the last quarter: {times:?}");
    assert!(times.windows(2).all(|pair| (29..=31).contains(&(pair[1] - pair[0]))), "{times:?}");
    assert_eq!(times.len(), 10);
}

#[test]
fn beats_of_links_that_came_up_together_are_spread() {
    let mut fleet = Fleet::new(1);
    let names: Vec<_> = (0..40).map(|n| format!("peer-{n}")).collect();
    let relay = fleet.relay("relay", |spec| names.iter().for_each(|name| spec.knows(name)));
    let raw = fleet.raw();
    let talks: Vec<_> = names.iter().map(|name| fleet.join(&raw, relay, name, PLAIN)).collect();
    let mut most = 0;
    let mut before = talks.len();
    while fleet.world.now() < Duration::from_secs(32) {
        fleet.world.run_for(Duration::from_millis(100));
        let beats: usize = talks.iter().map(|talk| talk.of_type("heartbeat").len()).sum();
        most = most.max(beats - before);
        before = beats;
    }
    assert_eq!(before, 80);
    assert!(most < 10, "{most} of 40 within 100 ms");
}

#[test]
fn an_interval_outside_the_bounds_is_brought_inside() {
    let mut fleet = Fleet::new(1);
    for (asked, kept) in [(0, 1), (1, 1), (300, 300), (100_000, 300)] {
        let relay = fleet.relay("relay", |spec| spec.settings.heartbeat = Duration::from_secs(asked));
        let relay_tests::fleet::Actor::Relay(node) = fleet.world.machine(relay.node).unwrap() else {
            panic!()
        };
        assert_eq!(node.settings().heartbeat, Duration::from_secs(kept));
    }
}

#[test]
fn what_a_beat_says_is_the_report_and_what_is_not_known_is_not_said() {
    let (mut fleet, relay, _, talk) = linked(30, PLAIN);
    assert_eq!(talk.of_type("heartbeat")[0].payload, json!({"worker_id": "relay"}));
    let report = Report {
        sessions: Some(raw_value(r#"[{"session_id":"s1","status":"Idle"}]"#)),
        capabilities: None,
        listen_addrs: vec!["10.0.0.9:9847".parse().unwrap()],
        headroom: Some(headroom()),
    };
    fleet.ask(relay, Command::Report(report));
    fleet.pass(31);
    assert_eq!(
        talk.of_type("heartbeat")[1].payload,
        json!({
            "worker_id": "relay",
            "sessions": [{"session_id": "s1", "status": "Idle"}],
            "listen_addrs": ["10.0.0.9:9847"],
        })
    );
}

#[test]
fn a_change_of_the_running_sessions_is_told_at_once_and_once_a_second_at_most() {
    let (mut fleet, relay, _, talk) = linked(30, PLAIN);
    let report = |fleet: &mut Fleet, sessions: &str| {
        let sessions = Some(raw_value(sessions));
        fleet.ask(relay, Command::Report(Report { sessions, ..Report::default() }));
    };
    let told = || -> Vec<String> {
        let beats = talk.of_type("heartbeat");
        beats.iter().skip(1).map(|beat| beat.payload["sessions"].to_string()).collect()
    };
    fleet.pass(2);
    let [one, other] = [r#"[{"session_id":"s1"}]"#, r#"[{"session_id":"s2"}]"#];
    report(&mut fleet, one);
    fleet.world.run_for(Duration::from_millis(100));
    assert_eq!(told(), [one]);
    report(&mut fleet, r#"[{"session_id":"s1","status":"Idle"},{"session_id":"s2","status":"Finished"}]"#);
    fleet.pass(3);
    assert_eq!(told(), [one], "the same sessions run");
    for round in 0..30 {
        report(&mut fleet, if round % 2 == 0 { "[]" } else { other });
        fleet.world.run_for(Duration::from_millis(100));
    }
    assert!((4..=5).contains(&told().len()), "{:?}", told());
    fleet.pass(2);
    assert_eq!(told().last().map(String::as_str), Some(other), "the newest is told in the end");
}

#[test]
fn headroom_is_said_and_heard_only_where_it_was_agreed() {
    for (features, agreed) in [(wire::ALL_FEATURES, true), (PLAIN, false), ("", false)] {
        let (mut fleet, relay, _, talk) = linked(30, features);
        let report = Report { headroom: Some(headroom()), ..Report::default() };
        fleet.ask(relay, Command::Report(report));
        fleet.pass(31);
        assert_eq!(talk.of_type("heartbeat")[1].payload.get("headroom").is_some(), agreed, "{features}");
        let text = wire::text("1", "heartbeat", "raw", r#"{"headroom":{"mem_free_mb":7}}"#);
        let frame =
            if features == wire::ALL_FEATURES { wire::binary(&text) } else { (text + "\n").into_bytes() };
        fleet.send(&talk, &frame);
        let (_, report) = fleet.peer(relay, "raw").unwrap().report.unwrap();
        assert_eq!(report.headroom.is_some(), agreed, "{features}");
    }
}

#[test]
fn a_report_too_large_for_a_frame_leaves_the_sign_of_life() {
    let (mut fleet, relay, _, talk) = linked(30, PLAIN);
    let sessions = format!(r#"[{{"session_id":"{}"}}]"#, "x".repeat(2 << 20));
    fleet.ask(relay, Command::Report(Report { sessions: Some(raw_value(&sessions)), ..Report::default() }));
    fleet.pass(31);
    assert_eq!(talk.of_type("heartbeat")[1].payload, json!({}));
}

#[test]
fn every_payload_of_a_beat_is_a_beat() {
    let (mut fleet, relay, _, talk) = linked(30, PLAIN);
    for payload in ["{}", "null", "[]", r#"{"sessions":7,"capabilities":[],"listen_addrs":{},"headroom":1}"#]
    {
        fleet.pass(10);
        fleet.send(&talk, &wire::line("heartbeat", payload));
        let (age, report) = fleet.peer(relay, "raw").unwrap().report.unwrap();
        assert!(age < Duration::from_secs(1), "{payload}");
        assert!(report.sessions.is_none() && report.capabilities.is_none() && report.listen_addrs.is_empty());
    }
}

#[test]
fn what_a_beat_says_is_kept_of_the_authenticated_peer_until_it_says_otherwise() {
    let (mut fleet, relay, _, talk) = linked(30, PLAIN);
    let caps = r#"{"claudectl_version":"0.92.4","os":"linux","arch":"x86_64","tools":{"git":{"state":"present","version":"2"}}}"#;
    let payload =
        format!(r#"{{"worker_id":"somebody","sessions":[{{"session_id":"a"}}],"capabilities":{caps}}}"#);
    let text = wire::text("1", "heartbeat", "somebody-else", &payload) + "\n";
    fleet.send(&talk, text.as_bytes());
    fleet.send(&talk, &wire::line("heartbeat", "{}"));
    assert_eq!(fleet.peers(relay).len(), 1, "nobody else was made up");
    let (_, report) = fleet.peer(relay, "raw").unwrap().report.unwrap();
    assert_eq!(report.sessions.unwrap().get(), r#"[{"session_id":"a"}]"#);
    assert_eq!(report.capabilities.unwrap().os, "linux");
    assert_eq!(report.worker_id.as_deref(), Some("somebody"));
    fleet.send(&talk, &wire::line("heartbeat", r#"{"sessions":[]}"#));
    let (_, report) = fleet.peer(relay, "raw").unwrap().report.unwrap();
    assert_eq!(report.sessions.unwrap().get(), "[]");
}

#[test]
fn sessions_beyond_their_bound_are_not_kept() {
    let (mut fleet, relay, _, talk) = linked(30, PLAIN);
    let many = format!("[{}1]", "1,".repeat(200_000));
    fleet.send(&talk, &wire::line("heartbeat", &format!(r#"{{"sessions":{many}}}"#)));
    let (_, report) = fleet.peer(relay, "raw").unwrap().report.unwrap();
    assert!(report.sessions.is_none());
}

#[test]
fn advertised_addresses_go_behind_known_ones_and_are_capped() {
    let (mut fleet, relay, raw, _) = linked(30, r#""proto":1,"listen_port":7000"#);
    let talk = raw.talks().pop().unwrap();
    let list: Vec<_> = (1..=20).map(|n| format!("10.9.9.9:{n}")).collect();
    let list = json!([
        ["not an address"],
        "host.example:1",
        "10.9.9.9:1",
        list[0],
        list[1],
        list[2],
        list[3],
        list[4],
        list[5],
        list[6],
        list[7],
        list[8]
    ]);
    fleet.send(&talk, &wire::line("heartbeat", &json!({"listen_addrs": list}).to_string()));
    let known = fleet.peer(relay, "raw").unwrap().addresses;
    assert_eq!(known[0].address, raw.node().at(7000), "the one that was seen stays first");
    assert_eq!(known.len(), 8);
    assert!(known[1..].iter().all(|known| known.last_seen.as_millis() == 0));
    let meta = fleet.world.disk(relay.node).file("peers/raw.meta").unwrap();
    assert!(String::from_utf8_lossy(meta.as_bytes()).contains("10.9.9.9:7"));
}

#[test]
fn a_beat_over_a_one_shot_counts_for_the_report_and_keeps_no_dead_link_alive() {
    let (mut fleet, relay, raw, talk) = linked(30, PLAIN);
    for _ in 0..10 {
        fleet.pass(10);
        let one_shot = fleet.join(&raw, relay, "raw", r#""transient":true"#);
        fleet.send_last(&one_shot, &wire::line("heartbeat", r#"{"sessions":[]}"#));
        let (age, _) = fleet.peer(relay, "raw").unwrap().report.unwrap();
        assert!(age < Duration::from_secs(1));
    }
    assert!(talk.is_over(), "the link itself was silent for 90 s");
    assert_eq!(fleet.told_of(relay, "down"), ["down raw Silent"]);
}

/// When a silent link is closed, in seconds from its last sign of life.
fn silence(own: u64, beats: &[u64]) -> u64 {
    let (mut fleet, _, _, talk) = linked(own, PLAIN);
    let mut last = fleet.world.now();
    for pause in beats {
        fleet.pass(*pause);
        fleet.send(&talk, &wire::line("heartbeat", "{}"));
        last = fleet.world.now();
    }
    while talk.is_open() {
        fleet.world.run_for(Duration::from_millis(100));
        assert!(fleet.world.now() < Duration::from_secs(4000), "it never dies");
    }
    (fleet.world.now() - last).as_secs()
}

#[test]
fn a_link_dies_after_three_intervals_of_the_larger_of_both() {
    assert_eq!(silence(5, &[]), 90, "30 s is the peer's interval until two gaps were seen");
    assert_eq!(silence(5, &[5, 5]), 90, "one gap was seen");
    assert_eq!(silence(5, &[5, 5, 5]), 15);
    assert_eq!(silence(5, &[10, 10, 10]), 30, "the peer's is larger");
    assert_eq!(silence(20, &[10, 10, 10]), 60, "ours is larger");
    assert_eq!(silence(60, &[]), 180);
    assert_eq!(silence(5, &[7, 7, 7, 12, 7]), 36, "the longer of the newest two gaps");
}

#[test]
fn any_complete_frame_is_a_sign_of_life_and_a_part_is_none() {
    let (mut fleet, relay, _, talk) = linked(30, PLAIN);
    for n in 0..20 {
        fleet.pass(60);
        fleet.send(&talk, &wire::named(&format!("{n}"), "from_the_future", "{}"));
    }
    assert!(talk.is_open());
    fleet.pass(70);
    fleet.send(&talk, b"{\"id\"");
    fleet.pass(21);
    assert_eq!(fleet.told_of(relay, "down"), ["down raw Silent"]);
}

#[test]
fn silent_links_are_closed_and_free_everything() {
    let mut fleet = Fleet::new(1);
    let names: Vec<_> = (0..50).map(|n| format!("peer-{n}")).collect();
    let relay = fleet.relay("relay", |spec| names.iter().for_each(|name| spec.knows(name)));
    let raw = fleet.raw();
    let talks: Vec<_> = names.iter().map(|name| fleet.join(&raw, relay, name, PLAIN)).collect();
    assert_eq!(fleet.gauge(relay, "links"), 50);
    fleet.pass(91 + 11);
    assert!(talks.iter().all(Talk::is_over));
    assert_eq!(fleet.told_of(relay, "down").len(), 50);
    fleet.assert_nothing_left(relay);
}

#[test]
fn nothing_is_executed_on_a_link_that_is_dead() {
    let (mut fleet, relay, raw, talk) = linked(30, PLAIN);
    fleet.world.cut_one_way(raw.node(), relay.node);
    fleet.pass(91);
    fleet.send(&talk, &wire::line("delegate_task", "{}"));
    fleet.world.heal(raw.node(), relay.node);
    fleet.pass(60);
    assert_eq!(fleet.told(relay), ["up raw inbound", "down raw Silent"]);
    assert!(talk.is_over());
}

/// Two relays with a link, of which either knows where the other is.
fn pair(beat: u64) -> (Fleet, Relay, Relay) {
    let mut fleet = Fleet::new(5);
    let (one, two) = (relay_tests::fleet::address(0), relay_tests::fleet::address(1));
    let set = move |spec: &mut relay_tests::fleet::Spec, peer: &str, at| {
        spec.knows_at(peer, [at]);
        spec.settings.heartbeat = Duration::from_secs(beat);
    };
    let a = fleet.relay("aaa", |spec| set(spec, "bbb", two));
    let b = fleet.relay("bbb", |spec| set(spec, "aaa", one));
    fleet.pass(5);
    assert_eq!((fleet.gauge(a, "links"), fleet.gauge(b, "links")), (1, 1));
    (fleet, a, b)
}

#[test]
fn a_link_that_lives_stays_and_each_hears_the_other() {
    for beat in [1, 30, 300] {
        let (mut fleet, a, b) = pair(beat);
        fleet.pass(3600);
        assert_eq!(fleet.told_of(a, "down").len(), fleet.told_of(a, "up").len() - 1, "{:?}", fleet.told(a));
        assert!(fleet.told_of(a, "down").len() <= 1, "beat {beat}: {:?}", fleet.told(a));
        for (relay, peer) in [(a, "bbb"), (b, "aaa")] {
            let (age, _) = fleet.peer(relay, peer).unwrap().report.unwrap();
            assert!(age <= Duration::from_secs(beat + 1));
        }
    }
}

#[test]
fn a_cut_kills_the_link_at_both_ends_and_it_comes_back_once() {
    let (mut fleet, a, b) = pair(5);
    fleet.pass(60);
    let before = (fleet.told_of(a, "up").len(), fleet.told_of(b, "up").len());
    fleet.world.cut(a.node, b.node);
    fleet.pass(16);
    assert_eq!((fleet.gauge(a, "links"), fleet.gauge(b, "links")), (0, 0), "three intervals of 5 s");
    fleet.pass(300);
    fleet.world.heal(a.node, b.node);
    fleet.pass(70);
    assert_eq!((fleet.gauge(a, "links"), fleet.gauge(b, "links")), (1, 1));
    fleet.pass(600);
    for (relay, before) in [(a, before.0), (b, before.1)] {
        let ups = fleet.told_of(relay, "up").len() - before;
        assert!((1..=2).contains(&ups), "no storm: {:?}", fleet.told(relay));
    }
}

#[test]
fn a_wall_clock_that_jumps_ends_no_link() {
    let (mut fleet, a, b) = pair(5);
    fleet.pass(30);
    let before = fleet.told(a).len();
    for millis in [86_400_000, -2 * 86_400_000] {
        fleet.world.step_wall(b.node, millis);
        fleet.pass(60);
    }
    assert_eq!(fleet.told(a).len(), before);
}

#[test]
fn the_interval_that_is_granted_to_a_peer_has_an_end() {
    assert_eq!(silence(5, &[]), 90);
    assert_eq!(Life::LONGEST, Duration::from_secs(300));
}
