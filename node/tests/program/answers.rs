//! The program as its users meet it: exit codes, answers, and errors that say what to do.

use crate::support::Home;
use relay_core::peer::invite::Invite;
use relay_core::peer::pairing::PairingCode;
use serde_json::json;

const KEY: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

#[test]
fn two_machines_pair_through_a_code() {
    let (one, two) = (Home::new(), Home::new());
    let offered = &one.json(&["pair"])[0];
    let (id, code) = (offered["id"].as_str().unwrap(), offered["code"].as_str().unwrap());
    let accepted = &two.json(&["accept", code, id])[0];
    assert_eq!((&accepted["peer"], &accepted["replaced"]), (&json!(id), &json!(false)));
    let key = PairingCode::parse(code).unwrap().key().to_hex();
    assert_eq!(one.read("peers/_pending.key"), key);
    assert_eq!(two.read(&format!("peers/{id}.key")), key);
}

#[test]
fn an_invites_link_and_code_both_lead_to_the_key_that_was_stored_before_they_were_shown() {
    let home = Home::new();
    for args in
        [&["invite", "--addr", "10.0.0.7:9848", "--json"] as &[&str], &["invite", "--addr", "10.0.0.7:9848"]]
    {
        let ran = home.run(args);
        assert_eq!(ran.code, 0, "{}", ran.err);
        let texts = ran.out.split(['\t', '\n', '"']).filter(|text| Invite::parse(text).is_ok());
        let keys: Vec<_> = texts.map(|text| Invite::parse(text).unwrap().code.key().to_hex()).collect();
        assert_eq!(keys, [home.read("peers/_pending.key"), home.read("peers/_pending.key")]);
    }
}

#[test]
fn an_invite_says_what_to_type_on_the_other_machine() {
    let home = Home::new();
    for (format, quote) in [("link", "'"), ("code", "")] {
        let ran = home.run(&["invite", "--addr", "10.0.0.7:9848", "--format", format]);
        let said = format!("On the other machine: relay join {quote}{}{quote}\n", ran.out.trim());
        assert!(ran.code == 0 && ran.err.ends_with(&said), "{}", ran.err);
    }
    let ran = home.run(&["invite", "--addr", "10.0.0.7:9848"]);
    assert!(ran.err.contains("relay join 'cctl://"), "{}", ran.err);
}

#[test]
fn a_new_invite_takes_the_place_of_the_pending_one_and_says_so() {
    let home = Home::new();
    assert!(!home.run(&["invite", "--addr", "10.0.0.7:1"]).err.contains("no longer works"));
    let old = home.read("peers/_pending.key");
    assert!(home.run(&["invite", "--addr", "10.0.0.7:1"]).err.contains("no longer works"));
    assert_ne!(home.read("peers/_pending.key"), old);
}

#[test]
fn a_code_that_would_decode_to_another_address_is_not_made() {
    let home = Home::new();
    for addr in ["10.0.0.7:9975", "10.0.0.7:9846", "10.0.0.7:10103", "[2001:db8::1]:9847"] {
        let answer = &home.json(&["invite", "--addr", addr])[0];
        assert!(answer["code"].is_null() && answer["link"].as_str().unwrap().contains(addr), "{answer}");
        let before = home.read("peers/_pending.key");
        let ran = home.run(&["invite", "--addr", addr, "--format", "code"]);
        assert_eq!((ran.code, ran.out.as_str()), (1, ""));
        assert!(ran.err.contains("relay invite --format link"), "{}", ran.err);
        assert_eq!(home.read("peers/_pending.key"), before, "a refused invite leaves the pending key");
    }
}

#[test]
fn an_invites_address_is_the_configured_one() {
    let home = Home::new();
    home.put("config.toml", "listen = \"192.0.2.1:9850\"");
    assert_eq!(home.json(&["invite"])[0]["addr"], "192.0.2.1:9850");
    home.put("config.toml", "listen = \"192.0.2.1:9850\"\nadvertise = [\"198.51.100.1:1\"]");
    assert_eq!(home.json(&["invite"])[0]["addr"], "198.51.100.1:1");
    home.put("config.toml", "listen = \"0.0.0.0:0\"");
    let ran = home.run(&["invite"]);
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("--addr IP:PORT"), "{}", ran.err);
}

