//! Who may try a handshake: slots, lock-outs, times and bounds.

use core::time::Duration;

use relay_core::peer::{Admission, BEFORE_PROOF};
use relay_tests::fleet::{Fleet, Raw, Relay, Talk, wire};

fn listener() -> (Fleet, Relay) {
    let mut fleet = Fleet::new(1);
    let relay = fleet.relay("relay", |spec| {
        spec.knows("raw");
        spec.knows("other");
    });
    (fleet, relay)
}

fn fail(fleet: &mut Fleet, raw: &Raw, relay: Relay) -> Talk {
    let talk = fleet.dial(raw, relay.address());
    if talk.is_open() {
        fleet.send(&talk, &wire::handshake("raw", "somebody-else", &talk.nonce(), ""));
    }
    talk
}

#[test]
fn one_address_has_its_slots_and_no_more() {
    let (mut fleet, relay) = listener();
    let (greedy, other) = (fleet.raw(), fleet.raw());
    let held: Vec<_> = (0..Admission::PER_ORIGIN).map(|_| fleet.dial(&greedy, relay.address())).collect();
    assert!(held.iter().all(Talk::is_open));
    let refused = fleet.dial(&greedy, relay.address());
    assert!(refused.is_over() && refused.bytes().is_empty(), "closed without a byte");
    assert_eq!(fleet.join(&other, relay, "other", "").status(), "ok");
    fleet.finish(&held[0]);
    assert_eq!(fleet.join(&greedy, relay, "raw", "").status(), "ok", "a slot that came free is used again");
    fleet.pass(30);
    assert!(held.iter().all(Talk::is_over));
    assert_eq!(fleet.gauge(relay, "handshakes_under_way"), 0);
}

#[test]
fn slow_clients_that_hold_all_slots_do_not_shut_others_out() {
    let (mut fleet, relay) = listener();
    let crowd: Vec<_> = (0..Admission::TOTAL / Admission::PER_ORIGIN).map(|_| fleet.raw()).collect();
    for raw in &crowd {
        for _ in 0..Admission::PER_ORIGIN {
            fleet.dial(raw, relay.address());
        }
    }
    assert_eq!(fleet.gauge(relay, "handshakes_under_way"), Admission::TOTAL as u64);
    let other = fleet.raw();
    assert_eq!(fleet.join(&other, relay, "other", "").status(), "ok");
    let open: usize = crowd.iter().map(|raw| raw.talks().iter().filter(|talk| talk.is_open()).count()).sum();
    assert_eq!(open, Admission::TOTAL - 1, "one slow client made room");
}

#[test]
fn a_handshake_has_10_s_in_all_and_not_a_read() {
    let (mut fleet, relay) = listener();
    let raw = fleet.raw();
    let silent = fleet.dial(&raw, relay.address());
    let slow = fleet.dial(&raw, relay.address());
    let chatty = fleet.dial(&raw, relay.address());
    let hello = wire::handshake("raw", "relay", &slow.nonce(), "");
    let (first, second) = hello.split_at(20);
    fleet.send(&slow, first);
    for n in 0..4 {
        fleet.send(&chatty, &wire::named(&format!("{n}"), "from_the_future", "{}"));
        fleet.pass(2);
    }
    assert!([&silent, &slow, &chatty].iter().all(|talk| talk.is_open()));
    fleet.pass(3);
    fleet.send(&slow, second);
    assert!([&silent, &slow, &chatty].iter().all(|talk| talk.is_over()));
    assert_eq!(fleet.told(relay), ["refused - TimedOut"; 3]);
    assert_eq!(fleet.gauge(relay, "unproven_bytes"), 0);
}

