//! Any order of sends, partial writes, syncs and failures: peers see a prefix of what was queued, never too early.

use quickcheck::{Arbitrary, Gen, QuickCheck};
use relay_core::journal::Seq;
use relay_core::machine::ConnId;

use crate::rig::Rig;

const CONNECTIONS: usize = 3;

/// One call from outside, or one thing that the machine does.
#[derive(Clone, Debug)]
enum Call {
    Send(usize),
    SendFree(usize),
    Record,
    Pause(usize),
    /// The socket takes so many bytes and blocks.
    Take(usize, usize),
    /// The journal confirms some of what it was given.
    Persist(u64),
    Fail,
    Resume(u64),
    /// Whether the turn ends here.
    Settle,
}

impl Arbitrary for Call {
    fn arbitrary(g: &mut Gen) -> Self {
        let conn = usize::arbitrary(g) % CONNECTIONS;
        match u8::arbitrary(g) % 16 {
            0..=2 => Self::Send(conn),
            3 | 4 => Self::SendFree(conn),
            5..=7 => Self::Record,
            8 => Self::Pause(conn),
            9 | 10 => Self::Take(conn, usize::arbitrary(g) % 12),
            11..=12 => Self::Persist(u64::arbitrary(g) % 4),
            13 => Self::Fail,
            14 => Self::Resume(u64::arbitrary(g) % 4),
            _ => Self::Settle,
        }
    }
}

/// What a plain model says of one connection: each message with the record that it rests on.
#[derive(Default)]
struct Queued {
    bytes: Vec<u8>,
    /// Where in the stream each message ends, and which record must be durable before its first byte leaves.
    barriers: Vec<(usize, u64)>,
}

impl Queued {
    fn push(&mut self, text: &[u8], rests_on: u64) {
        self.bytes.extend_from_slice(text);
        self.barriers.push((self.bytes.len(), rests_on));
    }

    /// The most that may have left when so much is durable.
    fn allowed(&self, durable: u64) -> usize {
        let held = self.barriers.iter().position(|(_, seq)| *seq > durable);
        held.map_or(self.bytes.len(), |index| {
            index.checked_sub(1).map_or(0, |before| self.barriers[before].0)
        })
    }
}

struct Model {
    rig: Rig,
    conns: Vec<ConnId>,
    queued: Vec<Queued>,
    recorded: u64,
    durable: u64,
    failing: bool,
    sent: u64,
}

impl Model {
    fn new() -> Self {
        let mut rig = Rig::new();
        let conns: Vec<_> = (0..CONNECTIONS).map(|_| rig.accept()).collect();
        let queued = conns.iter().map(|_| Queued::default()).collect();
        Self { rig, conns, queued, recorded: 0, durable: 0, failing: false, sent: 0 }
    }

    fn call(&mut self, call: &Call) {
        match *call {
            Call::Send(index) | Call::SendFree(index) => {
                let free = matches!(call, Call::SendFree(_));
                self.sent += 1;
                let text = format!("<{}>", self.sent).into_bytes();
                let rests_on = if free { 0 } else { self.recorded };
                self.queued[index].push(&text, rests_on);
                let conn = self.conns[index];
                self.rig.order_only(move |out, _| {
                    if free {
                        out.send_free(conn, |buf| buf.extend_from_slice(&text));
                    } else {
                        out.send(conn, |buf| buf.extend_from_slice(&text));
                    }
                });
            }
            Call::Record => {
                self.recorded += 1;
                self.rig.order_only(|out, _| {
                    out.record(|buf| buf.push(0));
                });
            }
            Call::Pause(index) => {
                let conn = self.conns[index];
                self.rig.order_only(move |out, _| out.pause(conn));
            }
            Call::Take(index, room) => {
                self.rig.port.room.insert(self.conns[index], room);
                self.rig.host.writable(self.conns[index]);
            }
            Call::Persist(more) => {
                let upto = (self.durable + more).min(self.appended());
                if !self.failing {
                    self.durable = upto;
                }
                // While the journal fails, what comes late counts for nothing.
                self.rig.host.persisted(self.rig.now(), Seq::new(upto));
            }
            Call::Fail => {
                self.failing = true;
                self.rig.host.persist_failed(self.rig.now());
            }
            Call::Resume(more) => {
                if self.failing {
                    self.durable = (self.durable + more).min(self.appended());
                    self.failing = false;
                }
                self.rig.host.resumed(self.rig.now(), Seq::new(self.durable));
            }
            Call::Settle => self.rig.settle(),
        }
    }

    fn appended(&self) -> u64 {
        self.rig.port.appended.back().map_or(0, |batch| batch.last().number())
    }

    fn seen(&self, index: usize) -> &[u8] {
        self.rig.port.took.get(&self.conns[index]).map_or(&[], Vec::as_slice)
    }

    fn holds(&self) -> bool {
        (0..CONNECTIONS).all(|index| {
            let (seen, queued) = (self.seen(index), &self.queued[index]);
            queued.bytes.starts_with(seen) && seen.len() <= queued.allowed(self.durable)
        })
    }

    /// Everything works again: what did not end is delivered whole, and each id that ended did so once.
    fn holds_at_the_end(&mut self) -> bool {
        self.rig.settle();
        self.call(&Call::Resume(u64::MAX >> 1));
        self.durable = self.appended();
        self.rig.persisted(self.durable);
        for conn in self.conns.clone() {
            self.rig.allow(conn, usize::MAX);
        }
        let heard = self.rig.heard();
        (0..CONNECTIONS).all(|index| {
            let end = format!("closed {:?}", self.conns[index]);
            let ends = heard.iter().filter(|line| line.starts_with(&end)).count();
            ends == 1 || (ends == 0 && self.seen(index) == self.queued[index].bytes)
        })
    }
}

#[test]
fn peers_see_a_prefix_of_what_was_queued_and_nothing_that_is_not_durable() {
    fn property(calls: Vec<Call>) -> bool {
        let mut model = Model::new();
        calls.iter().all(|call| {
            model.call(call);
            model.holds()
        }) && model.holds_at_the_end()
    }
    QuickCheck::new().tests(2000).quickcheck(property as fn(Vec<Call>) -> bool);
}
