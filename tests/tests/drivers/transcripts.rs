//! One list of inputs gives one transcript, whatever drives the machine and whatever carries its bytes.

use quickcheck::{Arbitrary, Gen, QuickCheck};
use relay_core::machine::CloseReason;
use relay_tests::probe::{Ask, Seen};
use relay_tests::rig::{Over, RIGS};
use relay_tests::script::{Deed, Transcript, play};

#[test]
fn a_conversation_reads_the_same_everywhere() {
    let transcript = alike(&[
        Deed::Connect,
        Deed::Connect,
        send(0, "echo a\nkeep b\nfree c\n", 4),
        Deed::Line(0),
        Deed::Line(0),
        Deed::Line(0),
        Deed::Ask(Ask::Keep(41)),
        send(1, "tell d\nstay\nlater 30 e\n", 7),
        Deed::Finish(1),
        Deed::Rest(1),
        Deed::Until(Seen::Closed(1, CloseReason::Finished)),
        send(0, "echo f\nclose\n", 100),
        Deed::Rest(0),
        Deed::Finish(0),
        Deed::Until(Seen::Closed(0, CloseReason::Asked)),
        Deed::Ask(Ask::Echo(42)),
    ]);
    assert_eq!(transcript.clients, [vec!["a", "kept b", "c", "f\n"], vec!["e\n"]]);
    assert_eq!(transcript.answers, [41, 42]);
    assert_eq!(transcript.records, ["b", "41"]);
    assert_eq!(
        transcript.events[&Some(1)],
        [
            Seen::Opened(1, false),
            Seen::Told(1, "d".into()),
            Seen::Eof(1),
            Seen::Closed(1, CloseReason::Finished),
        ]
    );
}

#[test]
fn a_failure_of_the_journal_reads_the_same_everywhere() {
    let transcript = alike(&[
        Deed::Connect,
        Deed::Connect,
        send(1, "echo a\n", 1),
        Deed::Line(1),
        Deed::Fill(true),
        send(0, "keep b\n", 2),
        Deed::Until(Seen::Failing),
        Deed::Until(Seen::Closed(0, CloseReason::NotDurable)),
        send(1, "keep c\n", 3),
        Deed::Line(1),
        Deed::Fill(false),
        Deed::Until(Seen::Resumed),
        send(1, "keep d\n", 3),
        Deed::Line(1),
    ]);
    assert_eq!(transcript.clients[1], ["a", "refused", "kept d"]);
    assert_eq!(transcript.records, ["b", "d"]);
}

#[test]
fn any_conversation_reads_the_same_everywhere() {
    fn law(conversation: Conversation) {
        alike(&conversation.0);
    }
    QuickCheck::new().tests(25).quickcheck(law as fn(Conversation));
}

/// Plays it on every driver over every kind of socket, compares, and returns the one transcript.
fn alike(deeds: &[Deed]) -> Transcript {
    let mut first: Option<Transcript> = None;
    for rig in RIGS {
        for over in [Over::Tcp, Over::Unix] {
            let transcript = play(rig, over, deeds);
            match &first {
                Some(first) => {
                    assert_eq!(*first, transcript, "{} over {over:?} behind {deeds:?}", rig.name())
                }
                None => first = Some(transcript),
            }
        }
    }
    first.expect("there is a driver")
}

fn send(client: usize, text: &str, piece: usize) -> Deed {
    Deed::Send(client, text.to_owned(), piece)
}

/// Clients that talk in turns, each answer read before the next deed: what is owed is then one list.
#[derive(Clone, Debug)]
struct Conversation(Vec<Deed>);

impl Arbitrary for Conversation {
    fn arbitrary(random: &mut Gen) -> Self {
        let clients = 1 + usize::arbitrary(random) % 3;
        let mut deeds = vec![Deed::Connect; clients];
        for number in 0..10 {
            let client = usize::arbitrary(random) % clients;
            let piece = 1 + usize::arbitrary(random) % 20;
            let word = random.choose(&["echo", "free", "keep", "later 1", "ask"]).expect("words");
            if *word == "ask" {
                deeds.push(Deed::Ask(Ask::Keep(number)));
                continue;
            }
            deeds.push(send(client, &format!("tell {number}\n{word} text {number}\n"), piece));
            deeds.push(Deed::Line(client));
        }
        for client in 0..clients {
            match *random.choose(&["finish", "close", "stay"]).expect("words") {
                "finish" => {
                    deeds.push(send(client, "keep last\nfinish\n", 5));
                    deeds.push(Deed::Rest(client));
                    deeds.push(Deed::Finish(client));
                }
                "close" => {
                    deeds.push(send(client, "keep last\nclose\n", 5));
                    deeds.push(Deed::Rest(client));
                    deeds.push(Deed::Finish(client));
                }
                _ => {
                    deeds.push(send(client, "keep last\nstay\nlater 5 over\n", 5));
                    deeds.push(Deed::Finish(client));
                    deeds.push(Deed::Rest(client));
                }
            }
        }
        Self(deeds)
    }
}
