//! One link a pair: what replaces what, in whichever order it comes about.

use core::time::Duration;

use relay_core::peer::{Command, Direction};
use relay_tests::fleet::{Fleet, Order, Raw, Relay, Spec, Talk, address, id, wire};

const NONCE: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
const ACCEPTED: &str = r#"{"status":"ok","proto":1,"features":["unknown-ok"]}"#;

/// A relay and a raw peer of these names; the relay dials only when it is told to.
fn couple(relay: &str, raw_name: &str) -> (Fleet, Relay, Raw) {
    let mut fleet = Fleet::new(1);
    let raw = fleet.raw();
    let relay = fleet.relay(relay, |spec| {
        spec.knows_at(raw_name, [raw.address()]);
        spec.settings.dial_known = false;
    });
    (fleet, relay, raw)
}

/// The relay dials and the raw peer, as `name`, takes it up to the ack.
fn outbound(fleet: &mut Fleet, relay: Relay, raw: &Raw, name: &str) -> Talk {
    let talk = outbound_unacked(fleet, relay, raw, name);
    fleet.send(&talk, &wire::ack(name, ACCEPTED));
    talk
}

fn outbound_unacked(fleet: &mut Fleet, relay: Relay, raw: &Raw, name: &str) -> Talk {
    // Without a name, since a link that stands would answer the command.
    fleet.tell(relay, Command::Connect { address: raw.address(), peer: None, invite: None, keep: false });
    fleet.world.settle();
    let talk = raw.visits().pop().expect("the relay dialled");
    fleet.send(&talk, &wire::challenge(NONCE));
    assert_eq!(talk.messages()[0].payload["proof"], wire::key(&name_of(fleet, relay), name).prove(NONCE));
    talk
}

fn name_of(fleet: &Fleet, relay: Relay) -> String {
    match fleet.world.machine(relay.node) {
        Some(relay_tests::fleet::Actor::Relay(node)) => node.settings().id.as_str().to_owned(),
        _ => panic!("a relay"),
    }
}

fn direction(fleet: &mut Fleet, relay: Relay, peer: &str) -> Option<Direction> {
    fleet.peer(relay, peer).and_then(|peer| peer.link).map(|link| link.direction)
}

#[test]
fn of_two_links_in_one_direction_the_newer_stays() {
    let (mut fleet, relay, raw) = couple("mmm", "zzz");
    let first = fleet.join(&raw, relay, "zzz", "");
    let second = fleet.join(&raw, relay, "zzz", "");
    assert!(first.is_over() && second.is_open());
    assert_eq!(fleet.told(relay), ["up zzz inbound", "down zzz Replaced", "up zzz inbound"]);
    let (mut fleet, relay, raw) = couple("mmm", "zzz");
    let first = outbound(&mut fleet, relay, &raw, "zzz");
    let second = outbound(&mut fleet, relay, &raw, "zzz");
    assert!(first.is_over() && second.is_open());
    assert_eq!(fleet.gauge(relay, "links"), 1);
}

#[test]
fn of_two_directions_the_link_that_the_lower_id_dialled_stays_whichever_came_first() {
    // Plain ASCII order: upper case before lower, `-` before digits before letters.
    for (ours, theirs) in [
        ("mmm", "aaa"),
        ("mmm", "zzz"),
        ("mmm", "mmm-0"),
        ("mmm", "mmm-1x"),
        ("mmm", "Mmm-9"),
        ("a_b", "a-b"),
        ("a1", "a-1"),
    ] {
        let we_are_lower = ours.as_bytes() < theirs.as_bytes();
        let stays = if we_are_lower { Direction::Outbound } else { Direction::Inbound };
        for outbound_first in [false, true] {
            let (mut fleet, relay, raw) = couple(ours, theirs);
            let (inbound, outbound) = if outbound_first {
                let out = outbound(&mut fleet, relay, &raw, theirs);
                (fleet.join(&raw, relay, theirs, ""), out)
            } else {
                let inbound = fleet.join(&raw, relay, theirs, "");
                (inbound, outbound(&mut fleet, relay, &raw, theirs))
            };
            assert_eq!(inbound.status(), "ok", "the loser too is acked");
            assert_eq!(
                (outbound.is_open(), inbound.is_open()),
                (we_are_lower, !we_are_lower),
                "{ours} {theirs}"
            );
            assert_eq!(direction(&mut fleet, relay, theirs), Some(stays), "{ours} {theirs} {outbound_first}");
            assert_eq!(fleet.gauge(relay, "links"), 1);
            let replaced = fleet.told_of(relay, "down").len();
            assert_eq!(
                replaced,
                usize::from(outbound_first != we_are_lower),
                "{ours} {theirs} {outbound_first}"
            );
            fleet.pass(12);
            assert_eq!(fleet.gauge(relay, "connections"), 1, "the loser is not only forgotten but closed");
        }
    }
}

