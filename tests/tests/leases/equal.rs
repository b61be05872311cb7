//! What a journal on a real disk restores is what the node was.

use std::path::Path;
use std::time::Duration;

use relay_core::action::{ActId, Action};
use relay_core::host::Host;
use relay_core::journal::{Journal, Records, Seq};
use relay_core::lease::{Ask, BootId, Patience};
use relay_core::machine::{ConnId, Durable, ListenerId, Refused, Target, Ticket};
use relay_core::message::RawValue;
use relay_core::message::lease::Mode;
use relay_core::peer::{Answer, Command, Event, Node, Report, Settings};
use relay_core::port::{Ending, Port, Wrote};
use relay_core::time::{Mono, Now, Wall};
use relay_node::journal::SqliteJournal;
use relay_tests::fleet::id;

use crate::Dice;

const ACTS: usize = 540;
/// Records between two snapshots that the node gives its journal.
const SNAPSHOT_EVERY: u64 = 40;

const SESSIONS: [&str; 3] = ["a", "b", "c"];
const RESOURCES: [(&str, &str); 5] = [
    ("res", "x"),
    ("path_glob", "src/**"),
    ("path_glob", "src/a"),
    ("path_glob", "*.rs"),
    ("path_glob", "a.rs"),
];

/// Appends at once, and remembers what is durable.
struct Disk {
    journal: SqliteJournal,
    cuts: usize,
}

impl Port<Node> for Disk {
    fn append(&mut self, records: Records) {
        let epoch = self.journal.epoch();
        self.journal.append(epoch, &records).unwrap();
        if let Some((upto, snapshot)) = records.snapshot() {
            self.journal.put_snapshot(upto, snapshot).unwrap();
            self.cuts += 1;
        }
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

    fn answer(&mut self, _: Ticket, _: Result<Answer, Refused>) {}
}

fn node() -> Node {
    let mut settings = Settings::new(id("relay"));
    settings.boot = BootId::new("boot");
    settings.snapshot_every = SNAPSHOT_EVERY;
    Node::new(settings, [1; 32], Vec::new(), None)
}

/// A node as a start makes it.
fn restored(journal: &mut SqliteJournal) -> Node {
    let mut node = node();
    if let Some((_, snapshot)) = journal.snapshot().unwrap() {
        node.restore_snapshot(&snapshot).unwrap();
    }
    journal.replay(Seq::new(1), &mut |seq, record| node.restore(seq, record).unwrap()).unwrap();
    node
}

fn image(node: &Node) -> String {
    let mut image = Vec::new();
    node.snapshot(&mut image);
    String::from_utf8(image).unwrap()
}

/// A node, its clock and its disk, in one thread.
struct Run {
    host: Host<Node>,
    disk: Disk,
    now: Now,
    dice: Dice,
}

impl Run {
    fn new(path: &Path, now: Now, dice: Dice) -> Self {
        let mut journal = SqliteJournal::open(path).unwrap();
        let (node, newest) = (restored(&mut journal), journal.newest());
        Self { host: Host::new(node, newest), disk: Disk { journal, cuts: 0 }, now, dice }
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.dice.below(of.len() as u64) as usize]
    }

    fn settle(&mut self) {
        loop {
            let more = self.host.settle(self.now, &mut self.disk);
            let newest = self.disk.journal.newest();
            self.host.persisted(self.now, newest);
            if !more {
                break;
            }
        }
        // What became durable may have led to more.
        while self.host.settle(self.now, &mut self.disk) {}
    }

    fn tell(&mut self, command: Command) {
        self.host.command(self.now, command);
        self.settle();
    }

    /// Time runs on, and whatever is due on the way happens at its instant.
    fn pass(&mut self, span: Duration) {
        let end = self.now.mono.after(span);
        while let Some(due) = self.host.deadline().filter(|due| *due <= end) {
            self.step_to(due.max(self.now.mono));
            self.host.timer(self.now);
            self.settle();
        }
        self.step_to(end);
    }

    fn step_to(&mut self, mono: Mono) {
        let by = mono.since(self.now.mono).as_millis() as u64;
        self.now = Now { mono, wall: Wall::from_millis(self.now.wall.as_millis() + by) };
    }

    fn act(&mut self) {
        let lease_id = format!("l{}", self.dice.below(400));
        let session = self.pick(&SESSIONS).to_owned();
        match self.dice.below(10) {
            0..=4 => {
                let (kind, value) = self.pick(&RESOURCES);
                let wait = (self.dice.below(2) == 0).then_some(Patience::For(Duration::from_secs(20)));
                let (kind, value) = (kind.to_owned(), value.to_owned());
                let mode = self.pick(&[Mode::Exclusive, Mode::Exclusive, Mode::Advisory]);
                let reason = "said \"so\"".to_owned();
                let ask = Ask::Claim { lease_id, session, kind, value, mode, ttl_secs: 15, reason, wait };
                self.tell(Command::Lease { authority: None, ask });
            }
            5 | 6 => {
                self.tell(Command::Lease { authority: None, ask: Ask::Release { lease_id, session } });
            }
            7 => {
                let some = self.dice.below(8);
                let live = SESSIONS.iter().enumerate().filter(|(n, _)| some >> n & 1 == 1);
                let live: Vec<_> =
                    live.map(|(_, session)| format!(r#"{{"session_id":"{session}"}}"#)).collect();
                let sessions = RawValue::from_string(format!("[{}]", live.join(","))).unwrap();
                self.tell(Command::Report(Report { sessions: Some(sessions), ..Report::default() }));
            }
            _ => {
                let span = Duration::from_millis(self.dice.below(8000));
                self.pass(span);
            }
        }
    }
}

fn assert_same(restored: &str, live: &str, act: usize) {
    if restored == live {
        return;
    }
    let only = |one: &str, other: &str| -> Vec<String> {
        one.lines().filter(|line| !other.lines().any(|other| other == *line)).map(str::to_owned).collect()
    };
    let (more, less) = (only(restored, live), only(live, restored));
    panic!("behind act {act} the disk restores also {more:#?}, and not {less:#?}");
}

#[test]
fn after_any_run_the_disk_restores_what_the_node_was() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("link.db");
    let now = Now { mono: Mono::from_nanos(1), wall: Wall::from_millis(1_700_000_000_000) };
    let mut run = Run::new(&path, now, Dice::new(3));
    let (mut cuts, mut most) = (0, 0);
    for act in 1..=ACTS {
        run.act();
        let live = image(run.host.machine());
        most = most.max(live.len());
        assert_same(&image(&restored(&mut run.disk.journal)), &live, act);
        if act % 90 == 0 {
            // kill -9, and a start.
            let (now, dice) = (run.now, Dice::new(act as u64));
            cuts += run.disk.cuts;
            drop(run);
            run = Run::new(&path, now, dice);
            assert_same(&image(run.host.machine()), &live, act);
        }
    }
    assert!(cuts > 3 && most > 1000, "the run was one of {cuts} cuts and at most {most} bytes");
}
