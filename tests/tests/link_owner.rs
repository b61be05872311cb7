//! What a relay's owner does with its peers: add, reload, forget, drain; and what a relay reports of itself.

use core::time::Duration;

use relay_core::message::{Kind, RawValue};
use relay_core::peer::{Answer, Command, Failure, PeerRecord};
use relay_core::secret::Key;
use relay_sim::DiskFault;
use relay_tests::fleet::{Fleet, Order, Raw, Relay, address, id, read, wire};

const NONCE: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
const ACCEPTED: &str = r#"{"status":"ok","proto":1,"features":["unknown-ok"]}"#;

fn listener() -> (Fleet, Relay, Raw) {
    let mut fleet = Fleet::new(1);
    let relay = fleet.relay("relay", |spec| {
        spec.knows("raw");
        spec.knows("other");
    });
    let raw = fleet.raw();
    (fleet, relay, raw)
}

fn record(name: &str, key: Option<Key>, addresses: &[core::net::SocketAddr]) -> PeerRecord {
    PeerRecord { id: id(name), key, addresses: addresses.iter().copied().collect() }
}

fn empty() -> Box<RawValue> {
    RawValue::from_string("{}".to_owned()).expect("it is JSON")
}

#[test]
fn a_peer_that_is_added_is_let_in_at_once_and_stored_where_asked() {
    for store in [false, true] {
        let (mut fleet, relay, raw) = listener();
        assert_eq!(fleet.join(&raw, relay, "new", "").status(), "denied");
        let record = record("new", Some(wire::key("new", "relay")), &[raw.node().at(1)]);
        assert!(matches!(fleet.ask(relay, Command::Add { record, store }), Some(Answer::Done)));
        assert_eq!(fleet.join(&raw, relay, "new", "").status(), "ok");
        for file in ["peers/new.key", "peers/new.meta"] {
            assert_eq!(fleet.world.disk(relay.node).file(file).is_some(), store, "{file}");
        }
    }
}

