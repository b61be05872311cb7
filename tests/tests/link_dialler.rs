//! The dialler's side of a handshake: what it answers, whom it believes, and where it goes next.

use core::time::Duration;

use relay_core::machine::Ticket;
use relay_core::peer::{Answer, Command, Failure};
use relay_core::secret::Key;
use relay_sim::Splits;
use relay_tests::fleet::{Fleet, Raw, Relay, Talk, id, wire};
use serde_json::json;

const NONCE: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
const ACCEPTED: &str = r#"{"status":"ok","proto":1,"features":["unknown-ok"]}"#;

fn dialler() -> (Fleet, Relay, Raw) {
    let mut fleet = Fleet::new(1);
    let raw = fleet.raw();
    let relay = fleet.relay("relay", |spec| {
        spec.knows_at("raw", [raw.address()]);
        spec.settings.dial_known = false;
    });
    (fleet, relay, raw)
}

fn connect(fleet: &mut Fleet, relay: Relay, raw: &Raw) -> (Ticket, Talk) {
    let peer = Some(id("raw"));
    let ticket =
        fleet.tell(relay, Command::Connect { address: raw.address(), peer, invite: None, keep: false });
    fleet.world.settle();
    (ticket, raw.visits().pop().expect("the relay dialled"))
}

/// What a connect comes to when the listener says this, and then waits.
fn outcome(says: &[&[u8]]) -> (Result<(), Failure>, Talk) {
    let (mut fleet, relay, raw) = dialler();
    let (ticket, talk) = connect(&mut fleet, relay, &raw);
    for bytes in says {
        fleet.send(&talk, bytes);
    }
    let answer = match fleet.answer(relay, ticket) {
        Some(Answer::Connected { .. }) => Ok(()),
        Some(Answer::Failed(failure)) => Err(failure.clone()),
        other => panic!("{other:?}"),
    };
    (answer, talk)
}

fn acked(payload: &str) -> (Result<(), Failure>, Talk) {
    outcome(&[&wire::challenge(NONCE), &wire::ack("raw", payload)])
}

fn denied() -> Failure {
    Failure::Denied { by: Some(id("raw")) }
}

#[test]
fn a_handshake_says_what_this_relay_is() {
    let (_, talk) = acked(ACCEPTED);
    let hello = &talk.messages()[0];
    let proof = wire::key("raw", "relay").prove(NONCE);
    assert_eq!(hello.from, "relay");
    assert_eq!(
        hello.payload,
        json!({
            "proof": proof,
            "version": env!("CARGO_PKG_VERSION"),
            "proto": 1,
            "features": ["frame-bin", "headroom", "lease-fence", "lease-fleet", "unknown-ok"],
            "listen_port": 9000,
        })
    );
}

#[test]
fn a_port_that_does_not_lead_here_is_not_told() {
    for listening in [None, Some("10.1.0.1:9000".parse().unwrap()), Some("127.0.0.1:9000".parse().unwrap())] {
        let mut fleet = Fleet::new(1);
        let raw = fleet.raw();
        fleet.relay("relay", |spec| {
            spec.knows_at("raw", [raw.address()]);
            spec.settings.listening = listening;
        });
        fleet.pass(1);
        let talk = raw.visits().pop().unwrap();
        fleet.send(&talk, &wire::challenge(NONCE));
        assert_eq!(talk.messages()[0].payload.get("listen_port"), None, "{listening:?}");
    }
}

#[test]
fn a_relay_from_before_proto_1_says_only_its_proof() {
    let mut fleet = Fleet::new(1);
    let raw = fleet.raw();
    let relay = fleet.relay("relay", |spec| {
        spec.knows_at("raw", [raw.address()]);
        spec.settings.proto = false;
    });
    fleet.pass(1);
    let talk = raw.visits().pop().unwrap();
    fleet.send(&talk, &wire::challenge(NONCE));
    let payload = talk.messages()[0].payload.clone();
    assert!(payload.get("proto").is_none() && payload.get("features").is_none(), "{payload}");
    fleet.send(&talk, &wire::ack("raw", ACCEPTED));
    assert!(fleet.peer(relay, "raw").unwrap().link.unwrap().features.is_empty());
}

#[test]
fn the_proof_covers_the_characters_of_any_nonce() {
    for nonce in ["short", "not hex: é ☃", &"x".repeat(1024), &NONCE.to_uppercase()] {
        let (answer, talk) = outcome(&[&wire::challenge(nonce), &wire::ack("raw", ACCEPTED)]);
        assert_eq!(answer, Ok(()), "{nonce}");
        assert_eq!(talk.messages()[0].payload["proof"], wire::key("raw", "relay").prove(nonce), "{nonce}");
    }
}

