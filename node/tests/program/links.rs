//! Nodes that pair, link, lose each other and come back.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::running::{Running, until};
use crate::support::Home;

/// Two homes, one with a running serve, paired by invite.
struct Pair {
    a: Home,
    b: Home,
    a_serve: Running,
    addr: String,
    a_id: String,
    b_id: String,
}

fn pair(args: &[&str]) -> Pair {
    let (a, b) = (Home::new(), Home::new());
    let (a_serve, addr) = a.serve(args);
    let joined = b.json(&["join", &a.invite(&addr)]);
    let (a_id, b_id) = (a.id(), b.id());
    assert_eq!(joined[0], json!({"peer": a_id, "addr": addr, "paired": true, "kept": false}));
    let mut pair = Pair { a, b, a_serve, addr, a_id, b_id };
    assert_eq!(pair.a_serve.event("paired")["peer"], json!(pair.b_id));
    pair.a_serve.event("link_down");
    pair
}

#[test]
fn a_pairing_by_invite_leads_to_a_link_on_every_pair_of_event_loops() {
    for (ours, theirs) in [("smol", "smol"), ("smol", "mio"), ("mio", "smol"), ("mio", "mio")] {
        let mut pair = pair(&["--runtime", ours]);
        let (mut b_serve, _) = pair.b.serve(&["--runtime", theirs]);
        let (up_a, up_b) = (pair.a_serve.event("link_up"), b_serve.event("link_up"));
        let agreed = |up: &Value| (up["framing"].clone(), up["features"].clone(), up["proto"].clone());
        assert_eq!(agreed(&up_a), agreed(&up_b));
        assert_eq!(
            agreed(&up_a),
            (
                json!("binary"),
                json!(["frame-bin", "headroom", "lease-fence", "lease-fleet", "unknown-ok"]),
                json!(1)
            )
        );
        assert_eq!((&up_a["peer"], &up_a["direction"]), (&json!(pair.b_id), &json!("inbound")));
        assert_eq!((&up_b["peer"], &up_b["direction"]), (&json!(pair.a_id), &json!("outbound")));
        assert_eq!(up_b["addr"], json!(pair.addr));
    }
}

#[test]
fn a_pairing_code_leads_to_a_link() {
    let (a, b) = (Home::new(), Home::new());
    let (mut a_serve, addr) = a.serve(&[]);
    let offered = &a.json(&["pair"])[0];
    b.json(&["accept", offered["code"].as_str().unwrap(), offered["id"].as_str().unwrap()]);
    let mut connect = b.start(&["connect", &addr, "--heartbeat", "1"]);
    assert_eq!(connect.event("link_up")["peer"], offered["id"]);
    assert_eq!(a_serve.event("paired")["peer"], json!(b.id()));
    let ran = connect.terminate();
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    assert!(ran.out.contains("\"event\":\"stopped\""), "{}", ran.out);
    a_serve.event("link_down");
}

#[test]
fn a_code_or_an_invite_works_once() {
    let Pair { a, addr, mut a_serve, .. } = pair(&[]);
    let link = a.invite(&addr);
    let joined = Home::new();
    joined.json(&["join", &link]);
    a_serve.event("paired");
    let late = Home::new();
    let ran = late.run(&["join", &link]);
    assert_eq!(ran.code, 1, "{}", ran.err);
    let refused = format!("peer \"{}\" refused the handshake: the invite was used", a.id());
    assert!(ran.err.contains(&refused) && ran.err.contains("relay invite (there)"), "{}", ran.err);
    assert!(!ran.err.contains("relay join"), "{}", ran.err);
    // An invite that another node made.
    let ran = late.run(&["join", &link.replace(&a.id(), "other-0f0f0f0f")]);
    assert_eq!(ran.code, 1, "{}", ran.err);
    for part in ["\"other-0f0f0f0f\"", &format!("peer \"{}\" answered", a.id()), "relay invite (there)"] {
        assert!(ran.err.contains(part), "{part}: {}", ran.err);
    }
    assert!(!late.path("peers").join(format!("{}.key", a.id())).exists());
}