#[test]
fn a_link_that_its_peer_has_half_closed_loses_to_anything() {
    let (mut fleet, relay, raw) = couple("mmm", "aaa");
    let lower = fleet.join(&raw, relay, "aaa", "");
    // An answer is owed, so that the half-closed link stays.
    fleet.send_last(&lower, &wire::line("session_transfer", "{}"));
    assert_eq!(direction(&mut fleet, relay, "aaa"), Some(Direction::Inbound));
    let other = outbound(&mut fleet, relay, &raw, "aaa");
    assert!(other.is_open());
    assert_eq!(direction(&mut fleet, relay, "aaa"), Some(Direction::Outbound));
}

#[test]
fn a_command_whose_dial_loses_is_answered_that_a_link_stands() {
    let (mut fleet, relay, raw) = couple("mmm", "aaa");
    fleet.join(&raw, relay, "aaa", "");
    let command = Command::Connect { address: raw.address(), peer: None, invite: None, keep: false };
    let ticket = fleet.tell(relay, command);
    fleet.world.settle();
    let talk = raw.visits().pop().unwrap();
    fleet.send(&talk, &wire::challenge(NONCE));
    fleet.send(&talk, &wire::ack("aaa", ACCEPTED));
    assert!(matches!(fleet.answer(relay, ticket), Some(relay_core::peer::Answer::Connected { .. })));
    assert_eq!(direction(&mut fleet, relay, "aaa"), Some(Direction::Inbound));
    let peer = Some(id("aaa"));
    let command = Command::Connect { address: raw.address(), peer, invite: None, keep: false };
    assert!(matches!(fleet.ask(relay, command), Some(relay_core::peer::Answer::Connected { .. })));
    assert_eq!(raw.visits().len(), 1, "with a name the link that stands answers at once");
}

/// Two relays that dial each other at once, one of them later by `lag`.
fn simultaneous(seed: u64, ids: [&str; 2], latency: Option<Duration>, lag: Duration) -> (Fleet, [Relay; 2]) {
    let mut fleet = Fleet::new(seed);
    if let Some(latency) = latency {
        fleet.world.latency(latency..=latency);
    }
    let know = |spec: &mut Spec, peer: &str, at| {
        spec.knows_at(peer, [at]);
        spec.settings.dial_known = false;
    };
    let one = fleet.relay(ids[0], |spec| know(spec, ids[1], address(1)));
    let two = fleet.relay(ids[1], |spec| know(spec, ids[0], address(0)));
    let connect = |to: Relay, peer: &str| Command::Connect {
        address: to.address(),
        peer: Some(id(peer)),
        invite: None,
        keep: true,
    };
    fleet.tell(one, connect(two, ids[1]));
    fleet.world.run_for(lag);
    fleet.tell(two, connect(one, ids[0]));
    (fleet, [one, two])
}

fn settled(fleet: &mut Fleet, relays: [Relay; 2], ids: [&str; 2], context: &str) {
    fleet.pass(20);
    let [one, two] = relays;
    for relay in relays {
        assert_eq!(fleet.gauge(relay, "links"), 1, "{context}: {:?}", fleet.told(relay));
        assert_eq!(fleet.gauge(relay, "connections"), 1, "{context}");
        assert_eq!(fleet.gauge(relay, "unanswered_commands"), 0, "{context}");
    }
    let ends = [direction(fleet, one, ids[1]), direction(fleet, two, ids[0])];
    assert_ne!(ends[0], ends[1], "{context}: both ends have the same link");
    let ups: Vec<_> = relays.iter().map(|relay| fleet.told_of(*relay, "up").len()).collect();
    fleet.pass(600);
    for (relay, ups) in relays.into_iter().zip(ups) {
        assert!(ups <= 3, "{context}: {:?}", fleet.told(relay));
        assert_eq!(fleet.told_of(relay, "up").len(), ups, "{context}: no dial storm after");
    }
}

#[test]
fn simultaneous_dials_leave_exactly_one_link_at_both_ends() {
    for ids in [["aaa", "bbb"], ["bbb", "aaa"], ["node", "Node"], ["x-1", "x1"]] {
        for seed in 0..60 {
            let (mut fleet, relays) = simultaneous(seed, ids, None, Duration::ZERO);
            settled(&mut fleet, relays, ids, &format!("seed {seed} {ids:?}"));
        }
    }
}