#[test]
fn an_invite_says_where_nothing_listens_yet_and_is_refused_where_nothing_will() {
    let home = Home::new();
    for args in [&["pair"] as &[&str], &["invite"]] {
        let ran = home.run(args);
        assert_eq!(ran.code, 0, "{}", ran.err);
        assert!(ran.err.contains("Nothing listens here until relay serve runs"), "{}", ran.err);
    }
    let pending = home.read("peers/_pending.key");
    // A peer that is never reached, so that it goes on.
    home.json(&["peers", "add", "a", "--key", KEY]);
    let mut connect = home.start(&["connect", "127.0.0.1:1"]);
    connect.event("dial_failed");
    for args in [&["pair"] as &[&str], &["invite"], &["invite", "--addr", "10.0.0.7:1"]] {
        let ran = home.run(args);
        assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{args:?}");
        let part = format!("relay connect, which runs here (process {}), does not listen", connect.pid());
        assert!(ran.err.contains(&part) && ran.err.contains("start relay serve"), "{}", ran.err);
    }
    assert_eq!(home.read("peers/_pending.key"), pending, "what was refused changed nothing");
    drop(connect);
    let (_serve, _) = home.serve(&[]);
    assert!(!home.run(&["invite"]).err.contains("Nothing listens"));
}

#[test]
fn accepting_a_peer_leaves_ones_own_invite_open() {
    let home = Home::new();
    home.json(&["pair"]);
    let pending = home.read("peers/_pending.key");
    home.json(&["accept", "0123-4567-89ab-cdef", "other"]);
    assert_eq!(home.read("peers/_pending.key"), pending);
}

#[test]
fn accepting_says_that_nothing_is_tried_yet_and_keeps_the_key_that_is_there() {
    let home = Home::new();
    let accept = ["accept", "0123-4567-89ab-cdef", "other"];
    for _ in 0..2 {
        let ran = home.run(&accept);
        assert_eq!((ran.code, ran.out.as_str()), (0, "stored the key of other\n"), "{}", ran.err);
        assert!(ran.err.contains("not tried yet") && ran.err.contains("relay connect IP:PORT --peer other"));
        assert!(!ran.err.contains("warning"), "{}", ran.err);
    }
    let key = home.read("peers/other.key");
    let again = ["accept", "fedc-ba98-7654-3210", "other"];
    let ran = home.run(&again);
    assert_eq!((ran.code, ran.out.as_str()), (1, ""));
    assert!(ran.err.contains("another key here") && ran.err.contains("--replace"), "{}", ran.err);
    assert_eq!(home.read("peers/other.key"), key);
    let ran = home.run(&[&again as &[&str], &["--replace", "--json"]].concat());
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out.contains("\"replaced\":true") && ran.err.contains("warning: the earlier key of other"));
    assert_ne!(home.read("peers/other.key"), key);
}

#[test]
fn a_machine_does_not_pair_with_itself() {
    let home = Home::new();
    let offered = &home.json(&["pair"])[0];
    let (id, code) = (offered["id"].as_str().unwrap(), offered["code"].as_str().unwrap());
    for args in [
        &["accept", code, "other"] as &[&str],
        &["accept", "0123456789abcdef", id],
        &["peers", "add", id, "--key", KEY],
    ] {
        let ran = home.run(args);
        assert_eq!(ran.code, 1, "{args:?}");
        assert!(ran.err.starts_with("relay: "), "{}", ran.err);
    }
    assert!(home.json(&["peers", "list"]).is_empty());
}

