//! The listener's side of a handshake: what is let in, with what answer, and what is not.

use core::time::Duration;

use relay_core::text::PeerId;
use relay_sim::Splits;
use relay_tests::fleet::{Fleet, Order, Raw, Relay, Talk, id, wire};
use serde_json::json;

fn listener() -> (Fleet, Relay, Raw) {
    let mut fleet = Fleet::new(1);
    let relay = fleet.relay("relay", |spec| spec.knows("raw"));
    let raw = fleet.raw();
    (fleet, relay, raw)
}

/// Sends a handshake with this payload, in which `PROOF` stands for the right proof.
fn offer(payload: &str) -> (Fleet, Relay, Talk) {
    let (mut fleet, relay, raw) = listener();
    let talk = fleet.dial(&raw, relay.address());
    let proof = wire::key("raw", "relay").prove(&talk.nonce());
    let payload = payload.replace("PROOF", &proof);
    fleet.send(&talk, &wire::line("handshake", &payload));
    (fleet, relay, talk)
}

fn denied(payload: &str) {
    let (mut fleet, relay, talk) = offer(payload);
    assert_eq!(talk.ack(), json!({"status": "denied"}), "{payload}");
    assert!(talk.is_over(), "{payload}");
    assert_eq!(fleet.told(relay), ["refused raw WrongProof"], "{payload}");
    fleet.pass(60);
    fleet.assert_nothing_left(relay);
}

#[test]
fn a_challenge_is_the_first_frame_and_names_nobody() {
    let (mut fleet, relay, raw) = listener();
    let talk = fleet.dial(&raw, relay.address());
    let messages = talk.messages();
    let [challenge] = &messages[..] else { panic!("{messages:?}") };
    assert_eq!((challenge.msg_type.as_str(), challenge.from.as_str()), ("challenge", ""));
    let nonce = talk.nonce();
    assert!(
        nonce.len() == 64 && nonce.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')),
        "{nonce}"
    );
}

#[test]
fn a_nonce_is_never_given_twice() {
    let (mut fleet, relay, raw) = listener();
    let mut nonces: Vec<_> = (0..100).map(|_| fleet.dial(&raw, relay.address()).nonce()).collect();
    fleet.world.restart(relay.node);
    nonces.extend((0..100).map(|_| fleet.dial(&raw, relay.address()).nonce()));
    nonces.sort_unstable();
    nonces.dedup();
    assert_eq!(nonces.len(), 200);
}

