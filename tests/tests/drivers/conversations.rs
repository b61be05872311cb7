//! Random conversations, with resets and a journal that waits or fails.

use quickcheck::{Arbitrary, Gen, QuickCheck};
use relay_core::machine::CloseReason;
use relay_tests::probe::{Ask, Seen};
use relay_tests::rig::Over;
use relay_tests::script::Deed;

use crate::alike::{alike_over, come_to, send};

#[test]
fn any_conversation_reads_the_same_everywhere() {
    fn law(conversation: Conversation) {
        alike_over(Over::Tcp, &conversation.0);
        alike_over(Over::Unix, &conversation.0);
    }
    QuickCheck::new().tests(25).quickcheck(law as fn(Conversation));
}

/// Clients that talk in turns, each answer read before the next deed: what is owed is then one list.
#[derive(Clone, Debug)]
struct Conversation(Vec<Deed>);

impl Arbitrary for Conversation {
    fn arbitrary(random: &mut Gen) -> Self {
        let clients = 1 + usize::arbitrary(random) % 4;
        let mut here: Vec<usize> = (0..clients).collect();
        let mut deeds = vec![Deed::Connect; clients];
        // Who resets before the driver has accepted it is another story.
        deeds.push(come_to("links", clients as u64));
        for number in 0..10 {
            let Some(client) = random.choose(&here).copied() else { break };
            match *random.choose(&[0, 0, 0, 0, 1, 2, 3, 4]).expect("kinds of turns") {
                0 => talk(random, client, number, &mut deeds),
                1 => deeds.push(Deed::Ask(Ask::Keep(number))),
                2 => wait_for_the_journal(random, client, number, &mut deeds),
                3 => {
                    here.retain(|other| *other != client);
                    fail_the_journal(random, client, &here, number, &mut deeds);
                }
                _ => {
                    here.retain(|other| *other != client);
                    let left = here.len() as u64;
                    deeds.extend([Deed::Reset(client), Deed::Gauge("links", left..left + 1)]);
                }
            }
        }
        for client in here {
            end(random, client, &mut deeds);
        }
        Self(deeds)
    }
}

fn piece(random: &mut Gen) -> usize {
    1 + usize::arbitrary(random) % 20
}

fn talk(random: &mut Gen, client: usize, number: u64, deeds: &mut Vec<Deed>) {
    let words = ["echo", "free", "keep", "later 1", "write", "read", "remove"];
    let word = random.choose(&words).expect("words");
    let text = format!("tell {number}\n{word} text {number}\n");
    deeds.extend([send(client, &text, piece(random)), Deed::Line(client)]);
}

/// What was asked while the journal waits is answered when it goes on.
fn wait_for_the_journal(random: &mut Gen, client: usize, number: u64, deeds: &mut Vec<Deed>) {
    deeds.extend([
        Deed::Hold(true),
        send(client, &format!("keep {number}\necho behind\n"), piece(random)),
        come_to("journal_pending_bytes", 1),
        Deed::Order(Ask::Keep(number)),
        come_to("unanswered_commands", 1),
        Deed::Hold(false),
        Deed::Line(client),
        Deed::Line(client),
        Deed::Gauge("unanswered_commands", 0..1),
    ]);
}

/// Costs the client whose record is not durable its connection, and nobody else anything.
fn fail_the_journal(random: &mut Gen, client: usize, here: &[usize], number: u64, deeds: &mut Vec<Deed>) {
    deeds.extend([
        Deed::Fill(true),
        send(client, &format!("tell lost\nkeep {number}\n"), piece(random)),
        Deed::Until(Seen::Failing),
        Deed::Until(Seen::Closed(client as u64, CloseReason::NotDurable)),
        Deed::Rest(client),
    ]);
    for other in here {
        deeds.extend([send(*other, &format!("keep {number}\n"), piece(random)), Deed::Line(*other)]);
    }
    deeds.extend([
        Deed::Order(Ask::Keep(number)),
        come_to("unanswered_commands", 1),
        Deed::Fill(false),
        Deed::Until(Seen::Resumed),
        Deed::Gauge("unanswered_commands", 0..1),
    ]);
}

fn end(random: &mut Gen, client: usize, deeds: &mut Vec<Deed>) {
    match *random.choose(&["finish", "close", "stay", "wait"]).expect("words") {
        "wait" => deeds.extend([
            Deed::Hold(true),
            send(client, "keep last\n", 5),
            Deed::Finish(client),
            Deed::Until(Seen::Eof(client as u64)),
            come_to("journal_pending_bytes", 1),
            Deed::Hold(false),
            Deed::Rest(client),
        ]),
        "stay" => deeds.extend([
            send(client, "keep last\nstay\nlater 5 over\n", 5),
            Deed::Finish(client),
            Deed::Rest(client),
        ]),
        word => deeds.extend([
            send(client, &format!("keep last\n{word}\n"), 5),
            Deed::Rest(client),
            Deed::Finish(client),
        ]),
    }
}
