//! Leases over links: raw peers and relays ask an authority in the simulated world.

use core::time::Duration;

use relay_core::lease::{Answered, Ask, Patience, Unanswered};
use relay_core::machine::Ticket;
use relay_core::message::lease::{Blocker, Mode, Outcome};
use relay_core::peer::{Answer, Command, Failure};
use relay_sim::DiskFault;
use relay_tests::fleet::{Fleet, Order, Raw, Relay, Talk, id, wire};
use serde_json::{Value, json};

const TRANSIENT: &str = r#""transient":true,"proto":1,"features":["unknown-ok","lease-fleet","lease-fence"]"#;
const LASTING: &str = r#""proto":1,"features":["unknown-ok","lease-fleet","lease-fence"]"#;

fn authority() -> (Fleet, Relay, Raw) {
    let mut fleet = Fleet::new(1);
    let relay = fleet.relay("relay", |spec| {
        spec.knows("raw");
        spec.knows("other");
    });
    let raw = fleet.raw();
    (fleet, relay, raw)
}

fn claim(request: &str, lease: &str, resource: &str, extra: Value) -> Vec<u8> {
    let mut payload = json!({
        "request_id": request, "lease_id": lease, "session": "s", "kind": "res", "value": resource,
        "mode": "exclusive", "ttl_secs": 60,
    });
    let members = payload.as_object_mut().expect("an object");
    members.extend(extra.as_object().expect("an object").clone());
    wire::named(&format!("m-{request}"), "lease_claim", &payload.to_string())
}

fn results(talk: &Talk) -> Vec<Value> {
    talk.of_type("lease_result").into_iter().map(|sent| sent.payload).collect()
}

fn ask(lease: &str, resource: &str, wait: Option<Patience>) -> Ask {
    Ask::Claim {
        lease_id: lease.into(),
        session: "s".into(),
        kind: "res".into(),
        value: resource.into(),
        mode: Mode::Exclusive,
        ttl_secs: 60,
        reason: String::new(),
        wait,
    }
}

fn command(ask: Ask) -> Command {
    Command::Lease { authority: None, ask }
}

/// An authority, and relays that ask it.
fn fleet_of(names: &[&str]) -> (Fleet, Relay, Vec<Relay>) {
    let mut fleet = Fleet::new(7);
    let authority = fleet.relay("authority", |spec| names.iter().for_each(|name| spec.knows(name)));
    let at = authority.address();
    let others = names.iter().map(|name| {
        fleet.relay(name, |spec| {
            spec.knows_at("authority", [at]);
            spec.settings.authority = Some(id("authority"));
        })
    });
    let others = others.collect();
    fleet.world.settle();
    (fleet, authority, others)
}

fn answered(fleet: &Fleet, relay: Relay, ticket: Ticket) -> Option<&Result<Answered, Unanswered>> {
    let answer = fleet.answer(relay, ticket)?;
    let Answer::Lease { result, .. } = answer else { panic!("no answer about a lease: {answer:?}") };
    Some(result)
}

fn is_granted(fleet: &Fleet, relay: Relay, ticket: Ticket) -> bool {
    matches!(answered(fleet, relay, ticket), Some(Ok(Answered::Granted { .. })))
}

#[test]
fn a_claim_over_a_one_shot_is_granted_on_the_connection_that_asked() {
    let (mut fleet, relay, raw) = authority();
    let talk = fleet.join(&raw, relay, "raw", TRANSIENT);
    fleet.send(&talk, &claim("r1", "l1", "demo", json!({})));
    let result = &results(&talk)[0];
    assert_eq!((&result["outcome"], &result["request_id"]), (&json!("granted"), &json!("r1")));
    assert_eq!(result["lease"]["owner_session_id"], "s@raw");
    assert!(result["lease"]["fencing_token"].is_u64());
    assert_eq!(fleet.told_of(relay, "lease"), ["lease granted l1"]);
}