#[test]
fn at_every_lag_between_two_dials_exactly_one_link_is_left() {
    for ids in [["aaa", "bbb"], ["bbb", "aaa"]] {
        for lag in 0..50 {
            // One millisecond each way: the dials overlap in every phase of the handshake.
            let millisecond = Duration::from_millis(1);
            let (mut fleet, relays) =
                simultaneous(2, ids, Some(millisecond), Duration::from_micros(100 * lag));
            settled(&mut fleet, relays, ids, &format!("lag {lag} {ids:?}"));
        }
    }
}

/// The steps of two crossing dials, of which each raw side may do one at a time: what the raw peer does for its own
/// dial (dial, prove) and for the relay's (challenge, ack).
#[test]
fn in_every_interleaving_of_two_crossing_dials_the_same_link_is_kept() {
    for (ours, theirs) in [("mmm", "aaa"), ("mmm", "zzz")] {
        for order in 0_u32..64 {
            let bits: Vec<_> = (0..6).map(|bit| order >> bit & 1 == 1).collect();
            if bits.iter().filter(|bit| **bit).count() != 3 {
                continue;
            }
            let (mut fleet, relay, raw) = couple(ours, theirs);
            let (mut mine, mut yours) = (0, 0);
            let mut inbound = None;
            let mut outbound = None;
            for inbound_moves in bits {
                if inbound_moves {
                    match mine {
                        0 => inbound = Some(fleet.dial(&raw, relay.address())),
                        1 => {
                            let talk = inbound.as_ref().unwrap();
                            fleet.send(talk, &wire::handshake(theirs, ours, &talk.nonce(), ""));
                        }
                        _ => fleet.pass(1),
                    }
                    mine += 1;
                } else {
                    match yours {
                        0 => {
                            let peer = None;
                            let command =
                                Command::Connect { address: raw.address(), peer, invite: None, keep: false };
                            fleet.tell(relay, command);
                            fleet.world.settle();
                            outbound = raw.visits().pop();
                        }
                        1 => fleet.send(outbound.as_ref().unwrap(), &wire::challenge(NONCE)),
                        _ => fleet.send(outbound.as_ref().unwrap(), &wire::ack(theirs, ACCEPTED)),
                    }
                    yours += 1;
                }
            }
            let lower = ours < theirs;
            let (inbound, outbound) = (inbound.unwrap(), outbound.unwrap());
            assert_eq!(
                (outbound.is_open(), inbound.is_open()),
                (lower, !lower),
                "{ours} {theirs} {order:06b}"
            );
            assert_eq!(fleet.gauge(relay, "links"), 1);
        }
    }
}

#[test]
fn the_loser_of_a_collision_hears_its_ack_and_then_the_end() {
    let (mut fleet, relay, raw) = couple("aaa", "bbb");
    outbound(&mut fleet, relay, &raw, "bbb");
    let loser = fleet.join(&raw, relay, "bbb", "");
    assert_eq!(loser.status(), "ok");
    assert!(loser.is_over());
    assert_eq!(loser.of_type("heartbeat").len(), 0, "nothing else is said on it");
}

#[test]
fn what_is_said_over_a_replaced_link_is_not_executed() {
    let (mut fleet, relay, raw) = couple("mmm", "zzz");
    let first = fleet.join(&raw, relay, "zzz", "");
    // Both in flight at once: the new link's handshake, and a task over the old one behind it.
    let second = fleet.dial(&raw, relay.address());
    let hello = wire::handshake("zzz", "mmm", &second.nonce(), "");
    fleet.order_later(&raw, Order::Send(second.index(), hello));
    fleet.world.run_until(|world| {
        world
            .events(relay.node)
            .iter()
            .any(|(_, event)| matches!(event, relay_core::peer::Event::LinkDown { .. }))
    });
    fleet.send(&first, &wire::line("delegate_task", "{}"));
    assert_eq!(fleet.told_of(relay, "message"), [""; 0]);
}

#[test]
fn a_link_that_one_end_lost_without_a_word_is_found_dead_by_the_others_dial() {
    // The lower id's own link stands here, but over there the process is new.
    let mut fleet = Fleet::new(3);
    let a = fleet.relay("aaa", |spec| spec.knows_at("bbb", [address(1)]));
    let b = fleet.relay("bbb", |spec| spec.knows_at("aaa", [address(0)]));
    fleet.pass(5);
    assert_eq!(direction(&mut fleet, a, "bbb"), Some(Direction::Outbound));
    fleet.world.crash(b.node);
    fleet.pass(5);
    fleet.world.restart(b.node);
    fleet.pass(10);
    assert_eq!((fleet.gauge(a, "links"), fleet.gauge(b, "links")), (1, 1), "{:?}", fleet.told(a));
    let (ups, now) = (fleet.told_of(a, "up").len(), fleet.told(a).len());
    fleet.pass(300);
    assert_eq!((fleet.told_of(a, "up").len(), fleet.told(a).len()), (ups, now), "and it stays");
}
