//! The authority alone: a scenario builder here; the rules one by one, and laws over random runs, in the files below.

mod bounds;
mod claims;
mod durable;
mod laws;
mod time;

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use super::*;
use crate::message::lease::{LeaseClaim, Mode};
use crate::time::Wall;

/// An authority, its clock and its journal.
struct Rig {
    authority: Authority,
    now: Now,
    journal: Vec<Box<[u8]>>,
    changes: Vec<Change>,
    requests: u64,
}

struct Desk<'a> {
    journal: &'a mut Vec<Box<[u8]>>,
    changes: &'a mut Vec<Change>,
}

impl Effects for Desk<'_> {
    fn record(&mut self, record: &Record<'_>) -> Seq {
        let mut bytes = Vec::new();
        record.write(&mut bytes);
        self.journal.push(bytes.into());
        Seq::new(self.journal.len() as u64)
    }

    fn changed(&mut self, change: Change) {
        self.changes.push(change);
    }
}

fn peer(id: &str) -> PeerId {
    PeerId::parse(id).expect("a peer id")
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// `session@peer`, apart.
fn owner(name: &str) -> (&str, PeerId) {
    let (session, of) = name.split_once('@').expect("an owner is session@peer");
    (session, peer(of))
}

fn claim(name: &str, id: &str, resource: &str) -> LeaseClaim {
    let (kind, value) = resource.split_once(':').expect("a resource is kind:value");
    LeaseClaim {
        request_id: String::new(),
        lease_id: id.into(),
        session: owner(name).0.into(),
        kind: kind.into(),
        value: value.into(),
        mode: Mode::Exclusive,
        ttl_secs: 60,
        reason: String::new(),
        wait: false,
        waiter_id: None,
    }
}

impl Rig {
    fn new() -> Self {
        let now = Now { mono: Mono::from_nanos(1_000_000_000), wall: Wall::from_millis(1_700_000_000_000) };
        let mut rig = Self {
            authority: Authority::new(BootId::new("boot-1")),
            now,
            journal: Vec::new(),
            changes: Vec::new(),
            requests: 0,
        };
        rig.run(|authority, now, desk| authority.start(now, desk));
        rig
    }

    fn run<T>(&mut self, act: impl FnOnce(&mut Authority, Now, &mut Desk<'_>) -> T) -> T {
        let mut desk = Desk { journal: &mut self.journal, changes: &mut self.changes };
        let result = act(&mut self.authority, self.now, &mut desk);
        if !self.authority.is_failing() {
            self.authority.persisted(Seq::new(self.journal.len() as u64));
        }
        result
    }

    fn ask(&mut self, name: &str, mut claim: LeaseClaim) -> Outcome {
        if claim.request_id.is_empty() {
            self.requests += 1;
            claim.request_id = format!("r{}", self.requests);
        }
        let (_, peer) = owner(name);
        self.run(|authority, now, desk| authority.claim(now, &peer, &claim, desk))
    }

    fn claim(&mut self, name: &str, id: &str, resource: &str) -> Outcome {
        self.ask(name, claim(name, id, resource))
    }

    fn wait(&mut self, name: &str, id: &str, resource: &str) -> Outcome {
        self.ask(name, LeaseClaim { wait: true, ..claim(name, id, resource) })
    }

    fn poll(&mut self, name: &str, id: &str, resource: &str, waiter_id: &str) -> Outcome {
        let waiter_id = Some(waiter_id.into());
        self.ask(name, LeaseClaim { wait: true, waiter_id, ..claim(name, id, resource) })
    }

    fn release(&mut self, name: &str, id: &str) -> Outcome {
        self.requests += 1;
        let request_id = format!("r{}", self.requests);
        self.release_as(name, id, &request_id)
    }

    fn release_as(&mut self, name: &str, id: &str, request_id: &str) -> Outcome {
        let (session, peer) = owner(name);
        let release =
            LeaseRelease { request_id: request_id.into(), lease_id: id.into(), session: session.into() };
        self.run(|authority, now, desk| authority.release(now, &peer, &release, desk))
    }

    fn heard(&mut self, from: &str, sessions: &[&str]) {
        let peer = peer(from);
        self.run(|authority, now, desk| {
            authority.heard(now, &peer, |visit| sessions.iter().for_each(|session| visit(session)), desk);
        });
    }

    /// Time runs on, and whatever is due on the way happens at its instant.
    fn pass(&mut self, span: Duration) {
        let end = self.now.mono.after(span);
        while let Some(due) = self.authority.deadline().filter(|due| *due <= end) {
            self.step_to(due.max(self.now.mono));
            self.run(|authority, now, desk| authority.fire(now, desk));
        }
        self.step_to(end);
    }

    /// Time runs on without a timer.
    fn skip(&mut self, span: Duration) {
        self.step_to(self.now.mono.after(span));
    }

    fn step_to(&mut self, mono: Mono) {
        let by = mono.since(self.now.mono).as_millis() as u64;
        self.now = Now { mono, wall: Wall::from_millis(self.now.wall.as_millis() + by) };
    }

    fn list(&mut self) -> Vec<String> {
        let Outcome::List { leases, .. } = self.run(|authority, now, _| authority.list(now)) else {
            panic!("a list is answered with a list")
        };
        leases.into_iter().map(|lease| lease.id).collect()
    }

    fn fail(&mut self) {
        self.authority.persist_failed();
    }

    fn resume(&mut self) {
        self.run(|authority, now, desk| {
            let upto = Seq::new(desk.journal.len() as u64);
            authority.resumed(now, upto, desk);
        });
    }

    /// kill -9, and a start with what the journal has, on this or another start of the machine.
    fn restart(&mut self, boot: &str) {
        self.authority = self.restored(boot);
        self.run(|authority, now, desk| authority.start(now, desk));
    }

    fn restored(&self, boot: &str) -> Authority {
        self.restored_from(&(String::new(), 0), boot)
    }

    /// What a snapshot and the records behind it restore.
    fn restored_from(&self, (snapshot, upto): &(String, usize), boot: &str) -> Authority {
        let mut authority = Authority::new(BootId::new(boot));
        authority.restore_snapshot(snapshot.as_bytes()).expect("a snapshot that was written");
        for (record, seq) in self.journal.iter().zip(1..).skip(*upto) {
            let record = Record::read(record).expect("a record that was written");
            authority.restore(Seq::new(seq), record).expect("a journal that was written");
        }
        authority
    }

    fn image(&self) -> String {
        image(&self.authority)
    }
}

/// All that an authority holds that must outlive it.
fn image(authority: &Authority) -> String {
    let mut snapshot = Vec::new();
    authority.snapshot(&mut snapshot);
    String::from_utf8(snapshot).expect("a snapshot is text")
}

fn granted(outcome: Outcome) -> Lease {
    let Outcome::Granted(lease) = outcome else { panic!("not granted: {outcome:?}") };
    lease
}

fn waits(outcome: Outcome) -> String {
    let Outcome::Queued { waiter_id, .. } = outcome else { panic!("not queued: {outcome:?}") };
    waiter_id
}

fn is_error(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Error(_))
}