#[test]
fn a_proof_by_the_shared_key_is_let_in() {
    let (fleet, relay, talk) = offer(r#"{"proof":"PROOF","proto":1,"features":["unknown-ok"]}"#);
    assert_eq!(talk.ack(), json!({"status": "ok", "proto": 1, "features": ["unknown-ok"]}));
    assert_eq!(talk.of_type("handshake_ack")[0].from, "relay");
    assert!(talk.is_open());
    assert_eq!(fleet.told(relay), ["up raw inbound"]);
}

#[test]
fn every_wrong_proof_is_denied_in_the_old_shape() {
    let (mut fleet, relay, raw) = listener();
    let talk = fleet.dial(&raw, relay.address());
    let proof = wire::key("raw", "relay").prove(&talk.nonce());
    let upper = format!(r#"{{"proof":"{}"}}"#, proof.to_uppercase());
    assert_ne!(proof, proof.to_uppercase(), "this seed's proof has a letter");
    fleet.send(&talk, &wire::line("handshake", &upper));
    assert_eq!(talk.ack(), json!({"status": "denied"}));
    for payload in [
        r#"{"proof":"PROOF "}"#,
        r#"{"proof":" PROOF"}"#,
        r#"{"proof":"PROOFa"}"#,
        r#"{"proof":"0000000000000000000000000000000000000000000000000000000000000000"}"#,
        r#"{"proof":""}"#,
        r#"{"proof":5}"#,
        r#"{"proof":null}"#,
        r#"{"proof":["PROOF"]}"#,
        r#"{"Proof":"PROOF"}"#,
        r#"{"proto":1}"#,
        "{}",
        "[]",
        "null",
        r#""PROOF""#,
    ] {
        denied(payload);
    }
}

#[test]
fn a_proof_of_the_nonces_raw_bytes_is_denied() {
    let (mut fleet, relay, raw) = listener();
    let talk = fleet.dial(&raw, relay.address());
    let mut bytes = [0; 32];
    assert!(relay_core::secret::decode_hex(&talk.nonce(), &mut bytes));
    let proof = relay_core::secret::encode_hex(&wire::key("raw", "relay").mac(&bytes));
    fleet.send(&talk, &wire::line("handshake", &format!(r#"{{"proof":"{proof}"}}"#)));
    assert_eq!(talk.status(), "denied");
}

#[test]
fn the_last_of_a_repeated_key_counts() {
    let (_, _, talk) = offer(r#"{"proof":"x","proof":"PROOF"}"#);
    assert_eq!(talk.status(), "ok");
}

#[test]
fn an_unknown_or_impossible_id_is_denied() {
    let long = "a".repeat(129);
    for claimed in ["other", "", "..", "a/b", "raw ", "RAW", PeerId::PENDING, "raw\\u0000", &long] {
        let (mut fleet, relay, raw) = listener();
        let talk = fleet.dial(&raw, relay.address());
        let payload = wire::hello("raw", "relay", &talk.nonce(), "");
        fleet.send(&talk, (wire::text("1", "handshake", claimed, &payload) + "\n").as_bytes());
        assert_eq!(talk.ack(), json!({"status": "denied"}), "{claimed:?}");
        assert!(talk.is_over(), "{claimed:?}");
        let told = fleet.told(relay);
        assert!(told.len() == 1 && told[0].ends_with("UnknownPeer"), "{claimed:?}: {told:?}");
    }
}

#[test]
fn an_id_of_128_characters_may_be_paired() {
    let long = "a".repeat(128);
    let mut fleet = Fleet::new(1);
    let relay = fleet.relay("relay", |spec| spec.knows(&"a".repeat(128)));
    let raw = fleet.raw();
    assert_eq!(fleet.join(&raw, relay, &long, "").status(), "ok");
}

#[test]
fn unknown_types_before_the_handshake_are_skipped() {
    let (mut fleet, relay, raw) = listener();
    let talk = fleet.dial(&raw, relay.address());
    for n in 0..50 {
        fleet.send(&talk, &wire::named(&format!("{n}"), "from_the_future", "{}"));
    }
    fleet.send(&talk, &wire::handshake("raw", "relay", &talk.nonce(), ""));
    assert_eq!(talk.status(), "ok");
    assert_eq!(fleet.told(relay), ["up raw inbound"]);
}

#[test]
fn a_known_type_in_place_of_the_handshake_is_denied_however_good_its_proof() {
    for msg_type in ["challenge", "handshake_ack", "heartbeat", "ack", "lease_list", "delegate_task"] {
        let (mut fleet, relay, raw) = listener();
        let talk = fleet.dial(&raw, relay.address());
        let payload = wire::hello("raw", "relay", &talk.nonce(), "");
        fleet.send(&talk, &wire::line(msg_type, &payload));
        assert_eq!(talk.ack(), json!({"status": "denied"}), "{msg_type}");
        assert!(talk.is_over());
        assert!(fleet.told(relay)[0].starts_with("refused raw Unexpected"), "{msg_type}");
    }
}

#[test]
fn a_second_handshake_on_one_connection_says_nothing() {
    let (mut fleet, relay, raw) = listener();
    let talk = fleet.join(&raw, relay, "raw", "");
    let again = wire::handshake("raw", "relay", &talk.nonce(), "");
    fleet.send(&talk, &again);
    assert!(talk.is_open());
    assert_eq!(talk.of_type("handshake_ack").len(), 1);
    assert_eq!(fleet.told(relay), ["up raw inbound"]);
}

#[test]
fn a_proof_is_good_for_one_nonce() {
    let (mut fleet, relay, raw) = listener();
    let one = fleet.dial(&raw, relay.address());
    let two = fleet.dial(&raw, relay.address());
    fleet.send(&two, &wire::handshake("raw", "relay", &one.nonce(), ""));
    assert_eq!(two.status(), "denied");
}

#[test]
fn proto_is_answered_with_the_lower_of_both_and_unreadable_is_absent() {
    let agreed =
        |proto: &str| offer(&format!(r#"{{"proof":"PROOF","proto":{proto},"features":["frame-bin"]}}"#)).2;
    for (proto, answered) in [("0", 0), ("1", 1), ("2", 1), ("18446744073709551615", 1)] {
        let ack = agreed(proto).ack();
        assert_eq!(ack, json!({"status": "ok", "proto": answered, "features": ["frame-bin"]}), "{proto}");
    }
    for proto in ["18446744073709551616", "-1", "1.0", "1e0", "\"1\"", "null", "true", "[1]", "{}"] {
        assert_eq!(agreed(proto).ack(), json!({"status": "ok"}), "{proto}");
    }
}

#[test]
fn a_peer_from_before_proto_1_gets_exactly_the_old_ack_and_lines() {
    let (_, _, talk) = offer(r#"{"proof":"PROOF"}"#);
    let text = String::from_utf8(talk.bytes()).unwrap();
    let ack = text.lines().nth(1).unwrap();
    assert!(ack.contains(r#""payload":{"status":"ok"}"#), "{ack}");
    assert!(talk.messages().iter().all(|sent| !sent.binary));
}

#[test]
fn a_relay_from_before_proto_1_agrees_nothing() {
    let mut fleet = Fleet::new(1);
    let relay = fleet.relay("relay", |spec| {
        spec.knows("raw");
        spec.settings.proto = false;
    });
    let raw = fleet.raw();
    let talk = fleet.join(&raw, relay, "raw", wire::ALL_FEATURES);
    assert_eq!(talk.ack(), json!({"status": "ok"}));
}

#[test]
fn proto_0_switches_the_framing_where_that_was_agreed() {
    let (mut fleet, _, talk) = offer(r#"{"proof":"PROOF","proto":0,"features":["frame-bin"]}"#);
    fleet.send(&talk, &wire::binary(&wire::text("1", "lease_list", "raw", r#"{"request_id":"r"}"#)));
    let result = talk.of_type("lease_result");
    assert!(result.len() == 1 && result[0].binary);
}

fn features(list: &str) -> Vec<String> {
    let (_, _, talk) = offer(&format!(r#"{{"proof":"PROOF","proto":1,"features":{list}}}"#));
    let list = talk.ack()["features"].as_array().cloned().expect("an ack with proto has features");
    list.iter().map(|name| name.as_str().unwrap_or_default().to_owned()).collect()
}

#[test]
fn the_features_that_both_have_are_agreed_in_order() {
    assert_eq!(features(r#"["unknown-ok","frame-bin","headroom"]"#), ["frame-bin", "headroom", "unknown-ok"]);
    assert_eq!(features(r#"["unknown-ok","teleport"]"#), ["unknown-ok"]);
}

#[test]
fn features_that_are_no_array_of_names_are_none() {
    for none in [r#""frame-bin""#, "null", "{}", "1", "[]", r#"[1,null,["frame-bin"]]"#] {
        assert_eq!(features(none), [""; 0], "{none}");
    }
    assert_eq!(features(r#"[1,"frame-bin",null]"#), ["frame-bin"]);
}

#[test]
fn names_of_features_match_exactly() {
    let long = "a".repeat(33);
    let list = json!(["Frame-Bin", "frame_bin", "frame-bin ", "", long, "frame-bin"]);
    assert_eq!(features(&list.to_string()), ["frame-bin"]);
}

#[test]
fn features_are_capped_at_64_behind_the_removal_of_duplicates() {
    let mut list = vec!["unknown-ok".to_owned(); 64];
    list.push("frame-bin".to_owned());
    assert_eq!(features(&json!(list).to_string()), ["frame-bin", "unknown-ok"]);

    let mut list: Vec<_> = (0..64).map(|n| format!("INVALID {n}")).collect();
    list.push("frame-bin".to_owned());
    assert_eq!(features(&json!(list).to_string()), ["frame-bin"]);

    let mut list: Vec<_> = (0..63).map(|n| format!("unknown-{n}")).collect();
    list.extend(["frame-bin".to_owned(), "headroom".to_owned()]);
    assert_eq!(features(&json!(list).to_string()), ["frame-bin"], "the 65th name is too many");
}

#[test]
fn features_without_proto_are_none() {
    let (_, _, talk) = offer(r#"{"proof":"PROOF","features":["frame-bin"]}"#);
    assert_eq!(talk.ack(), json!({"status": "ok"}));
}

#[test]
fn a_listen_port_makes_the_address_that_is_seen_the_first() {
    let (mut fleet, relay, raw) = listener();
    fleet.join(&raw, relay, "raw", r#""listen_port":7001"#);
    fleet.join(&raw, relay, "raw", r#""listen_port":7002"#);
    let peer = fleet.peer(relay, "raw").unwrap();
    let known: Vec<_> = peer.addresses.iter().map(|known| known.address).collect();
    assert_eq!(known, [raw.node().at(7002), raw.node().at(7001)]);
    fleet.join(&raw, relay, "raw", r#""listen_port":7001"#);
    let peer = fleet.peer(relay, "raw").unwrap();
    assert_eq!(peer.addresses[0].address, raw.node().at(7001));
    let meta = fleet.world.disk(relay.node).file("peers/raw.meta").unwrap();
    assert!(String::from_utf8_lossy(meta.as_bytes()).contains(":7001"));
}

#[test]
fn a_listen_port_is_an_integer_of_1_to_65535_or_absent() {
    for (port, kept) in [
        ("1", 1),
        ("65535", 1),
        ("0", 0),
        ("65536", 0),
        ("-1", 0),
        ("9847.0", 0),
        ("\"9847\"", 0),
        ("null", 0),
    ] {
        let (mut fleet, relay, raw) = listener();
        assert_eq!(fleet.join(&raw, relay, "raw", &format!(r#""listen_port":{port}"#)).status(), "ok");
        assert_eq!(fleet.peer(relay, "raw").unwrap().addresses.len(), kept, "{port}");
    }
}

#[test]
fn only_true_is_transient() {
    for (value, links) in [("true", 0), ("false", 1), ("1", 1), ("\"true\"", 1), ("null", 1)] {
        let (mut fleet, relay, raw) = listener();
        assert_eq!(fleet.join(&raw, relay, "raw", &format!(r#""transient":{value}"#)).status(), "ok");
        assert_eq!(fleet.gauge(relay, "links"), links, "{value}");
        assert_eq!(fleet.told(relay).len() as u64, links, "{value}");
    }
}

/// A handshake and two requests behind it, all at once.
fn in_one_segment(features: &str, request: impl Fn(&str) -> Vec<u8>) -> Talk {
    let (mut fleet, relay, raw) = listener();
    fleet.world.splits(Splits::Whole);
    let talk = fleet.dial(&raw, relay.address());
    let hello = wire::handshake("raw", "relay", &talk.nonce(), features);
    let all = [hello, request("one"), request("two")].concat();
    fleet.send(&talk, &all);
    let answered: Vec<_> =
        talk.of_type("lease_result").iter().map(|sent| sent.payload["request_id"].clone()).collect();
    assert_eq!(answered, ["one", "two"]);
    talk
}

#[test]
fn lines_behind_the_handshake_in_its_segment_are_answered() {
    let request = |name: &str| wire::named(name, "lease_list", &format!(r#"{{"request_id":"{name}"}}"#));
    let talk = in_one_segment("", request);
    assert!(talk.messages().iter().all(|sent| !sent.binary));
}

#[test]
fn binary_frames_behind_the_handshake_in_its_segment_are_answered() {
    let request = |name: &str| {
        wire::binary(&wire::text(name, "lease_list", "raw", &format!(r#"{{"request_id":"{name}"}}"#)))
    };
    let talk = in_one_segment(wire::ALL_FEATURES, request);
    assert!(talk.of_type("lease_result").iter().all(|sent| sent.binary));
}

#[test]
fn a_handshake_of_one_byte_a_segment_is_accepted() {
    let (mut fleet, relay, raw) = listener();
    fleet.world.splits(Splits::Bytes);
    let talk = fleet.join(&raw, relay, "raw", wire::ALL_FEATURES);
    assert_eq!(talk.status(), "ok");
}

#[test]
fn a_half_close_right_behind_the_handshake_is_acked_and_ends_the_link() {
    let (mut fleet, relay, raw) = listener();
    let talk = fleet.dial(&raw, relay.address());
    fleet.send_last(&talk, &wire::handshake("raw", "relay", &talk.nonce(), ""));
    assert_eq!(talk.status(), "ok");
    assert!(talk.closed().is_some());
    assert_eq!(fleet.told(relay), ["up raw inbound", "down raw PeerClosed"]);
    fleet.pass(30);
    fleet.assert_nothing_left(relay);
}

#[test]
fn a_handshake_that_the_end_cuts_before_its_lf_is_not_executed() {
    let (mut fleet, relay, raw) = listener();
    let talk = fleet.dial(&raw, relay.address());
    let mut hello = wire::handshake("raw", "relay", &talk.nonce(), "");
    assert_eq!(hello.pop(), Some(b'\n'));
    fleet.send_last(&talk, &hello);
    assert!(talk.is_over());
    assert_eq!(talk.of_type("handshake_ack").len(), 0);
    assert_eq!(fleet.told(relay), ["refused - Fault(Frame(Truncated))"]);
}

#[test]
fn what_is_no_protocol_of_ours_is_closed_without_an_ack() {
    for junk in [
        &b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..],
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n",
        b"not json\n",
        b"{\"half\":\n",
        b"\n",
        b"\r\n",
        b"   \n",
        b"\xef\xbb\xbf{}\n",
        b"\xff\xfe\n",
        b"{}\n",
        b"{}{}\n",
        b"\0\0\0\x03\0{}\n",
    ] {
        let (mut fleet, relay, raw) = listener();
        let talk = fleet.dial(&raw, relay.address());
        fleet.send(&talk, junk);
        let shown = junk.escape_ascii();
        assert!(talk.is_over(), "{shown}");
        assert_eq!(talk.messages().len(), 1, "{shown}: only the challenge");
        let told = fleet.told(relay);
        assert!(told.len() == 1 && told[0].starts_with("refused - Fault("), "{shown}: {told:?}");
        fleet.pass(60);
        fleet.assert_nothing_left(relay);
    }
}

#[test]
fn a_mebibyte_without_lf_waits_and_one_byte_more_is_closed() {
    let (mut fleet, relay, raw) = listener();
    let talk = fleet.dial(&raw, relay.address());
    fleet.send(&talk, &vec![b' '; 1 << 20]);
    assert!(talk.is_open());
    assert_eq!(fleet.gauge(relay, "unproven_bytes"), 1 << 20);
    fleet.send(&talk, b" ");
    assert!(talk.is_over());
    assert_eq!(fleet.told(relay), ["refused - Fault(Frame(LineTooLong))"]);
    assert_eq!(fleet.gauge(relay, "unproven_bytes"), 0);
}

#[test]
fn a_handshake_line_of_a_mebibyte_is_accepted() {
    let (mut fleet, relay, raw) = listener();
    let talk = fleet.dial(&raw, relay.address());
    let bare = wire::handshake("raw", "relay", &talk.nonce(), r#""padding":"""#).len() - 1;
    let padding = format!(r#""padding":"{}""#, "x".repeat((1 << 20) - bare));
    fleet.send(&talk, &wire::handshake("raw", "relay", &talk.nonce(), &padding));
    assert_eq!(talk.status(), "ok");
}

#[test]
fn the_version_is_shown_clipped_and_never_compared() {
    let (mut fleet, relay, raw) = listener();
    fleet.join(&raw, relay, "raw", &format!(r#""version":"\u001b[31m{}""#, "9".repeat(500)));
    let view = fleet.peer(relay, "raw").unwrap().link.unwrap();
    let version = view.version.unwrap();
    assert!(version.len() <= 64 && !version.contains('\u{1b}'), "{version:?}");
    assert_eq!(view.peer, id("raw"));
}

#[test]
fn a_peer_that_moves_at_every_handshake_keeps_one_write_under_way() {
    let (mut fleet, relay, raw) = listener();
    let slow = Duration::from_secs(2);
    fleet.world.act_time(slow..=slow);
    let talks: Vec<_> = (0..20).map(|_| fleet.dial(&raw, relay.address())).collect();
    for (port, (index, talk)) in (7001..).zip(talks.iter().enumerate()) {
        let extra = format!(r#""transient":true,"listen_port":{port}"#);
        let hello = wire::handshake("raw", "relay", &talk.nonce(), &extra);
        fleet.order_later(&raw, Order::Send(index, hello));
    }
    fleet.world.run_for(Duration::from_secs(1));
    assert_eq!((fleet.gauge(relay, "handshakes"), fleet.gauge(relay, "actions_under_way")), (20, 1));
    fleet.world.settle();
    let newest = fleet.peer(relay, "raw").expect("it is known").addresses[0].address;
    let meta = fleet.world.disk(relay.node).file("peers/raw.meta").expect("it is stored");
    let first = format!("{{\"addr\":\"{newest}\"");
    assert!(String::from_utf8_lossy(meta.as_bytes()).starts_with(&first), "{first}");
}
