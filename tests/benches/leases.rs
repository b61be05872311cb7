//! What a claim costs by how many leases live: `cargo bench -p relay-tests --bench leases`.
//!
//! A whole node without sockets, whose journal takes all at once and keeps nothing. The leases that live are of seven
//! peers; 1,000 claims wait for one resource; the node's owner claims and gives back.
#![expect(clippy::print_stdout, reason = "a bench says what it found")]

use core::time::Duration;
use std::time::Instant;

use relay_core::action::{ActId, Action};
use relay_core::host::Host;
use relay_core::journal::{Records, Seq};
use relay_core::lease::{Answered, Ask, BootId, Record};
use relay_core::machine::{ConnId, Durable, ListenerId, Refused, Target, Ticket};
use relay_core::message::lease::{Mode, Outcome};
use relay_core::peer::{Answer, Command, Event, Node, Settings};
use relay_core::port::{Ending, Port, Wrote};
use relay_core::time::{Mono, Now, Wall};
use relay_tests::fleet::id;
use relay_tests::loads::median;

const SIZES: [usize; 2] = [1_000, 100_000];
const WAITERS: usize = 1_000;
/// Claims of one measurement.
const CLAIMS: usize = 20_000;
/// Measurements of each, by turns.
const ROUNDS: usize = 5;

/// A journal that keeps nothing, and the newest answer.
#[derive(Default)]
struct Nothing {
    newest: Seq,
    answer: Option<Answer>,
}

impl Port<Node> for Nothing {
    fn append(&mut self, records: Records) {
        self.newest = records.last();
    }

    fn write(&mut self, _: ConnId, bytes: &[u8]) -> Wrote {
        Wrote::Bytes(bytes.len())
    }

    fn finish(&mut self, _: ConnId) {}

    fn reading(&mut self, _: ConnId, _: bool) {}

    fn accepting(&mut self, _: ListenerId, _: bool) {}

    fn close(&mut self, _: ConnId, _: Ending) {}

    fn dial(&mut self, _: ConnId, _: &Target) {}

    fn act(&mut self, _: ActId, _: Action) {}

    fn event(&mut self, _: Event) {}

    fn answer(&mut self, _: Ticket, answer: Result<Answer, Refused>) {
        self.answer = answer.ok();
    }
}

/// How the resources of a run are called.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Exact,
    Paths,
}

impl Kind {
    const fn word(self) -> &'static str {
        match self {
            Self::Exact => "res",
            Self::Paths => "path_glob",
        }
    }

    /// A resource that overlaps no other number's.
    fn value(self, number: usize) -> String {
        match self {
            Self::Exact => format!("resource-{number}"),
            Self::Paths => format!("src/{}/{}/part-{number}/**", number / 1000, number % 1000),
        }
    }
}

struct Run {
    host: Host<Node>,
    port: Nothing,
    kind: Kind,
    millis: u64,
    claimed: usize,
}

