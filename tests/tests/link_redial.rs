//! Links that are lost and come back: when, how often, and to which address.

use core::time::Duration;
use std::collections::BTreeSet;

use relay_core::peer::{Backoff, Command, Event, Failure};
use relay_tests::fleet::{Fleet, Raw, Relay, address, id, wire};

const NONCE: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
const ACCEPTED: &str = r#"{"status":"ok","proto":1,"features":["unknown-ok"]}"#;

fn pair(seed: u64) -> (Fleet, Relay, Relay) {
    let mut fleet = Fleet::new(seed);
    let a = fleet.relay("aaa", |spec| spec.knows_at("bbb", [address(1)]));
    let b = fleet.relay("bbb", |spec| spec.knows_at("aaa", [address(0)]));
    fleet.pass(30);
    assert!(linked(&fleet, a, b));
    (fleet, a, b)
}

fn linked(fleet: &Fleet, a: Relay, b: Relay) -> bool {
    [a, b].iter().all(|relay| fleet.world.is_up(relay.node) && fleet.gauge(*relay, "links") == 1)
}

/// How long until the link stands at both ends.
fn back(fleet: &mut Fleet, a: Relay, b: Relay) -> Duration {
    let start = fleet.world.now();
    while !linked(fleet, a, b) {
        fleet.world.run_for(Duration::from_millis(50));
        assert!(fleet.world.now() - start < Duration::from_secs(400), "it never comes back");
    }
    fleet.world.now() - start
}

#[test]
fn either_side_restarted_the_link_is_back_within_seconds() {
    for seed in 0..8 {
        for which in [0, 1] {
            let (mut fleet, a, b) = pair(seed);
            fleet.world.restart([a, b][which].node);
            let took = back(&mut fleet, a, b);
            assert!(took < Duration::from_secs(3), "seed {seed} side {which}: {took:?}");
        }
    }
}

#[test]
fn a_peer_that_was_away_for_long_is_back_within_the_longest_wait() {
    for seed in 0..4 {
        for which in [0, 1] {
            let (mut fleet, a, b) = pair(seed);
            let gone = [a, b][which];
            fleet.world.kill(gone.node);
            fleet.pass(1000);
            fleet.world.restart(gone.node);
            let took = back(&mut fleet, a, b);
            assert!(took < Backoff::LONGEST + Duration::from_secs(4), "{took:?}");
        }
    }
}

#[test]
fn a_crash_without_a_word_is_found_by_silence_and_mended() {
    let (mut fleet, a, b) = pair(1);
    fleet.world.crash(b.node);
    fleet.pass(91);
    assert_eq!(fleet.told_of(a, "down").last().map(String::as_str), Some("down bbb Silent"));
    fleet.world.restart(b.node);
    assert!(back(&mut fleet, a, b) < Duration::from_secs(66));
}

#[test]
fn a_half_open_link_is_mended_by_whoever_notices() {
    for one_way in [[0, 1], [1, 0]] {
        let (mut fleet, a, b) = pair(2);
        let nodes = [a.node, b.node];
        fleet.world.cut_one_way(nodes[one_way[0]], nodes[one_way[1]]);
        fleet.pass(200);
        fleet.world.heal(a.node, b.node);
        assert!(back(&mut fleet, a, b) < Duration::from_secs(66));
        let before = fleet.told(a).len();
        fleet.pass(600);
        assert_eq!(fleet.told(a).len(), before, "and it stays: {:?}", fleet.told(a));
    }
}

/// When a relay dials a raw peer that resets, in seconds from its start.
fn dials(seed: u64, span: u64, answer: impl Fn(&mut Fleet, &relay_tests::fleet::Talk)) -> Vec<f64> {
    let mut fleet = Fleet::new(seed);
    let raw = fleet.raw();
    fleet.relay("relay", |spec| spec.knows_at("raw", [raw.address()]));
    let mut times = Vec::new();
    while fleet.world.now() < Duration::from_secs(span) {
        fleet.world.run_for(Duration::from_millis(20));
        let visits = raw.visits();
        if visits.len() > times.len() {
            times.push(fleet.world.now().as_secs_f64());
            answer(&mut fleet, &visits[visits.len() - 1]);
        }
    }
    times
}

