//! Invites at the host: used once, stored before the ack, whatever crashes, fails or races.

use core::time::Duration;

use relay_core::peer::Command;
use relay_core::secret::Key;
use relay_sim::DiskFault;
use relay_tests::fleet::{Fleet, Order, Raw, Relay, Talk, read, wire};

fn invite() -> Key {
    Key::from_bytes([5; 32])
}

fn host() -> (Fleet, Relay, Raw) {
    let mut fleet = Fleet::new(1);
    let relay = fleet.relay("relay", |spec| {
        spec.knows("paired");
        spec.pending = Some(invite());
    });
    let raw = fleet.raw();
    (fleet, relay, raw)
}

fn hello_by(key: &Key, id: &str, nonce: &str, extra: &str) -> Vec<u8> {
    let payload = format!(r#"{{"proof":"{}"{extra}}}"#, key.prove(nonce));
    (wire::text("hello", "handshake", id, &payload) + "\n").into_bytes()
}

/// A handshake as `id` by the invite's key.
fn redeem(fleet: &mut Fleet, relay: Relay, raw: &Raw, id: &str) -> Talk {
    let talk = fleet.dial(raw, relay.address());
    fleet.send(&talk, &hello_by(&invite(), id, &talk.nonce(), ""));
    talk
}

fn key_file(fleet: &Fleet, relay: Relay, id: &str) -> Option<String> {
    let file = fleet.world.disk(relay.node).file(&format!("peers/{id}.key"))?;
    assert!(file.is_secret());
    Some(String::from_utf8_lossy(file.as_bytes()).trim().to_owned())
}

#[test]
fn an_invite_lets_one_unknown_peer_in_and_is_used_up() {
    let (mut fleet, relay, raw) = host();
    let first = redeem(&mut fleet, relay, &raw, "first");
    assert_eq!(first.status(), "ok");
    assert_eq!(fleet.told(relay), ["paired first", "up first inbound"]);
    assert_eq!(key_file(&fleet, relay, "first"), Some(invite().to_hex()));
    assert_eq!(key_file(&fleet, relay, "_pending"), None);
    assert_eq!(redeem(&mut fleet, relay, &raw, "second").status(), "denied");
    assert_eq!(redeem(&mut fleet, relay, &raw, "first").status(), "ok", "its key is its own now");
}

#[test]
fn it_is_used_up_across_a_restart_too() {
    let (mut fleet, relay, raw) = host();
    redeem(&mut fleet, relay, &raw, "first");
    fleet.world.crash(relay.node);
    fleet.world.restart(relay.node);
    assert_eq!(redeem(&mut fleet, relay, &raw, "second").status(), "denied");
    assert_eq!(redeem(&mut fleet, relay, &raw, "first").status(), "ok");
}

#[test]
fn a_joiner_that_comes_again_while_its_key_is_stored_is_let_in() {
    let (mut fleet, relay, raw) = host();
    let slow = Duration::from_secs(2);
    fleet.world.act_time(slow..=slow);
    let talks: Vec<_> = (0..3).map(|_| fleet.dial(&raw, relay.address())).collect();
    for (index, (talk, id)) in talks.iter().zip(["joiner", "joiner", "other"]).enumerate() {
        let hello = hello_by(&invite(), id, &talk.nonce(), r#","transient":true"#);
        fleet.order_later(&raw, Order::Send(index, hello));
        fleet.world.run_for(Duration::from_millis(100));
    }
    assert_eq!(talks[2].status(), "denied", "nobody else is");
    fleet.world.settle();
    assert_eq!((talks[0].status(), talks[1].status()), ("ok".to_owned(), "ok".to_owned()));
    assert_eq!(fleet.told_of(relay, "paired"), ["paired joiner"]);
}

#[test]
fn a_paired_peer_is_known_by_its_own_key_alone() {
    let (mut fleet, relay, raw) = host();
    assert_eq!(redeem(&mut fleet, relay, &raw, "paired").status(), "denied");
    assert_eq!(redeem(&mut fleet, relay, &raw, "new").status(), "ok", "the invite is valid still");
}

#[test]
fn a_wrong_key_uses_nothing_up() {
    let (mut fleet, relay, raw) = host();
    let talk = fleet.dial(&raw, relay.address());
    fleet.send(&talk, &hello_by(&Key::from_bytes([6; 32]), "new", &talk.nonce(), ""));
    assert_eq!(talk.status(), "denied");
    for impossible in ["_pending", "a/b", ""] {
        assert_eq!(redeem(&mut fleet, relay, &raw, impossible).status(), "denied", "{impossible:?}");
    }
    assert_eq!(redeem(&mut fleet, relay, &raw, "new").status(), "ok");
}

#[test]
fn an_invite_is_redeemed_by_a_one_shot_and_by_an_old_peer_too() {
    let (mut fleet, relay, raw) = host();
    let talk = fleet.dial(&raw, relay.address());
    fleet.send(&talk, &hello_by(&invite(), "new", &talk.nonce(), r#","transient":true"#));
    assert_eq!(talk.ack(), serde_json::json!({"status": "ok"}));
    assert_eq!(fleet.told(relay), ["paired new"]);
}

#[test]
fn the_ack_waits_until_the_key_is_stored_and_then_answers_what_came_behind() {
    let (mut fleet, relay, raw) = host();
    fleet.world.act_time(Duration::from_secs(3)..=Duration::from_secs(3));
    let talk = fleet.dial(&raw, relay.address());
    let hello = hello_by(&invite(), "new", &talk.nonce(), "");
    let request = wire::line("lease_list", r#"{"request_id":"r"}"#);
    fleet.order_later(&raw, Order::Send(talk.index(), [hello, request].concat()));
    fleet.pass(2);
    assert_eq!(talk.status(), "");
    fleet.pass(2);
    assert_eq!(talk.status(), "ok");
    assert_eq!(talk.of_type("lease_result").len(), 1);
}

#[test]
fn a_half_close_while_the_key_is_stored_is_seen_behind_the_ack() {
    let (mut fleet, relay, raw) = host();
    let talk = fleet.dial(&raw, relay.address());
    fleet.send_last(&talk, &hello_by(&invite(), "new", &talk.nonce(), ""));
    assert_eq!(talk.status(), "ok");
    assert_eq!(fleet.told(relay), ["paired new", "up new inbound", "down new PeerClosed"]);
}

#[test]
fn a_crash_at_any_step_leaves_one_use() {
    for millis in 0..24 {
        let (mut fleet, relay, raw) = host();
        let step = Duration::from_millis(2);
        fleet.world.act_time(Duration::from_millis(4)..=Duration::from_millis(4));
        let talk = fleet.dial(&raw, relay.address());
        let hello = hello_by(&invite(), "first", &talk.nonce(), "");
        fleet.order_later(&raw, Order::Send(talk.index(), hello));
        fleet.world.run_for(step * millis / 2);
        fleet.world.crash(relay.node);
        fleet.world.restart(relay.node);
        fleet.pass(1);
        let acked = talk.status() == "ok";
        let paired = key_file(&fleet, relay, "first").is_some();
        assert!(paired || !acked, "after {millis}: nobody is acked and then forgotten");
        let second = redeem(&mut fleet, relay, &raw, "second").status();
        let first = redeem(&mut fleet, relay, &raw, "first").status();
        assert_eq!((first == "ok", second == "ok"), (paired, !paired), "after {millis}: one use");
    }
}

#[test]
fn a_full_disk_refuses_and_leaves_the_invite_valid() {
    for fault in [DiskFault::Full, DiskFault::Failing] {
        let (mut fleet, relay, raw) = host();
        fleet.world.disk_fault(relay.node, Some(fault));
        assert_eq!(redeem(&mut fleet, relay, &raw, "first").status(), "denied");
        assert_eq!(fleet.told(relay), ["refused first NotStored"]);
        fleet.world.disk_fault(relay.node, None);
        assert_eq!(redeem(&mut fleet, relay, &raw, "second").status(), "ok");
        assert_eq!(key_file(&fleet, relay, "first"), None);
    }
}

#[test]
fn of_two_joiners_that_race_one_is_let_in() {
    for seed in 0..16 {
        let mut fleet = Fleet::new(seed);
        let relay = fleet.relay("relay", |spec| spec.pending = Some(invite()));
        let raws = [fleet.raw(), fleet.raw()];
        let talks = raws.each_ref().map(|raw| fleet.dial(raw, relay.address()));
        for (raw, (talk, name)) in raws.iter().zip(talks.iter().zip(["one", "two"])) {
            let hello = hello_by(&invite(), name, &talk.nonce(), "");
            fleet.order_later(raw, Order::Send(talk.index(), hello));
        }
        fleet.world.settle();
        let mut statuses = talks.each_ref().map(Talk::status);
        statuses.sort_unstable();
        assert_eq!(statuses, ["denied", "ok"], "seed {seed}");
        assert_eq!(fleet.told_of(relay, "paired").len(), 1);
    }
}

#[test]
fn a_joiner_that_goes_while_its_key_is_stored_is_paired_all_the_same() {
    let (mut fleet, relay, raw) = host();
    fleet.world.act_time(Duration::from_secs(3)..=Duration::from_secs(3));
    let talk = fleet.dial(&raw, relay.address());
    let hello = hello_by(&invite(), "new", &talk.nonce(), "");
    fleet.order_later(&raw, Order::Send(talk.index(), hello));
    fleet.pass(1);
    // The slot of the one that goes is another's by the time the key is stored.
    fleet.world.reset(fleet.world.link_of(raw.node(), talk.conn().unwrap()).unwrap());
    fleet.world.run_for(Duration::from_millis(500));
    let order = Order::Dial(relay.address());
    fleet.order_later(&raw, order);
    fleet.pass(3);
    assert_eq!(fleet.told(relay), ["paired new"]);
    let silent = raw.talks().pop().unwrap();
    assert!(silent.is_open());
    fleet.pass(10);
    assert!(silent.is_over(), "and that one's time still runs");
    assert_eq!(redeem(&mut fleet, relay, &raw, "new").status(), "ok");
    assert_eq!(redeem(&mut fleet, relay, &raw, "second").status(), "denied");
}

#[test]
fn a_new_invite_makes_the_older_one_void_even_while_that_is_being_stored() {
    let newer = Key::from_bytes([8; 32]);
    let (mut fleet, relay, raw) = host();
    fleet.ask(relay, Command::Pend { key: Some(newer.clone()) });
    assert_eq!(redeem(&mut fleet, relay, &raw, "late").status(), "denied");

    let (mut fleet, relay, raw) = host();
    fleet.world.act_time(Duration::from_secs(3)..=Duration::from_secs(3));
    fleet.world.disk_fault(relay.node, Some(DiskFault::Full));
    let talk = fleet.dial(&raw, relay.address());
    let hello = hello_by(&invite(), "first", &talk.nonce(), "");
    fleet.order_later(&raw, Order::Send(talk.index(), hello));
    fleet.pass(1);
    fleet.tell(relay, Command::Pend { key: Some(newer.clone()) });
    fleet.pass(5);
    fleet.world.disk_fault(relay.node, None);
    assert_eq!(talk.status(), "denied");
    assert_eq!(
        redeem(&mut fleet, relay, &raw, "late").status(),
        "denied",
        "the older one does not come back"
    );
    let talk = fleet.dial(&raw, relay.address());
    fleet.send(&talk, &hello_by(&newer, "new", &talk.nonce(), ""));
    assert_eq!(talk.status(), "ok", "and the newer one is valid");
}

#[test]
fn a_reload_while_the_key_is_stored_does_not_bring_the_invite_back() {
    let (mut fleet, relay, raw) = host();
    fleet.world.act_time(Duration::from_secs(1)..=Duration::from_secs(1));
    let talk = fleet.dial(&raw, relay.address());
    let hello = hello_by(&invite(), "first", &talk.nonce(), "");
    fleet.order_later(&raw, Order::Send(talk.index(), hello));
    for _ in 0..8 {
        fleet.world.run_for(Duration::from_millis(300));
        let (peers, pending) = read(fleet.world.disk(relay.node));
        fleet.tell(relay, Command::Reload { peers, pending });
    }
    assert_eq!(talk.status(), "ok");
    assert_eq!(redeem(&mut fleet, relay, &raw, "second").status(), "denied");
    assert_eq!(redeem(&mut fleet, relay, &raw, "first").status(), "ok");
}

#[test]
fn an_invite_that_is_taken_back_lets_nobody_in() {
    let (mut fleet, relay, raw) = host();
    fleet.ask(relay, Command::Pend { key: None });
    assert_eq!(redeem(&mut fleet, relay, &raw, "new").status(), "denied");
}