#[test]
fn peers_are_added_listed_shown_and_forgotten() {
    let home = Home::new();
    home.put("key", KEY.to_uppercase());
    let file = home.path("key");
    let file = file.to_str().unwrap();
    assert_eq!(
        home.json(&["peers", "add", "a", "--key-file", file, "--addr", "10.0.0.1:9847"])[0],
        json!({"id": "a", "replaced": false})
    );
    assert_eq!(home.run_with(&["peers", "add", "b", "--key-file", "-"], KEY).code, 0);
    home.put("peers/b.meta", r#"{"addrs":[{"addr":"10.0.0.2:9847","last_seen":1700000000123}]}"#);
    let list = home.json(&["peers", "list"]);
    let addr = |addr: &str, seen: serde_json::Value| json!([{"addr": addr, "last_seen": seen}]);
    let seen = "2023-11-14T22:13:20.123Z";
    assert_eq!(
        list,
        [
            json!({"id": "a", "paired": true, "addr": "10.0.0.1:9847", "last_seen": null, "addrs": addr("10.0.0.1:9847", json!(null)), "live": null}),
            json!({"id": "b", "paired": true, "addr": "10.0.0.2:9847", "last_seen": seen, "addrs": addr("10.0.0.2:9847", json!(seen)), "live": null}),
        ]
    );
    assert_eq!(home.json(&["peers", "show", "b"])[0], list[1]);
    assert_eq!(home.json(&["peers", "forget", "b"])[0], json!({"id": "b", "removed": ["b.key", "b.meta"]}));
    for command in ["show", "forget"] {
        let ran = home.run(&["peers", command, "b"]);
        assert_eq!((ran.code, ran.out.as_str()), (1, ""));
        assert_eq!(ran.err, "relay: peer \"b\" is not known here. relay peers list shows those that are.\n");
    }
}

#[test]
fn pruning_can_be_tried_first() {
    let home = Home::new();
    home.put("peers/gone.meta", "{}");
    let removed = json!(["gone.meta"]);
    assert_eq!(home.json(&["peers", "prune", "--dry-run"])[0], json!({"removed": removed, "dry_run": true}));
    assert_eq!(home.json(&["peers", "prune"])[0], json!({"removed": removed, "dry_run": false}));
    assert_eq!(home.json(&["peers", "prune"])[0]["removed"], json!([]));
}

#[test]
fn wrong_use_exits_with_2_and_says_what_is_right() {
    let home = Home::new();
    for (args, part) in [
        (&[] as &[&str], "Usage"),
        (&["nothing"], "nothing"),
        (&["identity", "extra"], "extra"),
        (&["accept", "0123", "a"], "16 hex digits"),
        (&["accept", "0123456789abcdef", "a/b"], "peer id"),
        (&["accept", "0123456789abcdef", "_pending"], "_pending"),
        (&["peers", "add", "a"], "--key"),
        (&["peers", "add", "a", "--key", "12"], "64 hex digits"),
        (&["peers", "add", "a", "--key", KEY, "--key-file", "x"], "--key"),
        (&["peers", "add", "a", "--key-file", "/nowhere/key"], "/nowhere/key"),
        (&["peers", "add", "a", "--key", KEY, "--addr", "host:1"], "host:1"),
        (&["invite", "--addr", "0.0.0.0:1"], "0.0.0.0:1"),
        (&["invite", "--format", "phrase"], "link"),
        (&["config", "show", "--config", "/nowhere"], "/nowhere"),
    ] {
        let ran = home.run(args);
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{args:?}: {}", ran.err);
        assert!(ran.err.contains(part), "{args:?}: {}", ran.err);
        assert!(args.is_empty() || ran.err.starts_with("relay: "), "{args:?}: {}", ran.err);
        assert!(!ran.err.contains(KEY), "a secret is never repeated: {}", ran.err);
    }
}

#[test]
fn a_wrong_configuration_stops_what_needs_it_and_fails_its_check() {
    let home = Home::new();
    home.put("config.toml", "listn = \"1\"\nmax_peers = 0\n");
    let ran = home.run(&["config", "show"]);
    assert_eq!(ran.code, 2);
    assert!(
        ran.err.contains("did you mean \"listen\"") && ran.err.contains("relay config check"),
        "{}",
        ran.err
    );
    let ran = home.run(&["config", "check"]);
    assert_eq!((ran.code, ran.out.lines().count()), (4, 2));
    let ran = home.run(&["config", "check", "--json"]);
    let answer: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((ran.code, &answer["ok"], answer["faults"].as_array().unwrap().len()), (4, &json!(false), 2));
}

#[test]
fn a_configuration_is_shown_with_where_each_value_comes_from() {
    let home = Home::new();
    assert_eq!(home.json(&["config", "path"])[0]["exists"], json!(false));
    home.put("config.toml", "heartbeat_secs = 5");
    let shown = home.json(&["config", "show"]);
    assert!(shown.contains(&json!({"key": "heartbeat_secs", "value": 5, "source": "file"})), "{shown:?}");
    assert!(shown.contains(&json!({"key": "runtime", "value": "smol", "source": "default"})), "{shown:?}");
    assert_eq!(home.json(&["config", "check"])[0]["ok"], json!(true));
    let template = home.run(&["config", "show", "--template"]).out;
    home.put("config.toml", template);
    assert_eq!(home.run(&["config", "check"]).out, "ok\n");
}

#[test]
fn a_bad_identity_says_what_to_do() {
    let home = Home::new();
    home.put("identity", "not an id\n");
    for command in ["identity", "pair", "invite"] {
        let ran = home.run(&[command]);
        assert_eq!((ran.code, ran.out.as_str()), (2, ""));
        assert!(
            ran.err.contains("identity holds no peer id") && ran.err.contains("remove it"),
            "{}",
            ran.err
        );
    }
}