#[test]
fn the_owner_is_the_authenticated_peer_and_never_one_from_the_message() {
    let (mut fleet, relay, raw) = authority();
    let talk = fleet.join(&raw, relay, "raw", TRANSIENT);
    let message = claim("r1", "l1", "demo", json!({"peer": "other", "owner": "x@other"}));
    let text = String::from_utf8(message)
        .expect("JSON is text")
        .replace("\"from_peer\":\"raw\"", "\"from_peer\":\"other\"");
    fleet.send(&talk, text.as_bytes());
    assert_eq!(results(&talk)[0]["lease"]["owner_session_id"], "s@raw");
}

#[test]
fn a_peer_that_agreed_no_lease_fence_sees_no_token_and_one_from_before_features_is_answered() {
    let (mut fleet, relay, raw) = authority();
    for (n, extra) in
        [r#""transient":true,"proto":1,"features":["lease-fleet"]"#, r#""transient":true"#].iter().enumerate()
    {
        let talk = fleet.join(&raw, relay, "raw", extra);
        fleet.send(&talk, &claim(&format!("r{n}"), &format!("l{n}"), &format!("res{n}"), json!({})));
        let result = &results(&talk)[0];
        assert_eq!(result["outcome"], "granted", "{extra}");
        assert!(result["lease"].get("fencing_token").is_none(), "{extra}");
    }
}

#[test]
fn a_retry_with_a_new_message_id_is_granted_the_same_lease() {
    let (mut fleet, relay, raw) = authority();
    let first = fleet.join(&raw, relay, "raw", TRANSIENT);
    fleet.send(&first, &claim("r1", "l1", "demo", json!({})));
    let again = fleet.join(&raw, relay, "raw", TRANSIENT);
    fleet.send(&again, &claim("r1", "l1", "demo", json!({})));
    assert_eq!(results(&again)[0]["lease"]["id"], results(&first)[0]["lease"]["id"]);
    assert_eq!(fleet.gauge(relay, "leases"), 1);
}

#[test]
fn the_real_peers_retry_with_the_same_message_id_is_answered_too() {
    let (mut fleet, relay, raw) = authority();
    let talk = fleet.join(&raw, relay, "raw", TRANSIENT);
    let message = claim("r1", "l1", "demo", json!({}));
    fleet.send(&talk, &message);
    fleet.send(&talk, &message);
    let granted = results(&talk);
    assert_eq!((granted.len(), &granted[0]["lease"]["id"]), (2, &granted[1]["lease"]["id"]));
}

#[test]
fn each_field_out_of_its_bounds_is_an_error_that_names_it() {
    let (mut fleet, relay, raw) = authority();
    let long = |n: usize| "x".repeat(n);
    for (field, bad) in [
        ("request_id", json!(long(97))),
        ("lease_id", json!("a b")),
        ("session", json!(long(129))),
        ("kind", json!("Res")),
        ("value", json!(long(513))),
        ("mode", json!("shared_read")),
        ("ttl_secs", json!(604_801)),
        ("waiter_id", json!("w@x")),
    ] {
        let talk = fleet.join(&raw, relay, "raw", TRANSIENT);
        fleet.send(&talk, &claim("r1", "l1", "demo", json!({field: bad})));
        let result = &results(&talk)[0];
        assert_eq!(result["outcome"], "error", "{field}");
        assert!(result["message"].as_str().is_some_and(|text| text.starts_with(field)), "{result}");
        assert_eq!(result["request_id"], if field == "request_id" { "" } else { "r1" });
    }
    assert_eq!(fleet.gauge(relay, "leases"), 0);
}

#[test]
fn a_node_whose_authority_is_another_says_so() {
    let mut fleet = Fleet::new(1);
    let relay = fleet.relay("relay", |spec| {
        spec.knows("raw");
        spec.settings.authority = Some(id("somebody"));
    });
    let raw = fleet.raw();
    let talk = fleet.join(&raw, relay, "raw", TRANSIENT);
    fleet.send(&talk, &claim("r1", "l1", "demo", json!({})));
    let result = &results(&talk)[0];
    assert_eq!(result["outcome"], "error");
    assert!(result["message"].as_str().is_some_and(|text| text.contains("somebody")), "{result}");
}

#[test]
fn a_heartbeat_that_names_the_session_renews_and_one_without_sessions_does_not() {
    let (mut fleet, relay, raw) = authority();
    let talk = fleet.join(&raw, relay, "raw", LASTING);
    fleet.send(&talk, &claim("r1", "l1", "demo", json!({"ttl_secs": 20})));
    for beat in 0..10 {
        fleet.send(&talk, &wire::line("heartbeat", r#"{"sessions":[{"session_id":"s"}]}"#));
        fleet.pass(10);
        assert_eq!(fleet.gauge(relay, "leases"), 1, "beat {beat}");
    }
    for _ in 0..9 {
        fleet.send(&talk, &wire::line("heartbeat", "{}"));
        fleet.pass(10);
    }
    assert_eq!(fleet.gauge(relay, "leases"), 1, "80 s behind the last that counts");
    fleet.pass(21);
    assert_eq!(fleet.gauge(relay, "leases"), 0);
    assert_eq!(fleet.told_of(relay, "lease"), ["lease granted l1", "lease expired l1"]);
}

#[test]
fn a_finished_session_renews_nothing() {
    let (mut fleet, relay, raw) = authority();
    let talk = fleet.join(&raw, relay, "raw", LASTING);
    fleet.send(&talk, &claim("r1", "l1", "demo", json!({"ttl_secs": 20})));
    fleet.send(&talk, &wire::line("heartbeat", r#"{"sessions":[{"session_id":"s","status":"Finished"}]}"#));
    fleet.pass(20);
    assert_eq!(fleet.gauge(relay, "leases"), 0);
}

#[test]
fn an_answer_leaves_only_when_its_record_is_durable() {
    let (mut fleet, relay, raw) = authority();
    let talk = fleet.join(&raw, relay, "raw", TRANSIENT);
    let other = fleet.join(&raw, relay, "raw", LASTING);
    // A disk that fails is tried again and again, so the world is never still.
    let send = |fleet: &mut Fleet, talk: &Talk, bytes: Vec<u8>| {
        fleet.order_later(&raw, Order::Send(talk.index(), bytes));
        fleet.pass(1);
    };
    fleet.world.disk_fault(relay.node, Some(DiskFault::Full));
    send(&mut fleet, &talk, claim("r1", "l1", "demo", json!({})));
    assert!(results(&talk).is_empty() && talk.is_over(), "what could not be made durable is not told");
    send(&mut fleet, &other, claim("r2", "l2", "free", json!({})));
    send(&mut fleet, &other, wire::named("m-list", "lease_list", r#"{"request_id":"list"}"#));
    assert!(other.is_open(), "a link that holds nothing back stands");
    let told = results(&other);
    assert_eq!(
        (&told[0]["outcome"], &told[1]["outcome"], &told[1]["leases"]),
        (&json!("error"), &json!("list"), &json!([]))
    );
    fleet.world.disk_fault(relay.node, None);
    fleet.pass(10);
    let late = fleet.join(&raw, relay, "raw", TRANSIENT);
    fleet.send(&late, &claim("r1", "l1", "demo", json!({})));
    assert_eq!(results(&late)[0]["outcome"], "granted", "the batch was repeated, and so is the claim");
}

#[test]
fn leases_survive_a_crash_with_their_tokens() {
    let (mut fleet, relay, raw) = authority();
    let talk = fleet.join(&raw, relay, "raw", TRANSIENT);
    fleet.send(&talk, &claim("r1", "l1", "demo", json!({})));
    let before = results(&talk)[0]["lease"].clone();
    fleet.world.crash(relay.node);
    fleet.pass(5);
    fleet.world.restart(relay.node);
    fleet.world.settle();
    let again = fleet.join(&raw, relay, "raw", TRANSIENT);
    fleet.send(&again, &claim("r2", "l1", "demo", json!({})));
    assert_eq!(results(&again)[0]["lease"], before);
    fleet.send(&again, &claim("r3", "l2", "next", json!({})));
    let next = &results(&again)[1]["lease"];
    assert!(next["fencing_token"].as_u64() > before["fencing_token"].as_u64());
}

#[test]
fn a_relay_asks_its_authority_over_a_one_shot_and_knows_until_when_it_is_certain() {
    let (mut fleet, authority, others) = fleet_of(&["one"]);
    let ticket = fleet.tell(others[0], command(ask("l1", "demo", None)));
    fleet.world.settle();
    let Some(Ok(Answered::Granted { lease, certain_until })) = answered(&fleet, others[0], ticket) else {
        panic!("not granted")
    };
    assert_eq!((lease.owner_session_id.as_str(), lease.fencing_token.is_some()), ("s@one", true));
    assert!(certain_until.since(relay_core::time::Mono::ZERO) > Duration::from_secs(50));
    assert_eq!(fleet.told_of(authority, "lease"), ["lease granted l1"]);
}

#[test]
fn a_node_without_an_authority_keeps_its_own() {
    let mut fleet = Fleet::new(1);
    let alone = fleet.relay("alone", |_| ());
    let ticket = fleet.tell(alone, command(ask("l1", "demo", None)));
    fleet.world.settle();
    assert!(is_granted(&fleet, alone, ticket));
    let list = fleet.tell(alone, command(Ask::List));
    fleet.world.settle();
    let Some(Ok(Answered::Other(Outcome::List { leases, .. }))) = answered(&fleet, alone, list) else {
        panic!("no list")
    };
    assert_eq!(leases[0].owner_session_id, "s@alone");
}

#[test]
fn three_relays_wait_in_line_and_are_served_in_order() {
    let (mut fleet, authority, others) = fleet_of(&["one", "two", "three"]);
    let tickets: Vec<_> = others
        .iter()
        .zip(["l1", "l2", "l3"])
        .map(|(relay, lease)| {
            let ticket = fleet.tell(*relay, command(ask(lease, "demo", Some(Patience::Endless))));
            fleet.pass(2);
            ticket
        })
        .collect();
    for at in 0..3 {
        fleet.pass(5);
        let granted: Vec<_> = (0..3).map(|n| is_granted(&fleet, others[n], tickets[n])).collect();
        assert_eq!(granted, (0..3).map(|n| n <= at).collect::<Vec<_>>());
        let release = Ask::Release { lease_id: format!("l{}", at + 1), session: "s".into() };
        let ticket = fleet.tell(others[at], command(release));
        fleet.pass(1);
        assert_eq!(answered(&fleet, others[at], ticket), Some(&Ok(Answered::Other(Outcome::Released))));
    }
    let told = fleet.told_of(authority, "lease granted");
    assert_eq!(told, ["lease granted l1", "lease granted l2", "lease granted l3"]);
}

#[test]
fn an_answer_that_is_lost_on_the_way_is_asked_for_again_with_success() {
    let mut fleet = Fleet::new(3);
    let raw = fleet.raw();
    let at = raw.address();
    let relay = fleet.relay("relay", |spec| {
        spec.knows_at("raw", [at]);
        spec.settings.authority = Some(id("raw"));
        spec.settings.dial_known = false;
    });
    let ticket = fleet.tell(relay, command(ask("l1", "demo", None)));
    let mut ids = Vec::new();
    for attempt in 0..2 {
        fleet.world.settle();
        let talk = raw.visits()[attempt].clone();
        fleet.send(&talk, &wire::challenge(&"ab".repeat(32)));
        fleet.send(&talk, &wire::ack("raw", r#"{"status":"ok","proto":1,"features":["lease-fleet"]}"#));
        let claims = talk.of_type("lease_claim");
        ids.push((
            claims[0].id.clone(),
            claims[0].payload["request_id"].clone(),
            claims[0].payload["lease_id"].clone(),
        ));
        if attempt == 0 {
            fleet.finish(&talk);
            fleet.pass(5);
        } else {
            let answer = json!({
                "request_id": claims[0].payload["request_id"], "outcome": "granted",
                "lease": {"id": "l1", "owner_session_id": "s@relay", "expires_at": "2030-01-01T00:00:00Z", "ttl_secs": 60},
            });
            fleet.send(&talk, &wire::line("lease_result", &answer.to_string()));
        }
    }
    assert!(is_granted(&fleet, relay, ticket));
    assert_ne!(ids[0].0, ids[1].0, "a new message id");
    assert_eq!((&ids[0].1, &ids[0].2), (&ids[1].1, &ids[1].2), "the same request and lease");
}

#[test]
fn an_answer_that_an_authority_gives_by_another_connection_reaches_the_request_that_it_answers() {
    let mut fleet = Fleet::new(3);
    let (raw, other) = (fleet.raw(), fleet.raw());
    let at = raw.address();
    let relay = fleet.relay("relay", |spec| {
        spec.knows_at("raw", [at]);
        spec.knows("other");
        spec.settings.authority = Some(id("raw"));
        spec.settings.dial_known = false;
    });
    let link = fleet.join(&raw, relay, "raw", LASTING);
    let others = fleet.join(&other, relay, "other", LASTING);
    let tickets = ["l1", "l2"].map(|lease| fleet.tell(relay, command(ask(lease, lease, None))));
    fleet.world.settle();
    let (visits, mut answers) = (raw.visits(), Vec::new());
    for talk in &visits {
        fleet.send(talk, &wire::challenge(&"ab".repeat(32)));
        fleet.send(talk, &wire::ack("raw", r#"{"status":"ok","proto":1,"features":["lease-fleet"]}"#));
        let claim = talk.of_type("lease_claim")[0].payload.clone();
        let answer = json!({
            "request_id": claim["request_id"], "outcome": "granted",
            "lease": {"id": claim["lease_id"], "owner_session_id": "s@relay", "expires_at": "2030-01-01T00:00:00Z", "ttl_secs": 60},
        });
        answers.push(wire::line("lease_result", &answer.to_string()));
    }
    // Whoever is not asked cannot answer.
    fleet.send(&others, &answers[0]);
    assert!(!is_granted(&fleet, relay, tickets[0]));
    // By the connection that the other request came by, and by the link.
    fleet.send(&visits[1], &answers[0]);
    fleet.send(&link, &answers[1]);
    assert!(tickets.iter().all(|ticket| is_granted(&fleet, relay, *ticket)));
    assert!(visits.iter().all(Talk::is_over) && link.is_open());
}

#[test]
fn a_requester_refuses_before_sending_where_lease_fleet_was_not_agreed() {
    let mut fleet = Fleet::new(3);
    let raw = fleet.raw();
    let at = raw.address();
    let relay = fleet.relay("relay", |spec| {
        spec.knows_at("raw", [at]);
        spec.settings.dial_known = false;
    });
    let asked = Command::Lease { authority: Some(id("raw")), ask: ask("l1", "demo", None) };
    let ticket = fleet.tell(relay, asked);
    fleet.world.settle();
    let talk = raw.visits()[0].clone();
    fleet.send(&talk, &wire::challenge(&"ab".repeat(32)));
    fleet.send(&talk, &wire::ack("raw", r#"{"status":"ok","proto":1,"features":["unknown-ok"]}"#));
    assert_eq!(answered(&fleet, relay, ticket), Some(&Err(Unanswered::NoLeases)));
    assert!(talk.of_type("lease_claim").is_empty());
}

#[test]
fn without_an_answer_three_attempts_are_made_at_0_5_and_10_seconds() {
    let mut fleet = Fleet::new(3);
    let raw = fleet.raw();
    let at = raw.address();
    let relay = fleet.relay("relay", |spec| {
        spec.knows_at("raw", [at]);
        spec.settings.dial_known = false;
    });
    let asked = Command::Lease { authority: Some(id("raw")), ask: ask("l1", "demo", None) };
    let ticket = fleet.tell(relay, asked);
    for (after, dials) in [(4, 1), (2, 2), (5, 3), (3, 3)] {
        assert!(answered(&fleet, relay, ticket).is_none());
        fleet.pass(after);
        assert_eq!(raw.visits().len(), dials);
    }
    fleet.pass(2);
    assert_eq!(answered(&fleet, relay, ticket), Some(&Err(Unanswered::NoAnswer)));
    assert_eq!(raw.visits().len(), 3);
    fleet.assert_nothing_left(relay);
}

#[test]
fn a_claim_that_waits_and_is_withdrawn_leaves_the_queue() {
    let (mut fleet, authority, others) = fleet_of(&["one", "two"]);
    fleet.tell(others[0], command(ask("l1", "demo", None)));
    fleet.pass(1);
    let ticket = fleet.tell(others[1], command(ask("l2", "demo", Some(Patience::Endless))));
    fleet.pass(2);
    assert_eq!(fleet.gauge(authority, "lease_waiters"), 1);
    fleet.tell(others[1], Command::Withdraw { ticket });
    fleet.pass(1);
    assert!(matches!(fleet.answer(others[1], ticket), Some(Answer::Failed(Failure::Withdrawn))));
    assert_eq!(fleet.gauge(authority, "lease_waiters"), 0);
    assert_eq!(fleet.gauge(others[1], "lease_requests"), 0);
}

#[test]
fn out_of_patience_the_answer_says_so_and_nothing_is_held() {
    let (mut fleet, authority, others) = fleet_of(&["one", "two"]);
    fleet.tell(others[0], command(ask("l1", "demo", None)));
    fleet.pass(1);
    let patience = Patience::For(Duration::from_secs(3));
    let ticket = fleet.tell(others[1], command(ask("l2", "demo", Some(patience))));
    fleet.pass(5);
    assert_eq!(answered(&fleet, others[1], ticket), Some(&Err(Unanswered::WaitedInVain)));
    assert_eq!((fleet.gauge(authority, "lease_waiters"), fleet.gauge(authority, "leases")), (0, 1));
}

#[test]
fn a_conflict_names_the_holder_across_the_fleet() {
    let (mut fleet, _, others) = fleet_of(&["one", "two"]);
    fleet.tell(others[0], command(ask("l1", "demo", None)));
    fleet.pass(1);
    let ticket = fleet.tell(others[1], command(ask("l2", "demo", None)));
    fleet.pass(1);
    let Some(Ok(Answered::Other(Outcome::Conflict(Blocker::Lease { holder, lease_id, .. })))) =
        answered(&fleet, others[1], ticket)
    else {
        panic!("two hold one resource")
    };
    assert_eq!((holder.as_str(), lease_id.as_str()), ("s@one", "l1"));
}

#[test]
fn the_journal_is_cut_behind_a_snapshot_and_a_restart_knows_all_the_same() {
    let mut fleet = Fleet::new(1);
    let alone = fleet.relay("alone", |spec| spec.settings.snapshot_every = 100);
    fleet.tell(alone, command(ask("kept", "kept", None)));
    for n in 0..500 {
        let lease = format!("l{n}");
        fleet.tell(alone, command(ask(&lease, "demo", None)));
        fleet.tell(alone, command(Ask::Release { lease_id: lease, session: "s".into() }));
        fleet.world.settle();
    }
    fleet.world.settle();
    assert!(fleet.world.disk(alone.node).records().count() < 200, "the journal was cut");
    fleet.world.crash(alone.node);
    fleet.world.restart(alone.node);
    fleet.world.settle();
    let again = fleet.tell(alone, command(ask("kept", "kept", None)));
    let late = fleet.tell(alone, command(ask("l499", "demo", None)));
    fleet.world.settle();
    assert!(is_granted(&fleet, alone, again));
    assert!(matches!(answered(&fleet, alone, late), Some(Ok(Answered::Other(Outcome::Error(_))))));
}