#[test]
fn five_failed_proofs_lock_an_address_out_for_60_s_from_the_first() {
    let (mut fleet, relay) = listener();
    let (raw, other) = (fleet.raw(), fleet.raw());
    for _ in 0..4 {
        assert_eq!(fail(&mut fleet, &raw, relay).status(), "denied");
        fleet.pass(2);
    }
    assert_eq!(fleet.join(&raw, relay, "raw", r#""transient":true"#).status(), "ok");
    fleet.pass(2);
    assert_eq!(fail(&mut fleet, &raw, relay).status(), "denied", "a success in between resets nothing");
    let shut = fleet.dial(&raw, relay.address());
    assert!(shut.is_over() && shut.bytes().is_empty(), "closed without a byte");
    assert_eq!(fleet.join(&other, relay, "other", "").status(), "ok", "another address is not shut out");
    assert_eq!(fleet.told_of(relay, "refused - LockedOut"), ["refused - LockedOut"], "told once");
    fleet.world.run_for(Duration::from_secs(59) - fleet.world.now());
    assert!(fleet.dial(&raw, relay.address()).is_over());
    fleet.world.run_for(Duration::from_millis(60_500) - fleet.world.now());
    assert_eq!(fleet.join(&raw, relay, "raw", "").status(), "ok");
}

#[test]
fn a_connection_from_before_the_lock_out_has_no_further_try() {
    let (mut fleet, relay) = listener();
    let (raw, other) = (fleet.raw(), fleet.raw());
    let early: Vec<_> = (0..3).map(|_| fleet.dial(&raw, relay.address())).collect();
    let elsewhere = fleet.dial(&other, relay.address());
    for _ in 0..5 {
        assert_eq!(fail(&mut fleet, &raw, relay).status(), "denied");
    }
    let told = fleet.told(relay).len();
    for (talk, with) in early.iter().zip(["relay", "somebody-else", "relay"]) {
        let said = talk.bytes().len();
        fleet.send(talk, &wire::handshake("raw", with, &talk.nonce(), ""));
        assert!(talk.is_over() && talk.bytes().len() == said, "closed without another byte");
    }
    assert_eq!((fleet.told(relay).len(), fleet.gauge(relay, "links")), (told, 0));
    assert_eq!(fleet.gauge(relay, "handshakes_under_way"), 1);
    fleet.send(&elsewhere, &wire::handshake("other", "relay", &elsewhere.nonce(), ""));
    assert_eq!(elsewhere.status(), "ok", "another address is not shut out");
}

#[test]
fn of_one_address_a_few_failed_handshakes_are_told_and_how_many_more_there_were() {
    let (mut fleet, relay) = listener();
    let (raw, other) = (fleet.raw(), fleet.raw());
    let stranger = |fleet: &mut Fleet, raw: &Raw| {
        let talk = fleet.dial(raw, relay.address());
        fleet.send(&talk, b"GET / HTTP/1.1\r\n\r\n");
    };
    for _ in 0..40 {
        stranger(&mut fleet, &raw);
    }
    assert_eq!(fleet.told(relay).len(), 5);
    stranger(&mut fleet, &other);
    assert_eq!(fleet.told(relay).len(), 6, "another address has its own");
    fleet.pass(11);
    assert_eq!(fleet.told(relay)[6..], ["left out 35"]);
    for _ in 0..6 {
        stranger(&mut fleet, &raw);
    }
    assert_eq!(fleet.told(relay).len(), 12);
    assert_eq!(fleet.gauge(relay, "handshakes_failed"), 47);
    fleet.pass(11);
    assert_eq!(fleet.told(relay)[12..], ["left out 1"]);
    fleet.assert_nothing_left(relay);
}

#[test]
fn connects_that_prove_nothing_are_no_failed_proofs() {
    let (mut fleet, relay) = listener();
    let raw = fleet.raw();
    for n in 0..40 {
        let talk = fleet.dial(&raw, relay.address());
        match n % 4 {
            0 => fleet.finish(&talk),
            1 => fleet.reset(&talk),
            2 => fleet.send(&talk, b"GET / HTTP/1.1\r\n\r\n"),
            _ => fleet.pass(11),
        }
    }
    assert_eq!(fleet.join(&raw, relay, "raw", "").status(), "ok");
}

#[test]
fn one_address_that_fills_what_may_come_before_proofs_pays_itself() {
    let (mut fleet, relay) = listener();
    let (greedy, other) = (fleet.raw(), fleet.raw());
    let almost = vec![b' '; (1 << 20) - 1];
    let talks: Vec<_> = (0..17).map(|_| fleet.dial(&greedy, relay.address())).collect();
    for talk in &talks[..16] {
        fleet.send(talk, &almost);
    }
    assert_eq!(fleet.gauge(relay, "unproven_bytes"), 16 * almost.len() as u64);
    fleet.send(&talks[16], b"0123456789abcdef");
    // Full to the byte: whoever sends half a handshake now is not the one to go.
    assert_eq!(fleet.gauge(relay, "unproven_bytes"), BEFORE_PROOF as u64);
    let talk = fleet.dial(&other, relay.address());
    let hello = wire::handshake("other", "relay", &talk.nonce(), "");
    let (first, second) = hello.split_at(hello.len() / 2);
    fleet.send(&talk, first);
    fleet.send(&talk, second);
    assert_eq!(talk.status(), "ok");
    assert_eq!(talks.iter().filter(|talk| talk.is_over()).count(), 1);
    assert!(fleet.told(relay).contains(&"refused - Fault(TooMuchBeforeProof)".to_owned()));
}

#[test]
fn max_links_refuses_lasting_links_and_never_one_shots() {
    let mut fleet = Fleet::new(1);
    let relay = fleet.relay("relay", |spec| {
        ["a", "b", "c"].iter().for_each(|peer| spec.knows(peer));
        spec.settings.max_links = 2;
    });
    let raw = fleet.raw();
    let (a, _b) = (fleet.join(&raw, relay, "a", ""), fleet.join(&raw, relay, "b", ""));
    let third = fleet.join(&raw, relay, "c", "");
    assert!(third.status() == "denied" && third.is_over());
    assert!(fleet.told(relay).contains(&"refused c TooManyLinks".to_owned()));
    for _ in 0..20 {
        let one_shot = fleet.join(&raw, relay, "c", r#""transient":true"#);
        fleet.send(&one_shot, &wire::line("lease_list", r#"{"request_id":"r"}"#));
        assert_eq!(one_shot.of_type("lease_result").len(), 1);
        fleet.finish(&one_shot);
    }
    assert_eq!(fleet.join(&raw, relay, "a", "").status(), "ok", "who has a link may replace it");
    assert!(a.is_over());
    for _ in 0..10 {
        fleet.join(&raw, relay, "c", "");
    }
    assert!(fleet.dial(&raw, relay.address()).is_open(), "no failed proof, so nobody is locked out");
}

#[test]
fn storms_leave_nothing_behind() {
    let (mut fleet, relay) = listener();
    let raws: Vec<_> = (0..8).map(|_| fleet.raw()).collect();
    for round in 0..30 {
        for raw in &raws {
            let talk = fleet.dial(raw, relay.address());
            if !talk.is_open() {
                continue;
            }
            match round % 6 {
                0 => fleet.send(&talk, b"{\"half"),
                1 => fleet.send_last(&talk, &wire::handshake("raw", "relay", &talk.nonce(), "")),
                2 => {
                    fleet.send(&talk, &wire::handshake("raw", "relay", &talk.nonce(), r#""transient":true"#))
                }
                3 => fleet.send(&talk, &wire::handshake("nobody", "relay", &talk.nonce(), "")),
                4 => fleet.reset(&talk),
                _ => fleet.send(&talk, &wire::handshake("other", "relay", &talk.nonce(), "")),
            }
        }
    }
    fleet.pass(600);
    fleet.assert_nothing_left(relay);
}