#[test]
fn a_challenge_without_a_nonce_or_of_another_type_is_a_fault() {
    let fault = Failure::Fault(relay_core::peer::Fault::BadChallenge);
    for bad in [
        wire::line("challenge", "{}"),
        wire::line("challenge", r#"{"nonce":7}"#),
        wire::line("challenge", &format!(r#"{{"nonce":"{}"}}"#, "x".repeat(1025))),
        wire::line("heartbeat", &format!(r#"{{"nonce":"{NONCE}"}}"#)),
        wire::ack("raw", ACCEPTED),
    ] {
        let (answer, talk) = outcome(&[&bad]);
        assert_eq!(answer, Err(fault.clone()), "{}", bad.escape_ascii());
        assert!(talk.is_over() && talk.bytes().is_empty());
    }
}

#[test]
fn unknown_types_before_challenge_and_ack_are_skipped() {
    let skipped = wire::line("from_the_future", "{}");
    let (answer, _) = outcome(&[&skipped, &wire::challenge(NONCE), &skipped, &wire::ack("raw", ACCEPTED)]);
    assert_eq!(answer, Ok(()));
}

#[test]
fn another_frame_in_place_of_the_ack_is_a_fault() {
    for bad in [wire::challenge(NONCE), wire::line("heartbeat", "{}"), b"\n".to_vec(), b"{}\n".to_vec()] {
        let (answer, _) = outcome(&[&wire::challenge(NONCE), &bad]);
        assert!(matches!(answer, Err(Failure::Fault(_))), "{answer:?}");
    }
}

#[test]
fn any_status_but_ok_is_a_refusal() {
    for payload in [
        r#"{"status":"denied"}"#,
        r#"{"status":"OK"}"#,
        r#"{"status":"ok "}"#,
        r#"{"status":true}"#,
        "{}",
        "null",
    ] {
        let (answer, talk) = acked(payload);
        assert_eq!(answer, Err(denied()), "{payload}");
        assert!(talk.is_over());
    }
}

fn link_of(payload: &str) -> (u64, String, relay_core::frame::Framing) {
    let (mut fleet, relay, raw) = dialler();
    let (_, talk) = connect(&mut fleet, relay, &raw);
    fleet.send(&talk, &wire::challenge(NONCE));
    fleet.send(&talk, &wire::ack("raw", payload));
    let link = fleet.peer(relay, "raw").and_then(|peer| peer.link).expect("a link stands");
    let names: Vec<_> = link.features.iter().map(|feature| feature.as_str()).collect();
    (link.proto, names.join(" "), link.framing)
}

#[test]
fn agreed_features_are_those_of_the_ack_that_we_have_too() {
    use relay_core::frame::Framing::{Binary, Ndjson};
    for (payload, proto, features, framing) in [
        (
            r#"{"status":"ok","proto":1,"features":["frame-bin","unknown-ok"]}"#,
            1,
            "frame-bin unknown-ok",
            Binary,
        ),
        (
            r#"{"status":"ok","proto":1,"features":["unknown-ok","supervised-task","new"]}"#,
            1,
            "unknown-ok",
            Ndjson,
        ),
        (r#"{"status":"ok","proto":9,"features":["frame-bin"]}"#, 1, "frame-bin", Binary),
        (r#"{"status":"ok","proto":0,"features":["frame-bin"]}"#, 0, "frame-bin", Binary),
        (r#"{"status":"ok","features":["frame-bin"]}"#, 0, "", Ndjson),
        (r#"{"status":"ok","proto":"1","features":["frame-bin"]}"#, 0, "", Ndjson),
        (r#"{"status":"ok","proto":1,"features":"frame-bin"}"#, 1, "", Ndjson),
        (r#"{"status":"ok","proto":1}"#, 1, "", Ndjson),
        (r#"{"status":"ok"}"#, 0, "", Ndjson),
    ] {
        assert_eq!(link_of(payload), (proto, features.to_owned(), framing), "{payload}");
    }
}

#[test]
fn whoever_answers_must_be_the_one_that_was_dialled() {
    for (from, answered) in
        [("other", Some(id("other"))), ("", None), ("a/b", None), ("relay", Some(id("relay")))]
    {
        let (answer, talk) = outcome(&[&wire::challenge(NONCE), &wire::ack(from, ACCEPTED)]);
        assert_eq!(answer, Err(Failure::WrongPeer { answered }), "{from:?}");
        assert!(talk.is_over());
    }
}

#[test]
fn a_listener_that_closes_without_a_word_is_no_handshake() {
    let (mut fleet, relay, raw) = dialler();
    let (ticket, talk) = connect(&mut fleet, relay, &raw);
    fleet.finish(&talk);
    assert!(matches!(fleet.answer(relay, ticket), Some(Answer::Failed(Failure::NoHandshake))));
    let (ticket, talk) = connect(&mut fleet, relay, &raw);
    fleet.reset(&talk);
    assert!(matches!(fleet.answer(relay, ticket), Some(Answer::Failed(Failure::NoHandshake))));
    fleet.pass(30);
    fleet.assert_nothing_left(relay);
}

#[test]
fn a_listener_that_says_nothing_has_10_s() {
    let (mut fleet, relay, raw) = dialler();
    let (ticket, talk) = connect(&mut fleet, relay, &raw);
    fleet.world.run_for(Duration::from_millis(9900));
    assert!(fleet.answer(relay, ticket).is_none() && talk.is_open());
    fleet.world.run_for(Duration::from_millis(200));
    assert!(matches!(fleet.answer(relay, ticket), Some(Answer::Failed(Failure::TimedOut))));
    assert!(talk.is_over());
}

#[test]
fn a_slow_listener_has_10_s_in_all_and_not_a_read() {
    let (mut fleet, relay, raw) = dialler();
    let (ticket, talk) = connect(&mut fleet, relay, &raw);
    for n in 0..6 {
        if n < 5 {
            fleet.send(&talk, &wire::named(&format!("{n}"), "from_the_future", "{}"));
        }
        fleet.pass(2);
    }
    assert!(matches!(fleet.answer(relay, ticket), Some(Answer::Failed(Failure::TimedOut))));
}

#[test]
fn frames_right_behind_the_ack_survive() {
    for (features, binary) in [(r#"["unknown-ok"]"#, false), (r#"["frame-bin"]"#, true)] {
        let (mut fleet, relay, raw) = dialler();
        fleet.world.splits(Splits::Whole);
        let (_, talk) = connect(&mut fleet, relay, &raw);
        fleet.send(&talk, &wire::challenge(NONCE));
        let frame = |name: &str| {
            let text = wire::text(name, "lease_list", "raw", &format!(r#"{{"request_id":"{name}"}}"#));
            if binary { wire::binary(&text) } else { (text + "\n").into_bytes() }
        };
        let ack = wire::ack("raw", &format!(r#"{{"status":"ok","proto":1,"features":{features}}}"#));
        fleet.send(&talk, &[ack, frame("one"), frame("two")].concat());
        let results = talk.of_type("lease_result");
        assert_eq!(results.len(), 2);
        assert!(results.iter().all(|sent| sent.binary == binary));
    }
}

#[test]
fn an_ack_and_its_end_in_one_segment_is_a_link_that_ended() {
    let (mut fleet, relay, raw) = dialler();
    fleet.world.splits(Splits::Whole);
    let (_, talk) = connect(&mut fleet, relay, &raw);
    fleet.send(&talk, &wire::challenge(NONCE));
    fleet.send_last(&talk, &wire::ack("raw", ACCEPTED));
    assert_eq!(fleet.told(relay), ["up raw outbound", "down raw PeerClosed"]);
}

#[test]
fn a_nonce_of_our_own_is_not_answered() {
    let (mut fleet, relay, raw) = dialler();
    let theirs = fleet.dial(&raw, relay.address());
    let nonce = theirs.nonce();
    for reflected in [nonce.clone(), nonce.to_uppercase()] {
        let (ticket, ours) = connect(&mut fleet, relay, &raw);
        fleet.send(&ours, &wire::challenge(&reflected));
        assert!(matches!(fleet.answer(relay, ticket), Some(Answer::Failed(Failure::Reflected))));
        assert!(ours.bytes().is_empty() && ours.is_over());
    }
}

#[test]
fn a_relay_that_is_told_its_own_address_does_not_link_with_itself() {
    let mut fleet = Fleet::new(1);
    let own = fleet.next_address();
    let relay = fleet.relay("relay", |spec| spec.knows_at("raw", [own]));
    fleet.pass(300);
    assert_eq!(fleet.told_of(relay, "up"), [""; 0]);
    assert!(fleet.told(relay).iter().any(|line| line == "dial failed raw Reflected"));
}

#[test]
fn addresses_are_tried_in_order_until_one_leads_to_the_peer() {
    let mut fleet = Fleet::new(1);
    let (refusing, hanging, other, raw) = (fleet.raw(), fleet.raw(), fleet.raw(), fleet.raw());
    fleet.world.refuse(refusing.address());
    fleet.world.hang(hanging.address());
    let relay = fleet.relay("relay", |spec| {
        spec.knows_at("raw", [refusing.address(), hanging.address(), other.address(), raw.address()]);
    });
    fleet.pass(12);
    assert!(refusing.visits().is_empty() && hanging.visits().is_empty());
    let wrong = other.visits().pop().unwrap();
    assert!(raw.visits().is_empty(), "one after the other");
    fleet.send(&wrong, &wire::challenge(NONCE));
    fleet.send(&wrong, &wire::ack("other", ACCEPTED));
    let right = raw.visits().pop().unwrap();
    fleet.send(&right, &wire::challenge(NONCE));
    fleet.send(&right, &wire::ack("raw", ACCEPTED));
    assert_eq!(fleet.told(relay), ["up raw outbound"]);
    let peer = fleet.peer(relay, "raw").unwrap();
    assert_eq!(peer.addresses[0].address, raw.address(), "the one that worked is first from now on");
    assert_eq!(peer.addresses.len(), 4);
}

/// A connect to an address without saying who is there, by a relay that knows these peers. The listener denies, as
/// `by`, every proof but that of `good`.
fn with_many_keys(peers: &[&str], by: &str, good: Option<&str>) -> (usize, Option<Answer>) {
    let mut fleet = Fleet::new(1);
    let raw = fleet.raw();
    let relay = fleet.relay("relay", |spec| {
        peers.iter().for_each(|peer| spec.knows(peer));
        spec.settings.dial_known = false;
    });
    let address = raw.address();
    let ticket = fleet.tell(relay, Command::Connect { address, peer: None, invite: None, keep: false });
    let mut tried = 0;
    loop {
        fleet.world.settle();
        let Some(talk) = raw.visits().pop().filter(|_| raw.visits().len() > tried) else { break };
        tried += 1;
        fleet.send(&talk, &wire::challenge(NONCE));
        let right = good.map(|good| wire::key("relay", good).prove(NONCE));
        let proven = right.is_some_and(|right| talk.messages()[0].payload["proof"] == right);
        fleet.send(&talk, &wire::ack(by, if proven { ACCEPTED } else { r#"{"status":"denied"}"# }));
    }
    let answer = match fleet.answer(relay, ticket) {
        Some(Answer::Connected { peer, paired }) => {
            Some(Answer::Connected { peer: peer.clone(), paired: *paired })
        }
        Some(Answer::Failed(failure)) => Some(Answer::Failed(failure.clone())),
        Some(_) | None => None,
    };
    (tried, answer)
}

#[test]
fn a_refusal_that_says_who_refuses_leaves_that_peers_key_to_try() {
    let (tried, answer) = with_many_keys(&["a", "b", "c", "d", "e", "f"], "f", Some("f"));
    assert_eq!(tried, 2);
    assert!(matches!(answer, Some(Answer::Connected { peer, paired: false }) if peer == id("f")));
}

#[test]
fn keys_are_tried_one_by_one_and_no_more_than_4_are_denied() {
    let (tried, answer) = with_many_keys(&["a", "b", "c"], "", Some("c"));
    assert_eq!(tried, 3);
    assert!(matches!(answer, Some(Answer::Failed(Failure::WrongPeer { .. }))), "it says no name: {answer:?}");
    let (tried, answer) = with_many_keys(&["a", "b", "c", "d", "e", "f"], "", None);
    assert_eq!(tried, 4, "five would lock this address out over there");
    assert!(matches!(answer, Some(Answer::Failed(Failure::Denied { by: None }))), "{answer:?}");
}

#[test]
fn a_peer_that_denies_at_all_its_addresses_is_not_asked_often_enough_to_lock_us_out() {
    let mut fleet = Fleet::new(1);
    let raws: Vec<_> = (0..6).map(|_| fleet.raw()).collect();
    fleet.relay("relay", |spec| spec.knows_at("raw", raws.iter().map(Raw::address)));
    let mut denials = Vec::new();
    for _ in 0..3000 {
        fleet.world.run_for(Duration::from_millis(100));
        for talk in raws.iter().flat_map(Raw::visits).filter(Talk::is_open) {
            fleet.send(&talk, &wire::challenge(NONCE));
            fleet.send(&talk, &wire::ack("raw", r#"{"status":"denied"}"#));
            denials.push(fleet.world.now());
        }
    }
    assert!(denials.len() >= 8, "it goes on trying: {}", denials.len());
    for five in denials.windows(5) {
        assert!(five[4] - five[0] > Duration::from_secs(60), "five proofs in a minute: {five:?}");
    }
}

#[test]
fn commands_that_cannot_dial_say_why() {
    let (mut fleet, relay, raw) = dialler();
    let address = raw.address();
    let stranger = Some(id("stranger"));
    let connect = |peer, invite| Command::Connect { address, peer, invite, keep: false };
    assert!(matches!(fleet.ask(relay, connect(stranger, None)), Some(Answer::Failed(Failure::UnknownPeer))));
    let ping = |peer| Command::Ping { peer: id(peer) };
    assert!(matches!(fleet.ask(relay, ping("stranger")), Some(Answer::Failed(Failure::UnknownPeer))));
    let mut fleet = Fleet::new(1);
    let relay = fleet.relay("relay", |spec| spec.knows("raw"));
    assert!(matches!(fleet.ask(relay, ping("raw")), Some(Answer::Failed(Failure::NoAddress))));
    let bare = fleet.relay("bare", |_| ());
    assert!(matches!(fleet.ask(bare, connect(None, None)), Some(Answer::Failed(Failure::NotPaired))));
}

#[test]
fn a_dial_fails_as_the_network_says() {
    use relay_core::machine::{CloseReason, DialError};
    let (mut fleet, relay, raw) = dialler();
    fleet.world.refuse(raw.address());
    let command = |raw: &Raw| Command::Connect {
        address: raw.address(),
        peer: Some(id("raw")),
        invite: None,
        keep: false,
    };
    let refused = Failure::Connection(CloseReason::DialFailed(DialError::Refused));
    assert!(matches!(fleet.ask(relay, command(&raw)), Some(Answer::Failed(failure)) if *failure == refused));
    fleet.world.hang(raw.address());
    fleet.world.serve(relay.address());
    fleet.assert_nothing_left(relay);
}

#[test]
fn a_ping_is_the_time_of_a_transient_handshake() {
    let (mut fleet, relay, raw) = dialler();
    let ticket = fleet.tell(relay, Command::Ping { peer: id("raw") });
    fleet.world.settle();
    let talk = raw.visits().pop().unwrap();
    fleet.pass(1);
    fleet.send(&talk, &wire::challenge(NONCE));
    let hello = &talk.messages()[0].payload;
    assert_eq!((&hello["transient"], hello.get("listen_port")), (&json!(true), None));
    fleet.send(&talk, &wire::ack("raw", ACCEPTED));
    match fleet.answer(relay, ticket) {
        Some(Answer::Pong(time)) => {
            assert!(*time >= Duration::from_secs(1) && *time < Duration::from_secs(2))
        }
        other => panic!("{other:?}"),
    }
    fleet.finish(&talk);
    fleet.assert_nothing_left(relay);
}

#[test]
fn an_invites_key_that_works_is_stored_and_the_stored_one_is_tried_first() {
    let (mut fleet, relay, raw) = dialler();
    let invite = Key::from_bytes([9; 32]);
    let command = Command::Connect {
        address: raw.address(),
        peer: Some(id("raw")),
        invite: Some(invite.clone()),
        keep: false,
    };
    let ticket = fleet.tell(relay, command);
    fleet.world.settle();
    let first = raw.visits().pop().unwrap();
    fleet.send(&first, &wire::challenge(NONCE));
    assert_eq!(first.messages()[0].payload["proof"], wire::key("raw", "relay").prove(NONCE));
    fleet.send(&first, &wire::ack("raw", r#"{"status":"denied"}"#));
    let second = raw.visits().pop().unwrap();
    fleet.send(&second, &wire::challenge(NONCE));
    assert_eq!(second.messages()[0].payload["proof"], invite.prove(NONCE));
    fleet.send(&second, &wire::ack("raw", ACCEPTED));
    assert!(matches!(fleet.answer(relay, ticket), Some(Answer::Connected { paired: true, .. })));
    let stored = fleet.world.disk(relay.node).file("peers/raw.key").unwrap();
    assert_eq!(String::from_utf8_lossy(stored.as_bytes()).trim(), invite.to_hex());
    assert!(stored.is_secret());
}
