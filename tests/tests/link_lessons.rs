//! Faults that a relay of this protocol once had, each kept from coming back. The number is the version that mended it.

use core::time::Duration;

use relay_core::message::{Kind, RawValue};
use relay_core::peer::invite::{Invite, mint_code, mint_link};
use relay_core::peer::pairing::PairingCode;
use relay_core::peer::{Answer, Command, Direction, Event, Failure, Report};
use relay_core::secret::Key;
use relay_sim::Splits;
use relay_tests::fleet::{Fleet, Raw, Relay, Spec, address, id, wire};

const NONCE: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
const ACCEPTED: &str = r#"{"status":"ok","proto":1,"features":["unknown-ok"]}"#;

fn raw_value(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).expect("the test writes JSON")
}

fn send(peer: &str) -> Command {
    Command::Send { peer: id(peer), kind: Kind::DelegateTask, payload: raw_value("{}"), reply_within: None }
}

fn listener() -> (Fleet, Relay, Raw) {
    let mut fleet = Fleet::new(1);
    let relay = fleet.relay("relay", |spec| spec.knows("raw"));
    let raw = fleet.raw();
    (fleet, relay, raw)
}

/// Two relays that know each other, `aaa` and `bbb`.
fn pair(specify: impl Fn(&mut Spec)) -> (Fleet, Relay, Relay) {
    let mut fleet = Fleet::new(1);
    let a = fleet.relay("aaa", |spec| {
        spec.knows_at("bbb", [address(1)]);
        specify(spec);
    });
    let b = fleet.relay("bbb", |spec| {
        spec.knows_at("aaa", [address(0)]);
        specify(spec);
    });
    (fleet, a, b)
}

// 0.61
#[test]
fn a_send_that_sent_nothing_says_so() {
    let (mut fleet, a, b) = pair(|_| ());
    fleet.pass(5);
    let ticket = fleet.tell(a, send("bbb"));
    fleet.pass(5);
    assert!(matches!(fleet.answer(a, ticket), Some(Answer::Sent { taken: true })));
    assert_eq!(fleet.told_of(b, "message"), ["message aaa delegate_task one-shot"]);
    fleet.world.kill(b.node);
    let ticket = fleet.tell(a, send("bbb"));
    fleet.pass(20);
    assert!(matches!(fleet.answer(a, ticket), Some(Answer::Failed(Failure::Connection(_)))));
}

// 0.65
#[test]
fn proofs_are_compared_whole_whatever_they_share() {
    let key = Key::from_bytes([1; 32]);
    let proof = key.prove(NONCE);
    for at in 0..proof.len() {
        let mut wrong = proof.clone().into_bytes();
        wrong[at] = if wrong[at] == b'0' { b'1' } else { b'0' };
        assert!(!key.verify(NONCE, core::str::from_utf8(&wrong).unwrap()));
        assert!(!key.verify(NONCE, &proof[..at]));
    }
    assert!(key.verify(NONCE, &proof));
}