#[test]
fn waits_double_up_to_a_minute_less_a_tenth_of_jitter() {
    let mut firsts = Vec::new();
    for seed in 0..6 {
        let times = dials(seed, 400, |fleet, talk| fleet.finish(talk));
        let waits: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        for (wait, full) in waits.iter().zip([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0]) {
            assert!(*wait > full * 0.9 - 0.05 && *wait < full + 0.05, "{wait} is not {full}: {waits:?}");
        }
        assert!(waits.len() >= 9, "it goes on for ever: {waits:?}");
        firsts.push((waits[5] * 1000.0) as u64);
    }
    firsts.sort_unstable();
    firsts.dedup();
    assert!(firsts.len() > 3, "jitter differs: {firsts:?}");
}

#[test]
fn a_refusal_waits_longer_than_a_lock_out_counts() {
    let times = dials(1, 400, |fleet, talk| {
        fleet.send(talk, &wire::challenge(NONCE));
        fleet.send(talk, &wire::ack("raw", r#"{"status":"denied"}"#));
    });
    assert!(times.len() > 5);
    assert!(times.windows(5).all(|five| five[4] - five[0] > 60.0), "{times:?}");
}

#[test]
fn a_link_that_ends_at_once_is_a_failure_and_one_that_lived_starts_over() {
    let times = dials(1, 300, |fleet, talk| {
        fleet.send(talk, &wire::challenge(NONCE));
        fleet.send_last(talk, &wire::ack("raw", ACCEPTED));
    });
    let waits: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(waits[0] < 1.1 && waits[4] > 14.0, "a peer that closes every link is not stormed: {waits:?}");
    let times = dials(1, 300, |fleet, talk| {
        fleet.send(talk, &wire::challenge(NONCE));
        fleet.send(talk, &wire::ack("raw", ACCEPTED));
        fleet.pass(Backoff::SETTLED.as_secs() + 1);
        fleet.finish(talk);
    });
    let waits: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(waits.iter().all(|wait| *wait < 13.0), "{waits:?}");
}

#[test]
fn what_is_told_of_a_failed_dial_says_why_and_when_it_is_tried_again() {
    let mut fleet = Fleet::new(1);
    let raw = fleet.raw();
    let relay = fleet.relay("relay", |spec| spec.knows_at("raw", [raw.address()]));
    fleet.world.refuse(raw.address());
    fleet.pass(1);
    let failed: Vec<_> = fleet
        .events(relay)
        .iter()
        .filter_map(|(_, event)| {
            let Event::DialFailed { peer, address, reason, retry_in } = event else { return None };
            Some((peer, address, reason, retry_in))
        })
        .collect();
    let (peer, address, reason, retry_in) = failed[0];
    assert_eq!((peer, *address), (&Some(id("raw")), Some(raw.address())));
    assert!(matches!(reason, Failure::Connection(_)));
    assert!(retry_in.is_some_and(|wait| wait <= Backoff::FIRST));
    let view = fleet.peer(relay, "raw").unwrap();
    assert!(view.retry_in.is_some() || view.dialling);
}

#[test]
fn a_peer_that_moved_is_found_at_the_address_that_it_told() {
    let mut fleet = Fleet::new(1);
    let (old, new) = (fleet.raw(), fleet.raw());
    let relay = fleet.relay("relay", |spec| spec.knows_at("raw", [old.address()]));
    fleet.pass(1);
    let talk = old.visits().pop().unwrap();
    fleet.send(&talk, &wire::challenge(NONCE));
    fleet.send(&talk, &wire::ack("raw", ACCEPTED));
    fleet.send(&talk, &wire::line("heartbeat", &format!(r#"{{"listen_addrs":["{}"]}}"#, new.address())));
    fleet.world.refuse(old.address());
    fleet.finish(&talk);
    fleet.pass(3);
    let talk = new.visits().pop().expect("the address that was told is tried");
    fleet.send(&talk, &wire::challenge(NONCE));
    fleet.send(&talk, &wire::ack("raw", ACCEPTED));
    assert_eq!(fleet.peer(relay, "raw").unwrap().addresses[0].address, new.address());
    fleet.world.restart(relay.node);
    fleet.pass(1);
    assert_eq!((old.visits().len(), new.visits().len()), (1, 2), "and is the first that a restart tries");
}

/// When each of 40 peers is dialled first, by a relay that starts now.
fn first_dials(fleet: &mut Fleet, raws: &[Raw], relay: Relay, restart: bool) -> Vec<u64> {
    if restart {
        fleet.world.restart(relay.node);
    }
    let start = fleet.world.now();
    let before: usize = raws.iter().map(|raw| raw.visits().len()).sum();
    let mut times = Vec::new();
    while times.len() < raws.len() {
        fleet.world.run_for(Duration::from_millis(5));
        let all: usize = raws.iter().map(|raw| raw.visits().len()).sum();
        while times.len() < all - before {
            times.push((fleet.world.now() - start).as_millis() as u64);
        }
        assert!(fleet.world.now() - start < Duration::from_secs(2), "only {} dialled", times.len());
    }
    times
}

#[test]
fn first_dials_are_spread_whatever_the_clock_shows_at_start() {
    let mut fleet = Fleet::new(1);
    let raws: Vec<_> = (0..40).map(|_| fleet.raw()).collect();
    let relay = fleet.relay("relay", |spec| {
        for (n, raw) in raws.iter().enumerate() {
            spec.knows_at(&format!("raw-{n}"), [raw.address()]);
        }
    });
    for restart in [false, true] {
        let times = first_dials(&mut fleet, &raws, relay, restart);
        assert!(times[39] - times[0] > 250, "restart {restart}: {times:?}");
        assert!(times.windows(10).all(|ten| ten[9] - ten[0] > 10), "restart {restart}: {times:?}");
        fleet.pass(1000);
    }
}

#[test]
fn a_thousand_peers_that_do_not_answer_are_dialled_in_turn_and_all_of_them() {
    let mut fleet = Fleet::new(1);
    let silent = fleet.raw();
    let relay = fleet.relay("relay", |spec| {
        for n in 0..1500_u16 {
            spec.knows_at(&format!("raw-{n}"), [silent.node().at(10_000 + n)]);
        }
    });
    for _ in 0..60 {
        fleet.pass(1);
        assert!(fleet.gauge(relay, "dials") <= 1024);
    }
    let failed: BTreeSet<_> = fleet.told_of(relay, "dial failed").into_iter().collect();
    assert_eq!(failed.len(), 1500);
}

#[test]
fn a_relay_that_is_not_to_dial_does_not_and_one_that_is_told_to_keep_does() {
    let mut fleet = Fleet::new(1);
    let raw = fleet.raw();
    let relay = fleet.relay("relay", |spec| {
        spec.knows_at("raw", [raw.address()]);
        spec.settings.dial_known = false;
    });
    fleet.pass(100);
    assert!(raw.visits().is_empty());
    for keep in [false, true] {
        let before = raw.visits().len();
        let command = Command::Connect { address: raw.address(), peer: Some(id("raw")), invite: None, keep };
        fleet.tell(relay, command);
        fleet.world.settle();
        let talk = raw.visits().pop().unwrap();
        fleet.send(&talk, &wire::challenge(NONCE));
        fleet.send(&talk, &wire::ack("raw", ACCEPTED));
        fleet.finish(&talk);
        fleet.pass(5);
        assert_eq!(raw.visits().len() - before > 1, keep);
    }
}

#[test]
fn a_peer_without_a_key_is_not_dialled() {
    let mut fleet = Fleet::new(1);
    let raw = fleet.raw();
    let relay = fleet.relay("relay", |_| ());
    let record = relay_core::peer::PeerRecord {
        id: id("raw"),
        key: None,
        addresses: [raw.address()].into_iter().collect(),
    };
    fleet.ask(relay, Command::Add { record, store: false });
    fleet.pass(100);
    assert!(raw.visits().is_empty());
}
