//! Connections for one exchange, ours and the peer's, and whom a slow peer costs.

use core::time::Duration;

use relay_core::machine::{ConnId, Ticket};
use relay_core::message::{Kind, RawValue};
use relay_core::peer::{Answer, Command, Event, Failure};
use relay_tests::fleet::{Fleet, Order, Raw, Relay, Talk, id, wire};

const NONCE: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
const ACCEPTED: &str = r#"{"status":"ok","proto":1,"features":["unknown-ok","lease-fleet"]}"#;
/// A lasting link that speaks of leases, which are the requests that have replies.
const LEASES: &str = r#""proto":1,"features":["lease-fleet"]"#;
const TRANSIENT: &str = r#""transient":true,"proto":1,"features":["unknown-ok"]"#;

fn listener() -> (Fleet, Relay, Raw) {
    let mut fleet = Fleet::new(1);
    let relay = fleet.relay("relay", |spec| {
        spec.knows("raw");
        spec.knows("other");
    });
    let raw = fleet.raw();
    (fleet, relay, raw)
}

fn raw_value(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).expect("it is JSON")
}

fn list(name: &str) -> Vec<u8> {
    wire::named(name, "lease_list", &format!(r#"{{"request_id":"{name}"}}"#))
}

fn answered(talk: &Talk) -> Vec<String> {
    let results = talk.of_type("lease_result");
    results.iter().map(|sent| sent.payload["request_id"].as_str().unwrap_or_default().to_owned()).collect()
}

/// The connections of the messages that a relay was given, in order.
fn conns(fleet: &Fleet, relay: Relay) -> Vec<ConnId> {
    let events = fleet.events(relay).iter();
    events
        .filter_map(|(_, event)| if let Event::Message(message) = event { Some(message.conn) } else { None })
        .collect()
}

fn reply(fleet: &mut Fleet, relay: Relay, conn: ConnId, text: &str) -> bool {
    let payload = raw_value(&format!(r#"{{"text":"{text}"}}"#));
    let command = Command::Reply { conn, kind: Kind::SessionReceived, payload };
    matches!(fleet.ask(relay, command), Some(Answer::Done))
}

fn texts(talk: &Talk) -> Vec<String> {
    let received = talk.of_type("session_received");
    received.iter().map(|sent| sent.payload["text"].as_str().unwrap_or_default().to_owned()).collect()
}

#[test]
fn two_one_shots_of_one_peer_each_get_their_own_answers() {
    let (mut fleet, relay, raw) = listener();
    let one = fleet.join(&raw, relay, "raw", TRANSIENT);
    let two = fleet.join(&raw, relay, "raw", TRANSIENT);
    fleet.send(&one, &wire::named("1", "session_transfer", "{}"));
    fleet.send(&two, &wire::named("2", "session_transfer", "{}"));
    let conns = conns(&fleet, relay);
    assert!(reply(&mut fleet, relay, conns[1], "second") && reply(&mut fleet, relay, conns[0], "first"));
    assert_eq!((texts(&one), texts(&two)), (vec!["first".to_owned()], vec!["second".to_owned()]));
}

#[test]
fn every_request_on_a_one_shot_is_answered() {
    let (mut fleet, relay, raw) = listener();
    let talk = fleet.join(&raw, relay, "raw", TRANSIENT);
    for name in ["one", "two", "three"] {
        fleet.send(&talk, &list(name));
    }
    assert_eq!(answered(&talk), ["one", "two", "three"]);
}

#[test]
fn an_idle_one_shot_steals_nothing() {
    let (mut fleet, relay, raw) = listener();
    let link = fleet.join(&raw, relay, "raw", "");
    let idle = fleet.join(&raw, relay, "raw", TRANSIENT);
    fleet.send(&link, &list("mine"));
    fleet.send(&link, &wire::line("session_transfer", "{}"));
    let conn = conns(&fleet, relay)[0];
    assert!(reply(&mut fleet, relay, conn, "yours"));
    assert_eq!((answered(&link), answered(&idle)), (vec!["mine".to_owned()], vec![]));
    assert_eq!((texts(&link).len(), texts(&idle).len()), (1, 0));
}

#[test]
fn a_one_shot_is_no_link_and_leaves_the_link_alone() {
    let (mut fleet, relay, raw) = listener();
    let link = fleet.join(&raw, relay, "raw", "");
    let one_shot = fleet.join(&raw, relay, "raw", TRANSIENT);
    assert!(link.is_open() && one_shot.is_open());
    fleet.send(&one_shot, &wire::line("delegate_task", "{}"));
    assert_eq!(fleet.told(relay), ["up raw inbound", "message raw delegate_task one-shot"]);
    assert_eq!(one_shot.of_type("heartbeat").len(), 0);
}

#[test]
fn a_one_shot_without_an_answer_closes_on_the_diallers_end() {
    let (mut fleet, relay, raw) = listener();
    for n in 0..60 {
        let talk = fleet.join(&raw, relay, "raw", TRANSIENT);
        fleet.send_last(&talk, &wire::named(&format!("{n}"), "delegate_task", "{}"));
        assert!(talk.closed().is_some());
    }
    assert_eq!(fleet.told_of(relay, "message").len(), 60);
    fleet.assert_nothing_left(relay);
}

#[test]
fn sixty_peers_leave_nothing_open() {
    let mut fleet = Fleet::new(1);
    let names: Vec<_> = (0..60).map(|n| format!("peer-{n}")).collect();
    let relay = fleet.relay("relay", |spec| names.iter().for_each(|name| spec.knows(name)));
    let raw = fleet.raw();
    for (n, name) in names.iter().enumerate() {
        let talk = fleet.join(&raw, relay, name, TRANSIENT);
        match n % 3 {
            0 => fleet.finish(&talk),
            1 => fleet.reset(&talk),
            _ => {}
        }
    }
    assert_eq!(fleet.gauge(relay, "one_shots"), 20, "those that stay silent");
    fleet.pass(75);
    fleet.assert_nothing_left(relay);
}

#[test]
fn an_owed_answer_still_leaves_behind_the_diallers_end_and_then_the_connection_ends() {
    let (mut fleet, relay, raw) = listener();
    let talk = fleet.join(&raw, relay, "raw", TRANSIENT);
    let requests =
        [wire::named("1", "session_transfer", "{}"), wire::named("2", "session_transfer", "{}")].concat();
    fleet.send_last(&talk, &requests);
    fleet.pass(20);
    let conns = conns(&fleet, relay);
    assert!(reply(&mut fleet, relay, conns[0], "one") && !talk.is_over());
    assert!(reply(&mut fleet, relay, conns[1], "two"));
    assert_eq!(texts(&talk), ["one", "two"]);
    assert!(talk.closed().is_some());
    assert!(!reply(&mut fleet, relay, conns[1], "late"), "the connection has ended");
    let talk = fleet.join(&raw, relay, "raw", TRANSIENT);
    fleet.send_last(&talk, &wire::named("3", "session_transfer", "{}"));
    fleet.pass(45);
    assert!(talk.closed().is_some(), "an answer that never comes is given up");
    fleet.assert_nothing_left(relay);
}

#[test]
fn one_peer_has_so_many_one_shots_and_no_more_and_others_have_theirs() {
    let (mut fleet, relay, raw) = listener();
    let open: Vec<_> = (0..257).map(|_| fleet.join(&raw, relay, "raw", TRANSIENT)).collect();
    assert_eq!(open.iter().filter(|talk| talk.is_open()).count(), 256);
    assert!(open[256].is_over());
    let other = fleet.join(&raw, relay, "other", TRANSIENT);
    fleet.send(&other, &list("r"));
    assert_eq!(answered(&other), ["r"]);
    fleet.finish(&open[0]);
    assert!(fleet.join(&raw, relay, "raw", TRANSIENT).is_open());
}

#[test]
fn a_fault_on_a_one_shot_closes_it_alone() {
    let (mut fleet, relay, raw) = listener();
    let link = fleet.join(&raw, relay, "raw", "");
    let (bad, good) = (fleet.join(&raw, relay, "raw", TRANSIENT), fleet.join(&raw, relay, "raw", TRANSIENT));
    fleet.send(&bad, b"{}\n");
    assert!(bad.is_over() && good.is_open() && link.is_open());
    let cut = fleet.join(&raw, relay, "raw", TRANSIENT);
    fleet.send_last(&cut, wire::text("1", "delegate_task", "raw", "{}").as_bytes());
    assert!(cut.is_over());
    assert_eq!(fleet.told_of(relay, "message"), [""; 0], "a message that the end cuts is not executed");
}

#[test]
fn requests_are_answered_on_links_that_agreed_nothing() {
    let (mut fleet, relay, raw) = listener();
    let old = fleet.join(&raw, relay, "raw", "");
    fleet.send(&old, &list("r"));
    assert_eq!(answered(&old), ["r"]);
}

#[test]
fn message_ids_are_remembered_a_peer_and_never_across_peers() {
    let (mut fleet, relay, raw) = listener();
    let (one, two) = (fleet.join(&raw, relay, "raw", ""), fleet.join(&raw, relay, "other", ""));
    let task = wire::named("same", "delegate_task", "{}");
    for talk in [&one, &two, &one, &two] {
        fleet.send(talk, &task);
    }
    let one_shot = fleet.join(&raw, relay, "raw", TRANSIENT);
    fleet.send(&one_shot, &task);
    assert_eq!(fleet.told_of(relay, "message"), ["message raw delegate_task", "message other delegate_task"]);
    assert_eq!(fleet.gauge(relay, "repeated_messages"), 3);
    for n in 0..1000 {
        fleet.send(&one, &wire::named(&format!("{n}"), "delegate_task", "{}"));
    }
    fleet.send(&one, &task);
    assert_eq!(fleet.told_of(relay, "message raw").len(), 1002, "the newest thousand are remembered");
}

#[test]
fn a_request_that_is_repeated_is_still_answered() {
    let (mut fleet, relay, raw) = listener();
    let one = fleet.join(&raw, relay, "raw", TRANSIENT);
    fleet.send(&one, &wire::named("same", "session_transfer", "{}"));
    fleet.reset(&one);
    let two = fleet.join(&raw, relay, "raw", TRANSIENT);
    fleet.send(&two, &wire::named("same", "session_transfer", "{}"));
    assert_eq!(
        fleet.told(relay),
        ["message raw session_transfer one-shot", "message raw session_transfer one-shot again"]
    );
    let conns = conns(&fleet, relay);
    assert!(!reply(&mut fleet, relay, conns[0], "gone") && reply(&mut fleet, relay, conns[1], "here"));
    for _ in 0..3 {
        fleet.send(&two, &list("again"));
    }
    assert_eq!(answered(&two).len(), 3);
}

#[test]
fn a_peer_that_asks_4000_times_and_reads_nothing_costs_only_itself() {
    for extra in ["", TRANSIENT] {
        let (mut fleet, relay, raw) = listener();
        let other = fleet.raw();
        let deaf = fleet.join(&raw, relay, "raw", extra);
        let good = fleet.join(&other, relay, "other", "");
        fleet.world.stall_reader(raw.node(), true);
        let many: Vec<_> = (0..4000).map(|n| list(&format!("{n}"))).collect();
        fleet.order_later(&raw, Order::Send(deaf.index(), many.concat()));
        fleet.world.settle();
        for n in 0..200_u64 {
            let start = fleet.world.now();
            fleet.send(&good, &list(&format!("good-{n}")));
            assert_eq!(answered(&good).len() as u64, n + 1);
            assert!(fleet.world.now() - start < Duration::from_millis(10), "no delay");
            fleet.pass(1);
        }
        assert_eq!(fleet.gauge(relay, "links"), 1, "it is closed by now: {:?}", fleet.told(relay));
        assert_eq!(fleet.gauge(relay, "connections"), 1);
    }
}

#[test]
fn what_is_queued_for_a_peer_that_does_not_read_is_bounded() {
    let (mut fleet, relay, raw) = listener();
    let deaf = fleet.join(&raw, relay, "raw", "");
    fleet.world.stall_reader(raw.node(), true);
    for round in 0..60 {
        let many: Vec<_> = (0..200).map(|n| list(&format!("{round}-{n}"))).collect();
        fleet.order_later(&raw, Order::Send(deaf.index(), many.concat()));
    }
    fleet.world.settle();
    let frames = fleet.gauge(relay, "frames");
    fleet.pass(20);
    assert_eq!(fleet.gauge(relay, "frames"), frames, "it is not listened to any more");
    assert!(frames < 4000, "{frames} of 12000 were answered into its buffer");
    fleet.world.stall_reader(raw.node(), false);
    fleet.pass(1);
    fleet.world.settle();
    assert_eq!(answered(&deaf).len(), 12_000, "and all are answered once it reads");
    assert!(deaf.is_open());
}

#[test]
fn a_frame_that_we_do_not_read_is_not_late() {
    let (mut fleet, relay, raw) = listener();
    let slow = fleet.join(&raw, relay, "raw", "");
    fleet.world.stall_reader(raw.node(), true);
    // The pause comes in the middle of a request.
    let many: Vec<_> = (0..4000).map(|n| list(&format!("{n}"))).collect();
    fleet.order_later(&raw, Order::Send(slow.index(), many.concat()));
    fleet.pass(50);
    fleet.world.stall_reader(raw.node(), false);
    fleet.world.settle();
    assert_eq!(answered(&slow).len(), 4000, "{:?}", fleet.told(relay));
}

/// A relay that sends to a raw peer, up to the handshake's ack and the message behind it.
fn sender(kind: Kind, payload: &str, reply_within: Option<u64>) -> (Fleet, Relay, Raw, Ticket, Talk) {
    let mut fleet = Fleet::new(1);
    let raw = fleet.raw();
    let relay = fleet.relay("relay", |spec| {
        spec.knows_at("raw", [raw.address()]);
        spec.settings.dial_known = false;
    });
    let payload = raw_value(payload);
    let reply_within = reply_within.map(Duration::from_secs);
    let ticket = fleet.tell(relay, Command::Send { peer: id("raw"), kind, payload, reply_within });
    fleet.world.settle();
    let talk = raw.visits().pop().expect("the relay dials");
    fleet.send(&talk, &wire::challenge(NONCE));
    fleet.send(&talk, &wire::ack("raw", ACCEPTED));
    (fleet, relay, raw, ticket, talk)
}

#[test]
fn what_we_send_is_half_closed_and_taken_when_the_peer_ends_it_in_order() {
    let (mut fleet, relay, _, ticket, talk) = sender(Kind::DelegateTask, r#"{"task_id":"t"}"#, None);
    assert!(talk.messages()[0].payload["transient"] == true && talk.is_over());
    assert_eq!(talk.of_type("delegate_task")[0].payload["task_id"], "t");
    assert!(fleet.answer(relay, ticket).is_none());
    fleet.finish(&talk);
    assert!(matches!(fleet.answer(relay, ticket), Some(Answer::Sent { taken: true })));
    fleet.assert_nothing_left(relay);
}

#[test]
fn a_peer_that_resets_has_not_taken_it_and_one_that_waits_may_have() {
    let (mut fleet, relay, _, ticket, talk) = sender(Kind::DelegateTask, "{}", None);
    fleet.reset(&talk);
    assert!(matches!(fleet.answer(relay, ticket), Some(Answer::Failed(Failure::Connection(_)))));
    let (mut fleet, relay, _, ticket, _) = sender(Kind::DelegateTask, "{}", None);
    fleet.pass(2);
    assert!(matches!(fleet.answer(relay, ticket), Some(Answer::Sent { taken: false })));
    fleet.pass(15);
    fleet.assert_nothing_left(relay);
}

#[test]
fn a_reply_is_the_one_of_its_kind_on_the_same_connection() {
    let (mut fleet, relay, _, ticket, talk) = sender(Kind::LeaseList, r#"{"request_id":"r"}"#, Some(5));
    fleet.send(&talk, &wire::line("heartbeat", "{}"));
    fleet.send(&talk, &wire::line("from_the_future", "{}"));
    assert!(fleet.answer(relay, ticket).is_none());
    fleet.send(&talk, &wire::line("lease_result", r#"{"request_id":"r","outcome":"list"}"#));
    match fleet.answer(relay, ticket) {
        Some(Answer::Replied(message)) => {
            assert_eq!((message.kind, message.peer.as_str()), (Kind::LeaseResult, "raw"));
            assert!(message.payload.get().contains("list"));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_reply_that_does_not_come_in_time_or_at_all_is_a_failure() {
    let (mut fleet, relay, _, ticket, _) = sender(Kind::LeaseList, "{}", Some(5));
    fleet.world.run_for(Duration::from_millis(4900));
    assert!(fleet.answer(relay, ticket).is_none());
    fleet.world.run_for(Duration::from_millis(200));
    assert!(matches!(fleet.answer(relay, ticket), Some(Answer::Failed(Failure::TimedOut))));
    let (mut fleet, relay, _, ticket, talk) = sender(Kind::LeaseList, "{}", Some(5));
    fleet.finish(&talk);
    assert!(matches!(fleet.answer(relay, ticket), Some(Answer::Failed(Failure::NotTaken))));
    let (mut fleet, relay, _, ticket, talk) = sender(Kind::LeaseList, "{}", Some(5));
    fleet.send(&talk, b"junk\n");
    assert!(matches!(fleet.answer(relay, ticket), Some(Answer::Failed(Failure::Fault(_)))));
}

#[test]
fn a_long_message_has_the_time_that_it_needs_and_one_that_stands_still_fails_whole() {
    let long = format!(r#"{{"prompt":"{}"}}"#, "x".repeat(900_000));
    for stalled in [false, true] {
        let mut fleet = Fleet::new(1);
        let raw = fleet.raw();
        let relay = fleet.relay("relay", |spec| {
            spec.knows_at("raw", [raw.address()]);
            spec.settings.dial_known = false;
        });
        // 64 KiB in 200 ms: the message takes about 3 s.
        fleet.world.latency(Duration::from_millis(100)..=Duration::from_millis(100));
        let payload = raw_value(&long);
        let command =
            Command::Send { peer: id("raw"), kind: Kind::DelegateTask, payload, reply_within: None };
        let ticket = fleet.tell(relay, command);
        fleet.pass(1);
        let talk = raw.visits().pop().unwrap();
        fleet.send(&talk, &wire::challenge(NONCE));
        fleet.world.stall_reader(raw.node(), stalled);
        fleet.order_later(&raw, Order::Send(talk.index(), wire::ack("raw", ACCEPTED)));
        fleet.pass(6);
        fleet.world.stall_reader(raw.node(), false);
        fleet.pass(20);
        let arrived = talk.bytes().len() > long.len();
        match fleet.answer(relay, ticket) {
            Some(Answer::Sent { .. }) => assert!(arrived && !stalled),
            Some(Answer::Failed(Failure::TimedOut)) => {
                assert!(!arrived && stalled, "what failed does not arrive later")
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_message_goes_over_the_link_where_no_address_is_known() {
    let (mut fleet, relay, raw) = listener();
    let link = fleet.join(&raw, relay, "raw", "");
    let send = |text: &str| Command::Send {
        peer: id("raw"),
        kind: Kind::DelegateTask,
        payload: raw_value(text),
        reply_within: None,
    };
    assert!(matches!(
        fleet.ask(relay, send("{\n  \"a\": [1,\r\n 2]\n}")),
        Some(Answer::Sent { taken: false })
    ));
    assert_eq!(link.of_type("delegate_task")[0].payload, serde_json::json!({"a": [1, 2]}));
    let large = format!(r#"{{"a":"{}"}}"#, "x".repeat(1 << 20));
    assert!(matches!(fleet.ask(relay, send(&large)), Some(Answer::Failed(Failure::Unsendable(_)))));
    assert!(matches!(fleet.ask(relay, send("[]")), Some(Answer::Failed(Failure::BadRequest(_)))));
    assert!(link.is_open(), "our own mistake hurts no link");
}

#[test]
fn a_message_goes_over_the_link_where_no_address_answers() {
    let mut fleet = Fleet::new(1);
    let (raw, gone, denies) = (fleet.raw(), fleet.raw(), fleet.raw());
    let relay = fleet.relay("relay", |spec| {
        spec.knows_at("raw", [gone.address(), denies.address()]);
        spec.settings.dial_known = false;
    });
    let link = fleet.join(&raw, relay, "raw", LEASES);
    let ticket = request(&mut fleet, relay, "r1");
    fleet.reset(&gone.visits()[0]);
    assert!(link.of_type("lease_list").is_empty(), "an address is left to try");
    let talk = &denies.visits()[0];
    fleet.send(talk, &wire::challenge(NONCE));
    fleet.send(talk, &wire::ack("raw", r#"{"status":"denied"}"#));
    assert_eq!(link.of_type("lease_list").len(), 1);
    assert!(talk.of_type("lease_list").is_empty() && fleet.answer(relay, ticket).is_none());
    fleet.send(&link, &result("r1"));
    assert!(matches!(fleet.answer(relay, ticket), Some(Answer::Replied(_))));
    // Without a link the dial's failure is what is told.
    fleet.finish(&link);
    let ticket = request(&mut fleet, relay, "r2");
    fleet.reset(&gone.visits()[1]);
    fleet.reset(&denies.visits()[1]);
    assert!(matches!(fleet.answer(relay, ticket), Some(Answer::Failed(Failure::NoHandshake))));
}

#[test]
fn an_answer_that_nobody_gives_holds_a_half_closed_one_shot_as_long_as_the_owner_says() {
    let mut fleet = Fleet::new(1);
    let relay = fleet.relay("relay", |spec| {
        spec.knows("raw");
        spec.settings.answer_time = Duration::from_secs(2);
    });
    let raw = fleet.raw();
    let talk = fleet.join(&raw, relay, "raw", TRANSIENT);
    fleet.send_last(&talk, &wire::line("hive_join_request", "{}"));
    fleet.pass(1);
    assert!(talk.closed().is_none());
    fleet.pass(2);
    assert!(talk.closed().is_some());
    fleet.assert_nothing_left(relay);
}

/// A request over the link of a peer that told no address, and the ticket of its answer.
fn request(fleet: &mut Fleet, relay: Relay, request_id: &str) -> Ticket {
    let payload = raw_value(&format!(r#"{{"request_id":"{request_id}"}}"#));
    let reply_within = Some(Duration::from_secs(5));
    let ticket =
        fleet.tell(relay, Command::Send { peer: id("raw"), kind: Kind::LeaseList, payload, reply_within });
    fleet.world.settle();
    ticket
}

fn result(request_id: &str) -> Vec<u8> {
    wire::named(request_id, "lease_result", &format!(r#"{{"request_id":"{request_id}","outcome":"list"}}"#))
}

#[test]
fn a_reply_that_comes_by_the_link_goes_to_who_asked() {
    let (mut fleet, relay, raw) = listener();
    let link = fleet.join(&raw, relay, "raw", LEASES);
    let (one, two) = (request(&mut fleet, relay, "r1"), request(&mut fleet, relay, "r2"));
    // Each reply names its request, whatever the order.
    fleet.send(&link, &result("r2"));
    assert!(fleet.answer(relay, one).is_none());
    assert!(matches!(fleet.answer(relay, two), Some(Answer::Replied(_))));
    fleet.send(&link, &result("r1"));
    assert!(matches!(fleet.answer(relay, one), Some(Answer::Replied(_))));
    // What nobody asked for is told.
    fleet.send(&link, &result("r3"));
    assert_eq!(conns(&fleet, relay).len(), 1);
    assert_eq!(fleet.gauge(relay, "replies_awaited"), 0);
}

#[test]
fn a_request_that_is_withdrawn_ends_wherever_it_waits() {
    let withdrawn = |answer: Option<&Answer>| matches!(answer, Some(Answer::Failed(Failure::Withdrawn)));
    // By the link.
    let (mut fleet, relay, raw) = listener();
    let link = fleet.join(&raw, relay, "raw", LEASES);
    let (one, two) = (request(&mut fleet, relay, "r1"), request(&mut fleet, relay, "r2"));
    assert!(matches!(fleet.ask(relay, Command::Withdraw { ticket: one }), Some(Answer::Done)));
    assert!(withdrawn(fleet.answer(relay, one)) && fleet.answer(relay, two).is_none());
    assert_eq!(fleet.gauge(relay, "replies_awaited"), 1);
    assert!(link.is_open());
    // By a connection of its own, behind the handshake.
    let (mut fleet, relay, _, ticket, talk) = sender(Kind::LeaseList, r#"{"request_id":"r"}"#, Some(3600));
    fleet.ask(relay, Command::Withdraw { ticket });
    assert!(withdrawn(fleet.answer(relay, ticket)) && talk.is_over());
    fleet.assert_nothing_left(relay);
    // Before it, with an address left to try.
    let mut fleet = Fleet::new(1);
    let (raw, next) = (fleet.raw(), fleet.raw());
    let relay = fleet.relay("relay", |spec| {
        spec.knows_at("raw", [raw.address(), next.address()]);
        spec.settings.dial_known = false;
    });
    let ticket = request(&mut fleet, relay, "r");
    fleet.ask(relay, Command::Withdraw { ticket });
    assert!(withdrawn(fleet.answer(relay, ticket)));
    fleet.pass(1);
    assert_eq!((raw.visits().len(), next.visits().len()), (1, 0));
    fleet.assert_nothing_left(relay);
    // Again, and of what never was: nothing.
    assert!(matches!(fleet.ask(relay, Command::Withdraw { ticket }), Some(Answer::Done)));
}

#[test]
fn a_reply_that_does_not_come_by_the_link_is_a_failure() {
    let (mut fleet, relay, raw) = listener();
    let link = fleet.join(&raw, relay, "raw", LEASES);
    let late = request(&mut fleet, relay, "r1");
    fleet.pass(6);
    assert!(matches!(fleet.answer(relay, late), Some(Answer::Failed(Failure::TimedOut))));
    let vain = request(&mut fleet, relay, "r2");
    fleet.finish(&link);
    assert!(matches!(fleet.answer(relay, vain), Some(Answer::Failed(Failure::NotTaken))));
    assert_eq!(fleet.gauge(relay, "replies_awaited"), 0);
}

#[test]
fn a_handshake_is_not_sent_by_hand() {
    let (mut fleet, relay, raw) = listener();
    let link = fleet.join(&raw, relay, "raw", "");
    for kind in [Kind::Challenge, Kind::Handshake, Kind::HandshakeAck] {
        let payload = raw_value("{}");
        let command = Command::Send { peer: id("raw"), kind, payload, reply_within: None };
        assert!(matches!(fleet.ask(relay, command), Some(Answer::Failed(Failure::BadRequest(_)))));
    }
    fleet.send(&link, &wire::line("session_transfer", "{}"));
    let conn = conns(&fleet, relay)[0];
    let payload = raw_value("{}");
    let command = Command::Reply { conn, kind: Kind::HandshakeAck, payload };
    assert!(matches!(fleet.ask(relay, command), Some(Answer::Failed(Failure::BadRequest(_)))));
}
