//! One list of inputs, and the transcript that every driver owes for it.

use std::collections::BTreeMap;

use relay_mio::RecvError;

use crate::probe::{Ask, Seen};
use crate::rig::{Over, PATIENCE, Rig, Running};

/// What is done. Clients are numbered from 0 in the order in which they connect.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(clippy::exhaustive_enums)]
pub enum Deed {
    /// A client connects.
    Connect,
    /// A client sends this, in pieces of so many bytes.
    Send(usize, String, usize),
    /// A client reads a line.
    Line(usize),
    /// A client reads up to the end of the stream, be it in order or a reset.
    Rest(usize),
    /// A client half-closes.
    Finish(usize),
    /// The owner asks.
    Ask(Ask),
    /// The journal waits, or no longer.
    Hold(bool),
    /// The journal's disk is full, or no longer.
    Fill(bool),
    /// Nothing, until the probe has told this.
    Until(Seen),
}

/// What came of it. Events are kept by connection: between connections no order is owed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Transcript {
    /// What each client read.
    pub clients: Vec<Vec<String>>,
    /// What the owner was answered.
    pub answers: Vec<u64>,
    /// What was told, of each connection and of none.
    pub events: BTreeMap<Option<u64>, Vec<Seen>>,
    /// What the journal holds.
    pub records: Vec<String>,
}

/// Does it all, then ends the driver.
///
/// # Panics
/// Where something that was waited for does not come.
#[must_use]
pub fn play(rig: &dyn Rig, over: Over, deeds: &[Deed]) -> Transcript {
    let running = Running::start(rig, over);
    let mut transcript = Transcript::default();
    let mut clients = Vec::new();
    for deed in deeds {
        match deed {
            Deed::Connect => {
                clients.push(running.client());
                transcript.clients.push(Vec::new());
            }
            Deed::Send(client, text, piece) => {
                for piece in text.as_bytes().chunks((*piece).max(1)) {
                    clients[*client].send(piece);
                }
            }
            Deed::Line(client) => transcript.clients[*client].push(clients[*client].line()),
            Deed::Rest(client) => {
                let rest = clients[*client].rest().unwrap_or_else(|_| b"(reset)".to_vec());
                transcript.clients[*client].push(String::from_utf8_lossy(&rest).into_owned());
            }
            Deed::Finish(client) => clients[*client].finish(),
            Deed::Ask(ask) => transcript.answers.push(running.ask(ask.clone())),
            Deed::Hold(true) => running.disk.hold(),
            Deed::Hold(false) => running.disk.release(),
            Deed::Fill(full) => running.disk.fill(*full),
            Deed::Until(last) => loop {
                let seen = running.events.recv_timeout(PATIENCE).expect("what is waited for comes");
                let found = seen == *last;
                transcript.told(seen);
                if found {
                    break;
                }
            },
        }
    }
    drop(clients);
    // Else the ends of the connections and the shutdown would come in any order.
    running.until_gauge("connections", |open| open == 0);
    running.handle.shutdown(PATIENCE);
    while let Some(seen) = running.events.recv() {
        transcript.told(seen);
    }
    assert_eq!(running.events.try_recv(), Err(RecvError::Ended));
    transcript.records = running.disk.records();
    transcript
}

impl Transcript {
    fn told(&mut self, seen: Seen) {
        let of = match &seen {
            Seen::Opened(number, _)
            | Seen::Heard(number, _)
            | Seen::Told(number, _)
            | Seen::Eof(number)
            | Seen::Closed(number, _) => Some(*number),
            Seen::Failing | Seen::Resumed | Seen::Draining => None,
        };
        self.events.entry(of).or_default().push(seen);
    }
}