// 0.65
#[test]
fn beats_carry_the_sessions_of_this_relay() {
    let (mut fleet, a, b) = pair(|spec| spec.settings.heartbeat = Duration::from_secs(5));
    let report = Report { sessions: Some(raw_value(r#"[{"session_id":"mine"}]"#)), ..Report::default() };
    fleet.ask(a, Command::Report(report));
    fleet.pass(12);
    let (_, heard) = fleet.peer(b, "aaa").unwrap().report.unwrap();
    assert_eq!(heard.sessions.unwrap().get(), r#"[{"session_id":"mine"}]"#);
    let (_, heard) = fleet.peer(a, "bbb").unwrap().report.unwrap();
    assert!(heard.sessions.is_none(), "and nobody else's");
}

// 0.66
#[test]
fn every_form_of_an_invite_gives_the_same_key() {
    let code = PairingCode::from_bytes([0x10, 0x32, 0x54, 0x76, 0x98, 0xba, 0xdc, 0xfe]);
    let at = "10.1.2.3:9847".parse().unwrap();
    let link = mint_link(&id("host"), at, &code).unwrap();
    let short = mint_code(at, &code).unwrap();
    for text in [link.as_str(), short.as_str()] {
        let invite = Invite::parse(text).unwrap();
        assert_eq!((invite.code.key(), invite.addr), (code.key(), at), "{text}");
    }
    assert_eq!(PairingCode::parse(&code.shown()).unwrap().key(), code.key());
}

// 0.66
#[test]
fn a_code_of_letters_alone_is_no_phrase() {
    let mut letters = (1..4000_u64).filter_map(|n| {
        let drawn = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let code = PairingCode::from_bytes(drawn.to_be_bytes());
        let at = core::net::SocketAddr::from(((drawn as u32).to_le_bytes(), 9847));
        let text = mint_code(at, &code)?;
        text.chars().all(|c| c == '-' || c.is_ascii_alphabetic()).then(|| (text.to_string(), at, code.key()))
    });
    let (text, at, key) = letters.next().expect("one code in 78 has letters alone");
    let invite = Invite::parse(&text).unwrap();
    assert_eq!((invite.addr, invite.code.key()), (at, key));
}

// 0.68
#[test]
fn a_link_that_is_replaced_is_closed_and_not_only_forgotten() {
    let (mut fleet, relay, raw) = listener();
    let old = fleet.join(&raw, relay, "raw", "");
    fleet.join(&raw, relay, "raw", "");
    assert!(old.is_over(), "its end is seen at once");
    fleet.send(&old, &wire::line("delegate_task", "{}"));
    assert_eq!(fleet.told_of(relay, "message"), [""; 0]);
    fleet.finish(&old);
    assert_eq!(fleet.gauge(relay, "connections"), 1);
}

// 0.72
#[test]
fn two_relays_that_only_serve_link_with_each_other() {
    for seed in 0..40 {
        let mut fleet = Fleet::new(seed);
        let a = fleet.relay("aaa", |spec| spec.knows_at("bbb", [address(1)]));
        let b = fleet.relay("bbb", |spec| spec.knows_at("aaa", [address(0)]));
        fleet.pass(10);
        assert_eq!((fleet.gauge(a, "links"), fleet.gauge(b, "links")), (1, 1), "seed {seed}");
        let link = |fleet: &mut Fleet, relay, peer| fleet.peer(relay, peer).unwrap().link.unwrap().direction;
        let directions = (link(&mut fleet, a, "bbb"), link(&mut fleet, b, "aaa"));
        assert_ne!(directions.0, directions.1, "seed {seed}: both have the same one");
    }
}

// 0.73
#[test]
fn both_ends_learn_where_the_other_is_and_keep_more_than_one_address() {
    let mut fleet = Fleet::new(1);
    let a = fleet.relay("aaa", |spec| spec.knows("bbb"));
    let b = fleet.relay("bbb", |spec| spec.knows_at("aaa", ["10.9.9.9:1".parse().unwrap(), address(0)]));
    fleet.pass(30);
    let known = |fleet: &mut Fleet, relay, peer| -> Vec<_> {
        fleet.peer(relay, peer).unwrap().addresses.iter().map(|known| known.address).collect()
    };
    assert_eq!(known(&mut fleet, a, "bbb"), [b.address()], "the accepter from the port that it was told");
    assert_eq!(known(&mut fleet, b, "aaa"), [a.address(), "10.9.9.9:1".parse().unwrap()]);
}

// 0.74
#[test]
fn a_one_shot_is_no_rival_of_the_link_and_its_message_is_read() {
    let (mut fleet, a, b) = pair(|_| ());
    fleet.pass(15);
    let before = (fleet.told(a).len(), fleet.told(b).len());
    for relay in [a, b] {
        let peer = if relay == a { "bbb" } else { "aaa" };
        let ticket = fleet.tell(relay, send(peer));
        fleet.pass(3);
        assert!(matches!(fleet.answer(relay, ticket), Some(Answer::Sent { taken: true })));
    }
    assert_eq!((fleet.told(a).len(), fleet.told(b).len()), (before.0 + 1, before.1 + 1), "a message each");
    assert_eq!((fleet.gauge(a, "links"), fleet.gauge(b, "links")), (1, 1));
}

// 0.74
#[test]
fn that_a_write_succeeded_is_no_delivery() {
    let mut fleet = Fleet::new(1);
    let raw = fleet.raw();
    let relay = fleet.relay("relay", |spec| {
        spec.knows_at("raw", [raw.address()]);
        spec.settings.dial_known = false;
    });
    let ticket = fleet.tell(relay, send("raw"));
    fleet.world.settle();
    let talk = raw.visits().pop().unwrap();
    fleet.send(&talk, &wire::challenge(NONCE));
    fleet.send(&talk, &wire::ack("raw", ACCEPTED));
    assert_eq!(talk.of_type("delegate_task").len(), 1);
    fleet.reset(&talk);
    assert!(matches!(fleet.answer(relay, ticket), Some(Answer::Failed(_))));
}

// 0.74
#[test]
fn a_one_shot_tries_every_address() {
    let mut fleet = Fleet::new(1);
    let (dead, live) = (fleet.raw(), fleet.raw());
    fleet.world.refuse(dead.address());
    let relay = fleet.relay("relay", |spec| {
        spec.knows_at("raw", [dead.address(), live.address()]);
        spec.settings.dial_known = false;
    });
    fleet.tell(relay, send("raw"));
    fleet.world.settle();
    assert_eq!(live.visits().len(), 1);
}

// 0.79
#[test]
fn a_one_shot_can_be_answered() {
    let (mut fleet, relay, raw) = listener();
    let talk = fleet.join(&raw, relay, "raw", r#""transient":true"#);
    fleet.send_last(&talk, &wire::line("lease_list", r#"{"request_id":"r"}"#));
    assert_eq!(talk.of_type("lease_result")[0].payload["request_id"], "r");
}

// 0.80
#[test]
fn a_peer_that_was_down_at_start_is_dialled_again() {
    let mut fleet = Fleet::new(1);
    let raw = fleet.raw();
    fleet.world.refuse(raw.address());
    let relay = fleet.relay("relay", |spec| spec.knows_at("raw", [raw.address()]));
    fleet.pass(600);
    fleet.world.serve(raw.address());
    fleet.pass(61);
    assert_eq!(raw.visits().len(), 1);
    assert!(fleet.told_of(relay, "dial failed").len() > 8);
}

// 0.80
#[test]
fn a_paired_peer_can_take_a_fresh_invite_of_its_host() {
    // The joiner tries the key that it has first, so that the invite is not needed where the pairing stands.
    let mut fleet = Fleet::new(1);
    let invite = Key::from_bytes([5; 32]);
    let host = fleet.relay("host", |spec| {
        spec.knows("joiner");
        spec.pending = Some(invite.clone());
    });
    let joiner = fleet.relay("joiner", |spec| spec.knows("host"));
    let connect = Command::Connect {
        address: host.address(),
        peer: Some(id("host")),
        invite: Some(invite),
        keep: true,
    };
    let ticket = fleet.tell(joiner, connect);
    fleet.pass(5);
    assert!(matches!(fleet.answer(joiner, ticket), Some(Answer::Connected { paired: false, .. })));
}

// 0.80
#[test]
fn an_invite_pairs_two_relays_and_they_find_each_other_again() {
    let mut fleet = Fleet::new(1);
    let invite = Key::from_bytes([5; 32]);
    let host = fleet.relay("host", |spec| spec.pending = Some(invite.clone()));
    let joiner = fleet.relay("joiner", |_| ());
    let connect = Command::Connect { address: host.address(), peer: None, invite: Some(invite), keep: true };
    let ticket = fleet.tell(joiner, connect);
    fleet.pass(5);
    assert!(matches!(fleet.answer(joiner, ticket), Some(Answer::Connected { paired: true, .. })));
    for node in [host.node, joiner.node] {
        fleet.pass(20);
        fleet.world.crash(node);
        fleet.world.restart(node);
        fleet.pass(70);
        assert_eq!((fleet.gauge(host, "links"), fleet.gauge(joiner, "links")), (1, 1));
    }
}

// 0.90
#[test]
fn an_unknown_type_leaves_the_link_standing() {
    let (mut fleet, relay, raw) = listener();
    let talk = fleet.join(&raw, relay, "raw", "");
    fleet.send(&talk, &wire::line("from_the_future", "{}"));
    assert!(talk.is_open());
    assert_eq!(fleet.told_of(relay, "unknown"), ["unknown raw from_the_future"]);
}

// 0.90
#[test]
fn a_reader_that_buffers_loses_nothing_behind_the_ack() {
    let mut fleet = Fleet::new(1);
    fleet.world.splits(Splits::Whole);
    let raw = fleet.raw();
    let relay = fleet.relay("relay", |spec| spec.knows_at("raw", [raw.address()]));
    fleet.pass(1);
    let talk = raw.visits().pop().unwrap();
    fleet.send(&talk, &wire::challenge(NONCE));
    let ack = wire::ack("raw", r#"{"status":"ok","proto":1,"features":["frame-bin"]}"#);
    let task = wire::binary(&wire::text("1", "delegate_task", "raw", "{}"));
    fleet.send(&talk, &[ack, task].concat());
    assert_eq!(fleet.told_of(relay, "message"), ["message raw delegate_task"]);
}

// 0.90
#[test]
fn ids_of_messages_differ_across_relays_restarts_and_moments() {
    let (mut fleet, relay, raw) = listener();
    let mut ids = Vec::new();
    for _ in 0..3 {
        let talks: Vec<_> = (0..5).map(|_| fleet.join(&raw, relay, "raw", "")).collect();
        for talk in talks {
            ids.extend(talk.messages().into_iter().map(|sent| sent.id));
        }
        fleet.world.restart(relay.node);
    }
    let many = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), many);
}

// 0.90.1
#[test]
fn a_message_that_was_sent_again_is_not_done_twice() {
    let (mut fleet, relay, raw) = listener();
    for _ in 0..3 {
        let talk = fleet.join(&raw, relay, "raw", r#""transient":true"#);
        fleet.send_last(&talk, &wire::named("same", "delegate_task", "{}"));
    }
    assert_eq!(fleet.told_of(relay, "message"), ["message raw delegate_task one-shot"]);
}

// 0.90.1
#[test]
fn two_hundred_sends_leave_no_connection_at_either_end() {
    let (mut fleet, a, b) = pair(|_| ());
    fleet.pass(15);
    for _ in 0..200 {
        let ticket = fleet.tell(a, send("bbb"));
        fleet.pass(1);
        assert!(matches!(fleet.answer(a, ticket), Some(Answer::Sent { taken: true })));
    }
    fleet.pass(15);
    assert_eq!(fleet.told_of(b, "message").len(), 200);
    for relay in [a, b] {
        assert_eq!((fleet.gauge(relay, "connections"), fleet.gauge(relay, "one_shots")), (1, 0));
        assert_eq!((fleet.gauge(relay, "dials"), fleet.gauge(relay, "links")), (0, 1));
    }
}

// 0.90.2
#[test]
fn a_peer_that_refuses_is_asked_less_and_less_often() {
    let mut fleet = Fleet::new(1);
    let (a, b) = (address(0), address(1));
    let relay = fleet.relay("aaa", |spec| spec.knows_at("bbb", [b]));
    // The other end has another key for this one.
    let other = fleet.relay("bbb", |spec| {
        spec.knows_by("aaa", Key::from_bytes([1; 32]));
        spec.settings.dial_known = false;
    });
    assert_eq!((relay.address(), other.address()), (a, b));
    fleet.pass(600);
    let refused = fleet.told_of(other, "refused aaa WrongProof").len();
    assert!((8..=20).contains(&refused), "{refused} in 10 minutes");
    assert_eq!(fleet.told_of(other, "refused - LockedOut"), [""; 0], "and never locked out");
}

// 0.92.3
#[test]
fn a_live_link_brings_no_forgotten_peer_back() {
    let (mut fleet, a, b) = pair(|spec| spec.settings.heartbeat = Duration::from_secs(1));
    fleet.pass(15);
    fleet.ask(a, Command::Forget { peer: id("bbb") });
    fleet.pass(200);
    assert!(fleet.peer(a, "bbb").is_none());
    assert_eq!(fleet.world.disk(a.node).files().count(), 0);
    assert_eq!(fleet.gauge(b, "links"), 0);
    assert!(fleet.told_of(a, "refused bbb UnknownPeer").len() > 1, "it is dialled, and refuses");
}

// Still there in 0.92.4: a retry is killed by the list of ids.
#[test]
fn a_retry_is_answered_and_carries_an_id_of_its_own() {
    let (mut fleet, a, b) = pair(|_| ());
    fleet.pass(15);
    let list = || Command::Send {
        peer: id("bbb"),
        kind: Kind::LeaseList,
        payload: raw_value(r#"{"request_id":"r"}"#),
        reply_within: Some(Duration::from_secs(5)),
    };
    for _ in 0..3 {
        let ticket = fleet.tell(a, list());
        fleet.pass(2);
        assert!(matches!(fleet.answer(a, ticket), Some(Answer::Replied(_))));
    }
    assert_eq!(fleet.gauge(b, "repeated_messages"), 0);
}

// Still there in 0.92.4: a link whose beats were missed is written off and left open.
#[test]
fn no_zombie_is_left_when_beats_stop() {
    let (mut fleet, relay, raw) = listener();
    let talk = fleet.join(&raw, relay, "raw", "");
    fleet.pass(91);
    assert!(talk.is_over(), "the peer sees that it is over");
    fleet.send(&talk, &wire::line("delegate_task", "{}"));
    assert_eq!(fleet.told_of(relay, "message"), [""; 0]);
}

// Still there in 0.92.4: a line that pauses for 30 s is thrown away in the middle.
#[test]
fn a_line_that_pauses_is_read_whole() {
    let (mut fleet, relay, raw) = listener();
    let talk = fleet.join(&raw, relay, "raw", "");
    fleet.pass(55);
    let line = wire::line("delegate_task", "{}");
    fleet.send(&talk, &line[..40]);
    fleet.pass(29);
    fleet.send(&talk, &line[40..]);
    assert_eq!(fleet.told_of(relay, "message"), ["message raw delegate_task"]);
}

// Still there in 0.92.4: a port that a code cannot say.
#[test]
fn a_code_is_minted_only_where_it_leads_back() {
    let code = PairingCode::from_bytes([7; 8]);
    for port in [1, 9846, 9847, 9848, 9974, 9975, 9976, 10102, 10103, 65535] {
        let at = core::net::SocketAddr::from(([10, 1, 2, 3], port));
        if let Some(text) = mint_code(at, &code) {
            assert_eq!(Invite::parse(&text).unwrap().addr, at);
        }
        assert_eq!(mint_code(at, &code).is_some(), (9847..=10102).contains(&port) && port != 9975, "{port}");
    }
    assert!(mint_code("[::1]:9847".parse().unwrap(), &code).is_none());
}

// Still there in 0.92.4: only the lower end ever dialled a lost link.
#[test]
fn whichever_end_dialled_a_lost_link_comes_back_from_either() {
    for dead in [0, 1] {
        let (mut fleet, a, b) = pair(|_| ());
        fleet.pass(15);
        // Dials one way fail for good; the other end makes up for it.
        fleet.world.refuse([a, b][dead].address());
        let link = fleet.world.links(a.node, b.node)[0];
        fleet.world.reset(link);
        fleet.pass(90);
        assert_eq!(
            (fleet.gauge(a, "links"), fleet.gauge(b, "links")),
            (1, 1),
            "dead {dead}: {:?}",
            fleet.told(a)
        );
        let direction = fleet.peer(a, "bbb").unwrap().link.unwrap().direction;
        assert_eq!(direction, [Direction::Outbound, Direction::Inbound][dead]);
        assert!(fleet.events(a).iter().any(|(_, event)| matches!(event, Event::LinkDown { .. })));
    }
}