#[test]
fn nodes_that_dial_each_other_at_once_keep_exactly_one_link() {
    let (a, b) = (Home::new(), Home::new());
    let ((_a_serve, a_addr), (_b_serve, b_addr)) = (a.serve(&["--runtime", "mio"]), b.serve(&[]));
    let (a_id, b_id) = (a.id(), b.id());
    let key = "ab".repeat(32);
    std::thread::scope(|scope| {
        scope.spawn(|| a.json(&["peers", "add", &b_id, "--key", &key, "--addr", &b_addr]));
        scope.spawn(|| b.json(&["peers", "add", &a_id, "--key", &key, "--addr", &a_addr]));
    });
    let link = |home: &Home, peer: &str| home.live(peer)["live"]["link"].clone();
    until("one link, which both ends see as the same", || {
        let (ours, theirs) = (link(&a, &b_id), link(&b, &a_id));
        let (out, towards, into) = match (ours["direction"].as_str()?, theirs["direction"].as_str()?) {
            ("outbound", "inbound") => (ours, &b_addr, theirs),
            ("inbound", "outbound") => (theirs, &a_addr, ours),
            _ => return None,
        };
        let settled = out["addr"] == json!(towards) && into["addr"].is_string();
        // The pair's link is the one that the end with the lower id dialled, if that end dialled at all.
        settled.then_some(())
    });
}

#[test]
fn a_link_comes_back_after_either_end_restarts_or_is_killed() {
    let Pair { a, b, mut a_serve, addr, a_id, .. } = pair(&[]);
    let (mut b_serve, _) = b.serve(&["--runtime", "mio"]);
    b_serve.event("link_up");
    a_serve.event("link_up");

    assert_eq!(b_serve.terminate().code, 0);
    a_serve.event("link_down");
    let (mut b_serve, _) = b.serve(&[]);
    b_serve.event("link_up");
    a_serve.event("link_up");

    assert_eq!(a_serve.terminate().code, 0);
    b_serve.event("link_down");
    let mut a_serve = a.start(&["serve", "--listen", &addr]);
    b_serve.event("link_up");
    a_serve.event("link_up");

    // Its socket and its lock are left behind, and are in nobody's way.
    a_serve.kill();
    assert!(a.path("run/link.sock").exists());
    b_serve.event("link_down");
    let mut a_serve = a.start(&["serve", "--listen", &addr]);
    b_serve.event("link_up");
    a_serve.event("link_up");
    assert!(b.live(&a_id)["live"]["link"].is_object());
    assert_eq!(a.run(&["peers", "list"]).code, 0);
}

#[test]
fn connect_beside_serve_asks_it_to_keep_the_link() {
    let Pair { a, b, mut a_serve, addr, a_id, .. } = pair(&[]);
    // Forget the address, so that the link is not dialled unasked.
    std::fs::remove_file(b.path("peers").join(format!("{a_id}.meta"))).unwrap();
    let (mut b_serve, _) = b.serve(&[]);
    assert_eq!(b.json(&["connect", &addr])[0], json!({"peer": a_id, "addr": addr}));
    b_serve.event("link_up");
    a_serve.event("link_up");
    drop(a);
    a_serve.kill();
    b_serve.event("link_down");
    b_serve.event_where("dial_failed", |event| event["retry_in"].is_number() && event["peer"] == json!(a_id));
    let ran = b.run(&["connect", &addr, "--runtime", "mio", "--heartbeat", "2"]);
    assert_eq!(ran.code, 3, "{}", ran.err);
    let ignored = "--runtime and --heartbeat ignored: relay serve, which runs here, has its own";
    assert!(ran.err.contains(ignored), "{}", ran.err);
    assert!(ran.err.contains("relay serve, which runs here, goes on trying"), "{}", ran.err);
}

#[test]
fn the_service_that_keeps_a_link_is_named() {
    let Pair { a: _a, b, a_serve: _a_serve, addr, a_id, .. } = pair(&[]);
    let mut connect = b.start(&["connect", &addr, "--peer", &a_id]);
    connect.event("link_up");
    let ran = b.run(&["connect", &addr]);
    assert_eq!((ran.code, ran.err.as_str()), (0, "relay connect, which runs here, keeps the link.\n"));
}

