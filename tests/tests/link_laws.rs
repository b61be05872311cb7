//! Laws over any bytes and any order of events: nothing panics, how bytes are cut changes nothing, nothing is left.

use quickcheck::{Arbitrary, Gen, QuickCheck, quickcheck};
use relay_tests::fleet::wire;
use relay_tests::fuzz::{self, Rig, conversation};

/// A conversation as a peer may have it with a node: the whole of a handshake, then frames of either framing.
#[derive(Clone, Debug)]
struct Talk {
    dials: bool,
    bytes: Vec<u8>,
}

impl Arbitrary for Talk {
    fn arbitrary(g: &mut Gen) -> Self {
        let dials = bool::arbitrary(g);
        let binary = bool::arbitrary(g);
        let features = if binary { r#"["frame-bin","headroom","unknown-ok"]"# } else { r#"["unknown-ok"]"# };
        let mut bytes = if dials {
            let ack = format!(r#"{{"status":"ok","proto":1,"features":{features}}}"#);
            [wire::challenge("0123"), wire::ack("mmm", &ack)].concat()
        } else {
            let transient = if u8::arbitrary(g) % 3 == 0 { r#","transient":true"# } else { "" };
            let payload = format!(r#"{{"proof":"$PROOF","proto":1,"features":{features}{transient}}}"#);
            (wire::text("1", "handshake", "mmm", &payload) + "\n").into_bytes()
        };
        for n in 0..u8::arbitrary(g) % 6 {
            let kinds =
                ["heartbeat", "lease_list", "delegate_task", "session_transfer", "from_the_future", "ack"];
            let kind = *g.choose(&kinds).expect("there are kinds");
            let long = "x".repeat(if u8::arbitrary(g).is_multiple_of(4) { 3000 } else { 3 });
            let payload = format!(r#"{{"request_id":"{n}","sessions":[],"x":"{long}"}}"#);
            let text = wire::text(&format!("{n}"), kind, "mmm", &payload);
            let frame = if binary { packed(&text) } else { (text + "\n").into_bytes() };
            bytes.extend_from_slice(&frame);
        }
        Self { dials, bytes }
    }
}

fn packed(text: &str) -> Vec<u8> {
    let mut frame = Vec::new();
    relay_core::frame::encode(relay_core::frame::Framing::Binary, text.as_bytes(), &mut frame)
        .expect("it fits a frame");
    frame
}

/// The same with some bytes changed, taken out, doubled or put in.
#[derive(Clone, Debug)]
struct Mutant(Talk);

impl Arbitrary for Mutant {
    fn arbitrary(g: &mut Gen) -> Self {
        let mut talk = Talk::arbitrary(g);
        for _ in 0..=u8::arbitrary(g) % 4 {
            let at = usize::arbitrary(g) % talk.bytes.len().max(1);
            let end = (at + usize::from(u8::arbitrary(g))).min(talk.bytes.len());
            match u8::arbitrary(g) % 5 {
                0 if at < talk.bytes.len() => talk.bytes[at] ^= 1 << (u8::arbitrary(g) % 8),
                1 => drop(talk.bytes.drain(at..end)),
                2 => talk.bytes.extend_from_within(at..end),
                3 => talk.bytes.truncate(at),
                _ => talk.bytes.insert(at, u8::arbitrary(g)),
            }
            if talk.bytes.is_empty() {
                break;
            }
        }
        Self(talk)
    }
}

#[test]
fn every_split_of_a_handshake_in_two_gives_the_same_events() {
    let hello =
        wire::text("1", "handshake", "mmm", r#"{"proof":"$PROOF","proto":1,"features":["frame-bin"]}"#)
            + "\n";
    let frames = [
        packed(&wire::text("2", "delegate_task", "mmm", "{}")),
        packed(&wire::text("3", "lease_list", "mmm", "{}")),
    ];
    let accepted = [hello.into_bytes(), frames.concat()].concat();
    let ack = wire::ack("mmm", r#"{"status":"ok","proto":1,"features":["frame-bin"]}"#);
    let dialled = [wire::challenge("0123"), ack, frames.concat()].concat();
    for (dials, bytes) in [(false, accepted), (true, dialled)] {
        let whole = conversation(dials, &bytes, usize::MAX);
        assert!(whole.told.iter().any(|line| line.contains("LinkUp")), "{:?}", whole.told);
        assert!(whole.told.iter().any(|line| line.contains("DelegateTask")), "{:?}", whole.told);
        for size in 1..bytes.len() + 64 {
            assert_eq!(conversation(dials, &bytes, size), whole, "pieces of {size}");
        }
    }
}

#[test]
fn every_handshake_that_ends_early_is_no_link_wherever_it_ends() {
    let hello = wire::text("1", "handshake", "mmm", r#"{"proof":"$PROOF"}"#) + "\n";
    for end in 0..hello.len() {
        let transcript = conversation(false, &hello.as_bytes()[..end], usize::MAX);
        // Inside the mark that stands for the proof the proof is wrong as well.
        assert!(!transcript.told.iter().any(|line| line.contains("LinkUp")), "{end}: {:?}", transcript.told);
    }
}

quickcheck! {
    fn how_a_conversation_is_cut_changes_nothing(talk: Talk, size: u8) -> bool {
        let size = usize::from(size).max(1);
        conversation(talk.dials, &talk.bytes, usize::MAX) == conversation(talk.dials, &talk.bytes, size)
    }

    fn bytes_alone_never_panic_and_leave_nothing(mutant: Mutant, size: u8) -> bool {
        let Mutant(talk) = mutant;
        let size = usize::from(size).max(1);
        conversation(talk.dials, &talk.bytes, usize::MAX).agrees_with(&conversation(talk.dials, &talk.bytes, size))
    }

    fn any_bytes_are_survived_by_every_target(data: Vec<u8>) -> bool {
        for (_, target) in fuzz::TARGETS {
            target(&data);
        }
        true
    }
}

#[test]
fn any_life_of_a_node_keeps_its_laws() {
    fn law(data: Vec<u8>) -> bool {
        fuzz::node(&data);
        true
    }
    QuickCheck::new().rng(Gen::new(600)).tests(1500).quickcheck(law as fn(Vec<u8>) -> bool);
}

#[test]
fn a_life_is_decided_by_its_inputs_alone() {
    let life = || {
        let mut rig = Rig::new(1);
        let conn = rig.accepted(1);
        let line = wire::handshake("mmm", "node", &rig.nonce(conn).unwrap(), "");
        rig.receive(conn, &line);
        rig.pass(core::time::Duration::from_secs(60));
        rig.finish()
    };
    assert_eq!(life(), life());
}

/// The corpus: one input a line, its target and its bytes in hex.
#[test]
fn the_corpus_is_replayed() {
    let corpus = include_str!("../fuzz/corpus.txt");
    let mut replayed = 0;
    for line in corpus.lines().filter(|line| !line.starts_with('#')) {
        let (name, hex) = line.split_once(' ').expect("a target and its bytes");
        let mut data = vec![0; hex.len() / 2];
        assert!(relay_core::secret::decode_hex(hex, &mut data), "{line}");
        let (_, target) =
            fuzz::TARGETS.into_iter().find(|(known, _)| *known == name).expect("a known target");
        target(&data);
        replayed += 1;
    }
    assert!(replayed > 0);
}