#[test]
fn an_added_key_takes_the_place_of_the_old_one_and_an_added_address_goes_first() {
    let mut fleet = Fleet::new(1);
    let raw = fleet.raw();
    let relay = fleet.relay("relay", |spec| {
        spec.knows_at("raw", ["10.9.9.9:1".parse().unwrap()]);
        spec.settings.dial_known = false;
    });
    let fresh = Key::from_bytes([3; 32]);
    let record = record("raw", Some(fresh.clone()), &[raw.address()]);
    fleet.ask(relay, Command::Add { record, store: true });
    assert_eq!(fleet.join(&raw, relay, "raw", "").status(), "denied");
    let talk = fleet.dial(&raw, relay.address());
    let payload = format!(r#"{{"proof":"{}"}}"#, fresh.prove(&talk.nonce()));
    fleet.send(&talk, &wire::line("handshake", &payload));
    assert_eq!(talk.status(), "ok");
    let known: Vec<_> =
        fleet.peer(relay, "raw").unwrap().addresses.iter().map(|known| known.address).collect();
    assert_eq!(known, [raw.address(), "10.9.9.9:1".parse().unwrap()]);
}

#[test]
fn a_command_that_cannot_be_stored_says_so() {
    let (mut fleet, relay, _) = listener();
    fleet.world.disk_fault(relay.node, Some(DiskFault::Full));
    let record = record("new", Some(Key::from_bytes([1; 32])), &[]);
    let answer = fleet.ask(relay, Command::Add { record, store: true });
    assert!(matches!(answer, Some(Answer::Failed(Failure::NotStored(_)))), "{answer:?}");
}

#[test]
fn an_address_that_cannot_be_stored_is_told_and_hurts_nobody() {
    let (mut fleet, relay, raw) = listener();
    fleet.world.disk_fault(relay.node, Some(DiskFault::Full));
    let talk = fleet.join(&raw, relay, "raw", r#""listen_port":7000"#);
    assert!(talk.status() == "ok" && talk.is_open());
    assert_eq!(fleet.told(relay), ["up raw inbound", "not stored raw Full"]);
}

#[test]
fn a_reload_lets_new_peers_in_and_gone_ones_out_and_keeps_their_links() {
    let (mut fleet, relay, raw) = listener();
    let link = fleet.join(&raw, relay, "raw", "");
    let peers = vec![record("new", Some(wire::key("new", "relay")), &[])];
    fleet.ask(relay, Command::Reload { peers, pending: None });
    assert!(link.is_open());
    assert_eq!(fleet.join(&raw, relay, "new", "").status(), "ok");
    for gone in ["raw", "other"] {
        assert_eq!(fleet.join(&raw, relay, gone, "").status(), "denied");
    }
    let before = fleet.peer(relay, "raw").unwrap();
    assert!(!before.paired && before.link.is_some());
    fleet.send(&link, &wire::line("heartbeat", r#"{"sessions":[],"listen_addrs":["10.0.0.1:1"]}"#));
    let after = fleet.peer(relay, "raw").unwrap();
    assert!(after.report.is_none() && after.addresses.is_empty(), "what it beats is recorded no more");
    fleet.finish(&link);
    assert!(fleet.peer(relay, "raw").is_none());
}

#[test]
fn a_reload_of_19000_peers_is_quick() {
    let (mut fleet, relay, _) = listener();
    let peers = || {
        (0..19_000_u32).map(|n| record(&format!("peer-{n}"), Some(Key::from_bytes([1; 32])), &[])).collect()
    };
    for _ in 0..3 {
        // Quadratic work would take minutes here.
        fleet.ask(relay, Command::Reload { peers: peers(), pending: None });
    }
    assert_eq!(fleet.peers(relay).len(), 19_000);
}

#[test]
fn forgetting_closes_the_link_and_every_one_shot_and_removes_every_file() {
    let (mut fleet, relay, raw) = listener();
    let link = fleet.join(&raw, relay, "raw", r#""listen_port":7000"#);
    let one_shot = fleet.join(&raw, relay, "raw", r#""transient":true"#);
    let other = fleet.join(&raw, relay, "other", "");
    assert!(fleet.world.disk(relay.node).file("peers/raw.meta").is_some());
    assert!(matches!(fleet.ask(relay, Command::Forget { peer: id("raw") }), Some(Answer::Done)));
    assert!(link.is_over() && one_shot.is_over() && other.is_open());
    assert_eq!(fleet.told_of(relay, "down"), ["down raw Forgotten"]);
    assert!(fleet.peer(relay, "raw").is_none());
    let left: Vec<_> = fleet
        .world
        .disk(relay.node)
        .files()
        .map(|(path, _)| path)
        .filter(|path| path.contains("raw"))
        .collect();
    assert_eq!(left, [""; 0]);
    assert_eq!(fleet.join(&raw, relay, "raw", "").status(), "denied");
    fleet.pass(60);
    assert!(fleet.world.disk(relay.node).file("peers/raw.meta").is_none(), "nothing brings them back");
    let answer = fleet.ask(relay, Command::Forget { peer: id("raw") });
    assert!(matches!(answer, Some(Answer::Failed(Failure::UnknownPeer))));
}

#[test]
fn a_link_that_says_more_while_it_is_forgotten_brings_nothing_back() {
    let (mut fleet, relay, raw) = listener();
    let link = fleet.join(&raw, relay, "raw", "");
    fleet.tell(relay, Command::Forget { peer: id("raw") });
    let beat = wire::line("heartbeat", r#"{"sessions":[],"listen_addrs":["10.0.0.1:1"]}"#);
    fleet.order_later(&raw, Order::Send(link.index(), beat));
    fleet.pass(30);
    assert!(fleet.peer(relay, "raw").is_none());
    assert!(fleet.world.disk(relay.node).file("peers/raw.meta").is_none());
}

/// A relay that is forgotten its peer while it dials it for this command, up to this step of the handshake.
fn forgotten_while(command: impl Fn(&Raw) -> Option<Command>, acked_later: bool) {
    let mut fleet = Fleet::new(1);
    let raw = fleet.raw();
    let commanded = command(&raw);
    let relay = fleet.relay("relay", |spec| {
        spec.knows_at("raw", [raw.address(), address(9)]);
        spec.settings.dial_known = commanded.is_none();
    });
    let ticket = commanded.map(|command| fleet.tell(relay, command));
    fleet.pass(1);
    let talk = raw.visits().pop().expect("the relay dials");
    if acked_later {
        fleet.send(&talk, &wire::challenge(NONCE));
    }
    fleet.ask(relay, Command::Forget { peer: id("raw") });
    fleet.send(&talk, &wire::challenge(NONCE));
    fleet.send(&talk, &wire::ack("raw", ACCEPTED));
    fleet.pass(100);
    assert!(talk.is_over());
    assert!(acked_later || talk.bytes().is_empty(), "its key is not used any more");
    assert!(fleet.peer(relay, "raw").is_none());
    assert_eq!(fleet.world.disk(relay.node).files().count(), 0);
    if let Some(ticket) = ticket {
        assert!(matches!(fleet.answer(relay, ticket), Some(Answer::Failed(Failure::NotPaired))));
    }
    assert_eq!(fleet.told_of(relay, "up"), [""; 0]);
    fleet.assert_nothing_left(relay);
}

#[test]
fn forgetting_ends_every_dial_whatever_it_is_for() {
    for acked_later in [false, true] {
        forgotten_while(|_| None, acked_later);
        forgotten_while(|_| Some(Command::Ping { peer: id("raw") }), acked_later);
        let send = |_: &Raw| {
            let (peer, kind, payload) = (id("raw"), Kind::DelegateTask, empty());
            Some(Command::Send { peer, kind, payload, reply_within: None })
        };
        forgotten_while(send, acked_later);
        let connect = |raw: &Raw| {
            let (address, peer) = (raw.address(), Some(id("raw")));
            Some(Command::Connect { address, peer, invite: None, keep: true })
        };
        forgotten_while(connect, acked_later);
    }
}

#[test]
fn a_key_that_is_taken_away_while_it_is_dialled_links_nobody() {
    let mut fleet = Fleet::new(1);
    let raw = fleet.raw();
    let relay = fleet.relay("relay", |spec| spec.knows_at("raw", [raw.address()]));
    fleet.pass(1);
    let talk = raw.visits().pop().unwrap();
    fleet.send(&talk, &wire::challenge(NONCE));
    fleet.ask(relay, Command::Reload { peers: Vec::new(), pending: None });
    fleet.send(&talk, &wire::ack("raw", ACCEPTED));
    assert!(talk.is_over());
    assert_eq!(fleet.told_of(relay, "up"), [""; 0]);
}

#[test]
fn two_connects_at_once_are_both_answered_and_leave_one_link() {
    let mut fleet = Fleet::new(1);
    let a = fleet.relay("aaa", |spec| {
        spec.knows_at("bbb", [address(1)]);
        spec.settings.dial_known = false;
    });
    let b = fleet.relay("bbb", |spec| spec.knows("aaa"));
    let connect =
        || Command::Connect { address: b.address(), peer: Some(id("bbb")), invite: None, keep: false };
    let tickets = [fleet.tell(a, connect()), fleet.tell(a, connect())];
    fleet.pass(5);
    for ticket in tickets {
        assert!(matches!(fleet.answer(a, ticket), Some(Answer::Connected { .. })));
    }
    assert_eq!((fleet.gauge(a, "links"), fleet.gauge(b, "links")), (1, 1));
    assert_eq!(fleet.gauge(a, "dials"), 0);
    assert!(!fleet.peer(a, "bbb").unwrap().dialling);
}

#[test]
fn a_drain_ends_links_in_order_dials_at_once_and_takes_nothing_new() {
    let mut fleet = Fleet::new(1);
    let raw = fleet.raw();
    let relay = fleet.relay("relay", |spec| {
        spec.knows("raw");
        spec.knows_at("other", [raw.address()]);
    });
    fleet.pass(1);
    let dialled = raw.visits().pop().unwrap();
    let link = fleet.join(&raw, relay, "raw", "");
    let ping = fleet.tell(relay, Command::Ping { peer: id("other") });
    fleet.world.drain(relay.node, Duration::from_secs(5));
    let answers: Vec<_> = fleet.world.answers(relay.node).filter(|(_, ticket, _)| *ticket == ping).collect();
    assert!(matches!(answers[..], [(_, _, Ok(Answer::Failed(Failure::Stopping)))]), "{answers:?}");
    fleet.pass(1);
    assert!(link.is_over() && dialled.is_over());
    assert_eq!(fleet.told_of(relay, "down"), ["down raw Stopped"]);
    fleet.finish(&link);
    fleet.pass(5);
    assert!(!fleet.world.is_up(relay.node));
}

#[test]
fn what_was_asked_before_a_drain_is_answered() {
    let (mut fleet, relay, raw) = listener();
    let link = fleet.join(&raw, relay, "raw", "");
    fleet.order_later(&raw, Order::Send(link.index(), wire::line("lease_list", r#"{"request_id":"r"}"#)));
    fleet.world.run_until(|world| world.gauge(relay.node, "frames") == Some(2));
    fleet.world.drain(relay.node, Duration::from_secs(5));
    fleet.pass(6);
    assert_eq!(link.of_type("lease_result").len(), 1);
    assert!(!fleet.world.is_up(relay.node));
}

#[test]
fn a_drain_during_every_step_ends_in_time() {
    for millis in 0..40 {
        let mut fleet = Fleet::new(1);
        let a = fleet.relay("aaa", |spec| spec.knows_at("bbb", [address(1)]));
        let b = fleet.relay("bbb", |spec| {
            spec.knows_at("aaa", [address(0)]);
            spec.pending = Some(Key::from_bytes([5; 32]));
        });
        fleet.tell(a, Command::Ping { peer: id("bbb") });
        fleet.world.run_for(Duration::from_micros(500 * millis));
        fleet.world.drain(a.node, Duration::from_secs(30));
        fleet.pass(12);
        assert!(!fleet.world.is_up(a.node), "after {millis} halves of a millisecond");
        fleet.pass(60);
        assert_eq!(fleet.gauge(b, "links"), 0);
    }
}

#[test]
fn a_restart_reads_what_was_stored() {
    let (mut fleet, relay, raw) = listener();
    fleet.join(&raw, relay, "raw", r#""listen_port":7000"#);
    fleet.world.crash(relay.node);
    fleet.world.restart(relay.node);
    let peer = fleet.peer(relay, "raw").unwrap();
    assert_eq!(peer.addresses[0].address, raw.node().at(7000));
    let (peers, pending) = read(fleet.world.disk(relay.node));
    assert_eq!((peers.len(), pending), (2, None));
}

#[test]
fn no_secret_is_in_what_can_be_printed() {
    let invite = Key::from_bytes([0x5a; 32]);
    let mut fleet = Fleet::new(1);
    let raw = fleet.raw();
    let relay = fleet.relay("relay", |spec| {
        spec.knows_at("raw", [raw.address()]);
        spec.pending = Some(invite.clone());
    });
    let mut secrets = vec![invite.to_hex(), wire::key("raw", "relay").to_hex()];
    let commands = |invite: &Key| {
        let record = record("new", Some(invite.clone()), &[]);
        format!(
            "{:?} {:?} {:?}",
            Command::Add { record: record.clone(), store: true },
            Command::Reload { peers: vec![record], pending: Some(invite.clone()) },
            Command::Connect { address: address(1), peer: None, invite: Some(invite.clone()), keep: false },
        )
    };
    let mut printed = commands(&invite);
    fleet.world.keep_trace(0..u64::MAX);
    fleet.pass(1);
    let visit = raw.visits().pop().unwrap();
    fleet.send(&visit, &wire::challenge(NONCE));
    secrets.push(visit.messages()[0].payload["proof"].as_str().unwrap().to_owned());
    fleet.send(&visit, &wire::ack("other", ACCEPTED));
    for (name, key) in [("raw", wire::key("raw", "relay")), ("joiner", invite.clone()), ("raw", invite)] {
        let talk = fleet.dial(&raw, relay.address());
        let proof = key.prove(&talk.nonce());
        let payload = format!(r#"{{"proof":"{proof}"}}"#);
        fleet.send(&talk, (wire::text("1", "handshake", name, &payload) + "\n").as_bytes());
        secrets.push(proof);
    }
    for (_, event) in fleet.events(relay) {
        printed += &format!("{event:?}\n");
    }
    for (_, _, answer) in fleet.world.answers(relay.node) {
        printed += &format!("{answer:?}\n");
    }
    printed += &format!("{:?}", fleet.peers(relay));
    // Of the trace, all but the bytes of the wire itself.
    for line in
        fleet.world.trace().iter().filter(|line| !line.contains(" read #") && !line.contains(" write #"))
    {
        printed += line;
    }
    assert!(fleet.told(relay).len() >= 4, "{:?}", fleet.told(relay));
    for secret in secrets {
        assert!(!printed.contains(&secret), "a secret is printed");
    }
}