#[test]
fn connect_alone_goes_on_trying_a_known_peer_and_gives_up_where_it_is_refused() {
    let Pair { a, b, a_serve, addr, a_id, .. } = pair(&[]);
    assert_eq!(a_serve.terminate().code, 0);
    let mut connect = b.start(&["connect", &addr]);
    let failed = connect.event("dial_failed");
    assert!(failed["peer"] == json!(a_id) && failed["retry_in"].is_number(), "{failed}");
    let _a_serve = a.start(&["serve", "--listen", &addr]);
    connect.event("link_up");
    drop(connect);

    let stranger = Home::new();
    stranger.json(&["peers", "add", &a_id, "--key", &"cd".repeat(32)]);
    let mut connect = stranger.start(&["connect", &addr]);
    let ran = connect.ended();
    assert_eq!(ran.code, 1, "{}", ran.err);
    assert!(ran.err.contains("refused the handshake") && ran.err.contains("relay join LINK"), "{}", ran.err);
    let told: Vec<Value> = ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let failed = told.iter().find(|line| line["event"] == "dial_failed");
    assert!(failed.is_none_or(|failed| failed["retry_in"].is_null()), "{}", ran.out);
    let reason = told.last().unwrap()["reason"].as_str().unwrap();
    assert!(reason.contains("refused the handshake"), "{reason}");

    // Nothing is dialled without a key.
    let ran = Home::new().start(&["connect", &addr, "--peer", &a_id]).ended();
    assert_eq!(ran.code, 1, "{}", ran.err);
    assert!(ran.out.contains("\"reason\":\"peer") && !ran.out.contains("dial_failed"), "{}", ran.out);
}

#[test]
fn a_peer_is_pinged_and_sent_to_with_and_without_serve() {
    let Pair { a: _a, b, mut a_serve, addr, a_id, b_id } = pair(&[]);
    let mut b_serve = None;
    for beside in [false, true] {
        if beside {
            b_serve = Some(b.serve(&[]));
        }
        let pings = b.json(&["ping", &a_id, "--count", "2"]);
        assert_eq!((pings.len(), &pings[1]["n"]), (2, &json!(2)));
        assert!(pings[0]["ms"].as_f64().unwrap() > 0.0, "{pings:?}");

        let sent = b.json(&["send", &a_id, "task_status", "{\"task_id\":\"t\"}"]);
        assert_eq!(sent[0], json!({"peer": a_id, "msg_type": "task_status", "taken": true, "reply": null}));
        let told = a_serve.event("message");
        assert_eq!((&told["peer"], &told["msg_type"]), (&json!(b_id), &json!("task_status")));

        let ran = b.run_with(
            &["send", &a_id, "lease_list", "-", "--reply-within", "20"],
            "{\"request_id\":\"r\"}\n",
        );
        let reply: Value = serde_json::from_str(&ran.out).unwrap();
        assert_eq!((&reply["request_id"], &reply["outcome"]), (&json!("r"), &json!("list")), "{}", ran.err);

        for (args, code, part) in [
            (&["send", "nobody", "task_status", "{}"] as &[&str], 1, "not known here"),
            (&["ping", "nobody"], 1, "not known here"),
            (&["send", &a_id, "task_statu", "{}"], 2, "Did you mean task_status?"),
            (&["send", &a_id, "task_status", "{"], 2, "no JSON"),
            (&["send", &a_id, "handshake", "{}"], 2, "handshake"),
            (&["send", &a_id, "task_status", "{}", "--reply-within", "1"], 2, "no reply"),
        ] {
            let ran = b.run(args);
            assert_eq!((ran.code, ran.out.as_str()), (code, ""), "{args:?}: {}", ran.err);
            assert!(ran.err.starts_with("relay: ") && ran.err.contains(part), "{args:?}: {}", ran.err);
        }
    }
    a_serve.kill();
    for args in [&["ping", &a_id] as &[&str], &["send", &a_id, "task_status", "{}"]] {
        let ran = b.run(args);
        assert_eq!(ran.code, 3, "{}", ran.err);
        assert!(ran.err.contains("Start it there: relay serve"), "{}", ran.err);
        assert!(ran.err.contains(&format!("peer \"{a_id}\" at {addr} cannot be reached")), "{}", ran.err);
    }
    drop(b_serve);
}

#[test]
fn a_ping_over_a_link_without_an_address_says_that_the_link_stands() {
    let Pair { a, b, mut a_serve, addr, a_id, b_id } = pair(&[]);
    let mut connect = b.start(&["connect", &addr, "--peer", &a_id]);
    connect.event("link_up");
    a_serve.event("link_up");
    let ran = a.run(&["ping", &b_id]);
    assert_eq!((ran.code, ran.out.as_str()), (3, ""));
    assert!(ran.err.contains("stands, which it dialled, but no address of it is known"), "{}", ran.err);
    drop(connect);
    a_serve.event("link_down");
    let ran = a.run(&["ping", &b_id]);
    assert!(ran.code == 3 && ran.err.contains("no link with it stands"), "{}", ran.err);
}