impl Run {
    /// A node with so many live leases and the waiters, as a start restores it.
    fn new(kind: Kind, live: usize) -> Self {
        let mut settings = Settings::new(id("relay"));
        settings.boot = BootId::new("boot");
        let mut node = Node::new(settings, [1; 32], Vec::new(), None);
        let (mut bytes, mut newest) = (Vec::new(), Seq::NONE);
        let mut restore = |record: Record<'_>| {
            bytes.clear();
            record.write(&mut bytes);
            newest = newest.next();
            node.restore(newest, &bytes).expect("records that are written so are read so");
        };
        restore(Record::LeaseBoot { boot: "boot".into(), mono: 0 });
        for number in 0..live {
            restore(Record::LeaseGranted {
                id: format!("live-{number}").into(),
                session: format!("s{}", number % 100).into(),
                peer: format!("p{}", number % 7).into(),
                kind: kind.word().into(),
                value: kind.value(number).into(),
                mode: Mode::Exclusive,
                ttl_secs: 604_800,
                reason: "".into(),
                wall: 0,
                mono: 0,
                listed: false,
                place: None,
            });
        }
        for number in 0..WAITERS {
            restore(Record::LeaseQueued {
                id: format!("waits-{number}").into(),
                session: format!("w{number}").into(),
                peer: "p0".into(),
                kind: kind.word().into(),
                value: kind.value(0).into(),
            });
        }
        let port = Nothing { newest, answer: None };
        Self { host: Host::new(node, newest), port, kind, millis: 0, claimed: live }
    }

    const fn now(&self) -> Now {
        Now {
            mono: Mono::from_nanos(1 + self.millis * 1_000_000),
            wall: Wall::from_millis(1_700_000_000_000 + self.millis),
        }
    }

    fn ask(&mut self, ask: Ask) -> Outcome {
        let now = self.now();
        self.host.command(now, Command::Lease { authority: None, ask });
        while self.host.settle(now, &mut self.port) {}
        self.host.persisted(now, self.port.newest);
        while self.host.settle(now, &mut self.port) {}
        match self.port.answer.take() {
            Some(Answer::Lease { result: Ok(Answered::Granted { lease, .. }), .. }) => {
                Outcome::Granted(lease)
            }
            Some(Answer::Lease { result: Ok(Answered::Other(outcome)), .. }) => outcome,
            other => panic!("no answer about leases: {other:?}"),
        }
    }

    fn claim(&mut self, lease: String, number: usize) -> Outcome {
        self.ask(Ask::Claim {
            lease_id: lease,
            session: "s".into(),
            kind: self.kind.word().into(),
            value: self.kind.value(number),
            mode: Mode::Exclusive,
            ttl_secs: 600,
            reason: String::new(),
            wait: None,
        })
    }

    /// Microseconds of a claim that is granted and given back.
    fn granted(&mut self) -> f64 {
        let began = Instant::now();
        for _ in 0..CLAIMS {
            self.claimed += 1;
            let lease = format!("l{}", self.claimed);
            assert!(matches!(self.claim(lease.clone(), self.claimed), Outcome::Granted(_)), "it is free");
            let outcome = self.ask(Ask::Release { lease_id: lease, session: "s".into() });
            assert_eq!(outcome, Outcome::Released);
        }
        micros(began.elapsed())
    }

    /// Microseconds of a claim of what is held and waited for.
    fn refused(&mut self) -> f64 {
        let began = Instant::now();
        for _ in 0..CLAIMS {
            self.claimed += 1;
            let lease = format!("l{}", self.claimed);
            assert!(matches!(self.claim(lease, 0), Outcome::Conflict(_)), "it is held");
        }
        micros(began.elapsed())
    }
}

fn micros(took: Duration) -> f64 {
    took.as_secs_f64() * 1e6 / CLAIMS as f64
}

fn main() {
    // `cargo test --benches` runs it too; it measures only when asked to.
    if !std::env::args().any(|arg| arg == "--bench") {
        return;
    }
    println!("kind     live leases   claim and release, us   a second   claim of what is held, us");
    for kind in [Kind::Exact, Kind::Paths] {
        let mut runs = SIZES.map(|live| Run::new(kind, live));
        let mut figures = SIZES.map(|_| (Vec::new(), Vec::new()));
        for _ in 0..ROUNDS {
            for (run, (granted, refused)) in runs.iter_mut().zip(&mut figures) {
                granted.push(run.granted());
                refused.push(run.refused());
            }
        }
        let medians = figures.map(|(granted, refused)| (median(granted), median(refused)));
        for (live, (granted, refused)) in SIZES.iter().zip(medians) {
            println!("{kind:?}    {live:>8} {granted:>20.1} {:>15.0} {refused:>18.1}", 1e6 / granted);
        }
        let [(few, few_held), (many, many_held)] = medians;
        println!("         ratio {:>22.2} {:>34.2}", many / few, many_held / few_held);
    }
}
