//! One list of inputs, and the transcript that every driver and the simulator's world owe for it.

mod driven;
mod world;

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;

use relay_core::machine::{Refused, Target};

pub use self::driven::Driven;
pub use self::world::InWorld;

use crate::probe::{Ask, Seen};

/// What is done. Clients are numbered from 0 in the order in which they connect.
///
/// Each deed begins when the one before it is done, and most are done before they are felt: what a transcript is to say
/// must wait for something that can be seen, by a deed that reads, asks or waits.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(clippy::exhaustive_enums)]
pub enum Deed {
    /// A client connects.
    Connect,
    /// A client sends this, in pieces of so many bytes.
    Send(usize, String, usize),
    /// A client reads a line. Clients read nothing but by this and by `Rest`.
    Line(usize),
    /// A client reads up to the end of the stream, be it in order or a reset.
    Rest(usize),
    /// A client half-closes.
    Finish(usize),
    /// A client resets its connection; over a unix socket it closes.
    Reset(usize),
    /// A client closes its socket.
    Leave(usize),
    /// The owner asks, and waits for the answer.
    Ask(Ask),
    /// The owner asks, and looks for the answer at the end.
    Order(Ask),
    /// The owner has the probe dial its own listener.
    Dial,
    /// The owner asks for the end, for which there is time.
    Shutdown,
    /// The journal waits, or no longer.
    Hold(bool),
    /// The journal's disk is full, or no longer.
    Fill(bool),
    /// Nothing, until the probe has told this: the owner takes all events up to it.
    Until(Seen),
    /// Nothing, until a gauge has such a value.
    Gauge(&'static str, Range<u64>),
}

/// What came of it. Events are kept by connection: between connections no order is owed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Transcript {
    /// What each client read; long texts by length and hash.
    pub clients: Vec<Vec<String>>,
    /// What the owner was answered, in the order in which it asked.
    pub answers: Vec<Result<u64, Refused>>,
    /// What was told, of each connection and of none.
    pub events: BTreeMap<Option<u64>, Vec<Seen>>,
    /// How many events found the channel full.
    pub dropped: u64,
    /// What the journal holds; long records by length and hash.
    pub records: Vec<String>,
}

/// Where deeds are done: a driver or a world, with a probe in it and a disk under that.
pub trait Stage {
    /// What it is called.
    fn name(&self) -> String;

    /// Connects the next client.
    fn connect(&mut self);

    /// Lets a client send.
    fn send(&mut self, client: usize, bytes: &[u8]);

    /// Lets a client read a line.
    fn line(&mut self, client: usize) -> String;

    /// Lets a client read to the end; nothing where that is a reset.
    fn rest(&mut self, client: usize) -> Option<Vec<u8>>;

    /// Lets a client half-close.
    fn finish(&mut self, client: usize);

    /// Lets a client reset.
    fn reset(&mut self, client: usize);

    /// Lets a client close.
    fn leave(&mut self, client: usize);

    /// Asks; the number of the answer.
    fn order(&mut self, ask: Ask) -> usize;

    /// Waits for an answer.
    fn answer(&mut self, number: usize) -> Result<u64, Refused>;

    /// Where the probe listens, to be dialled.
    fn target(&self) -> Target;

    /// Lets appends wait, or go on.
    fn hold(&mut self, held: bool);

    /// Lets appends fail, or no longer.
    fn fill(&mut self, full: bool);

    /// Waits for an event, and takes it.
    fn event(&mut self) -> Seen;

    /// Waits until a gauge has such a value.
    fn until_gauge(&mut self, name: &str, values: Range<u64>);

    /// Asks for the end.
    fn shutdown(&mut self);

    /// Waits for the end; the events that nobody took.
    fn end(&mut self) -> Vec<Seen>;

    /// How many events found the channel full.
    fn dropped(&self) -> u64;

    /// What the journal holds.
    fn records(&self) -> Vec<String>;
}

/// Does it all, then lets the clients go and ends the probe.
///
/// # Panics
/// Where something that was waited for does not come.
#[must_use]
pub fn play(mut stage: impl Stage, deeds: &[Deed]) -> Transcript {
    let stage = &mut stage;
    let mut transcript = Transcript::default();
    let mut asked = 0;
    let mut shut = false;
    for deed in deeds {
        match deed {
            Deed::Connect => {
                stage.connect();
                transcript.clients.push(Vec::new());
            }
            Deed::Send(client, text, piece) => {
                for piece in text.as_bytes().chunks((*piece).max(1)) {
                    stage.send(*client, piece);
                }
            }
            Deed::Line(client) => transcript.clients[*client].push(shown(&stage.line(*client))),
            Deed::Rest(client) => {
                let rest = stage.rest(*client);
                let rest = rest.as_deref().map_or_else(|| "(reset)".into(), String::from_utf8_lossy);
                transcript.clients[*client].push(shown(&rest));
            }
            Deed::Finish(client) => stage.finish(*client),
            Deed::Reset(client) => stage.reset(*client),
            Deed::Leave(client) => stage.leave(*client),
            Deed::Ask(ask) => {
                asked = stage.order(ask.clone()) + 1;
                // Its place in the transcript is among all that were asked.
                let _ = stage.answer(asked - 1);
            }
            Deed::Order(ask) => asked = stage.order(ask.clone()) + 1,
            Deed::Dial => {
                let ask = Ask::Dial(stage.target());
                asked = stage.order(ask) + 1;
                let _ = stage.answer(asked - 1);
            }
            Deed::Shutdown => {
                shut = true;
                stage.shutdown();
            }
            Deed::Hold(held) => stage.hold(*held),
            Deed::Fill(full) => stage.fill(*full),
            Deed::Until(last) => loop {
                let seen = stage.event();
                let found = seen == *last;
                transcript.told(seen);
                if found {
                    break;
                }
            },
            Deed::Gauge(name, values) => stage.until_gauge(name, values.clone()),
        }
    }
    for client in 0..transcript.clients.len() {
        stage.leave(client);
    }
    if !shut {
        // Else the ends of the connections and the shutdown would come in any order.
        stage.until_gauge("connections", 0..1);
        stage.shutdown();
    }
    for seen in stage.end() {
        transcript.told(seen);
    }
    transcript.answers = (0..asked).map(|number| stage.answer(number)).collect();
    transcript.dropped = stage.dropped();
    transcript.records = stage.records().iter().map(|record| shown(record)).collect();
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

/// A text to be compared, and to be read where it differs.
fn shown(text: &str) -> String {
    const LONG: usize = 200;
    if text.len() <= LONG {
        return text.to_owned();
    }
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    let begin: String = text.chars().take(20).collect();
    format!("{begin}… ({} bytes, {:016x})", text.len(), hasher.finish())
}