#[test]
fn a_peer_that_is_forgotten_loses_its_link_and_leaves_nothing() {
    let Pair { a, b, mut a_serve, b_id, .. } = pair(&[]);
    let (mut b_serve, _) = b.serve(&[]);
    b_serve.event("link_up");
    a_serve.event("link_up");
    let forgot = a.json(&["peers", "forget", &b_id]);
    assert!(forgot[0]["removed"].as_array().unwrap().contains(&json!(format!("{b_id}.key"))), "{forgot:?}");
    assert_eq!(a_serve.event("link_down")["peer"], json!(b_id));
    b_serve.event("link_down");
    // It comes again, is refused, and nothing of it comes back.
    assert_eq!(a_serve.event("handshake_failed")["claimed"], json!(b_id));
    b_serve.event("dial_failed");
    assert!(a.json(&["peers", "list"]).is_empty());
    let left: Vec<_> =
        std::fs::read_dir(a.path("peers")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.is_empty(), "{left:?}");
    assert_eq!(a.run(&["peers", "forget", &b_id]).code, 1);
}

#[test]
fn a_key_that_is_removed_by_hand_leaves_the_link_and_denies_the_next() {
    let Pair { a, b, mut a_serve, b_id, .. } = pair(&[]);
    let (mut b_serve, _) = b.serve(&[]);
    b_serve.event("link_up");
    a_serve.event("link_up");
    std::fs::remove_file(a.path("peers").join(format!("{b_id}.key"))).unwrap();
    let known = until("the change is noticed", || {
        let known = a.live(&b_id);
        (known["paired"] == json!(false) && known["live"]["paired"] == json!(false)).then_some(known)
    });
    assert_eq!(known["live"]["link"]["direction"], "inbound", "the link stays");
    assert_eq!(b_serve.terminate().code, 0);
    a_serve.event("link_down");
    let (mut b_serve, _) = b.serve(&[]);
    let failed = a_serve.event("handshake_failed");
    assert_eq!((&failed["claimed"], &failed["reason"]), (&json!(b_id), &json!("unknown peer")));
    b_serve.event("dial_failed");
}

#[test]
fn heartbeats_tell_of_each_machine() {
    let Pair { a, b, mut a_serve, b_id, .. } = pair(&[]);
    b.put("config.toml", "advertise = [\"192.0.2.7:9847\"]");
    let (_b_serve, _) = b.serve(&[]);
    a_serve.event("link_up");
    let live = until("capabilities and headroom came", || {
        let live = a.live(&b_id)["live"].clone();
        (live["capabilities"].is_object() && live["headroom"].is_object()).then_some(live)
    });
    assert_eq!(live["capabilities"]["os"], std::env::consts::OS);
    assert!(live["capabilities"]["tools"].as_object().unwrap().contains_key("git"), "{live}");
    assert_eq!(live["listen_addrs"], json!(["192.0.2.7:9847"]));
    assert!(
        live["headroom"]["disk_free_mb"].is_u64() && live["heartbeat_age"].as_f64().unwrap() < 40.0,
        "{live}"
    );
    let known = until("a heartbeat is the newest sign", || {
        let known = a.live(&b_id);
        (known["last_seen"] == known["live"]["heartbeat_at"]).then_some(known)
    });
    assert!(known["last_seen"].is_string(), "{known}");
    let mut watch = a.start_with(&["peers", "show", &b_id, "--watch"], |_| {});
    assert_eq!(watch.line()["id"], json!(b_id));
    let shown = a.run(&["peers", "show", &b_id]).out;
    assert!(shown.contains("link\tlinked (in)\n") && shown.contains("MiB of disk"), "{shown}");
}

#[test]
fn a_request_that_nobody_answers_is_over_soon() {
    let home = Home::new();
    let (_serve, addr) = home.serve(&[]);
    let other = Home::new();
    other.json(&["join", &home.invite(&addr)]);
    let since = Instant::now();
    let ran = other.run(&["send", &home.id(), "hive_join_request", "{}", "--reply-within", "60"]);
    assert!(ran.code == 3 && ran.err.contains("closed before it took the message"), "{}", ran.err);
    assert!(since.elapsed() < Duration::from_secs(20), "{:?}", since.elapsed());
}
