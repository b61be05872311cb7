//! Laws over random runs.

use alloc::collections::BTreeMap;

use quickcheck::{Arbitrary, Gen, quickcheck};

use super::*;
use crate::lease::{PATH_GLOB, paths_overlap};

/// What a random run does.
#[derive(Clone, Debug)]
enum Act {
    Claim { who: u8, id: u8, what: u8, wait: bool },
    Release { who: u8, id: u8 },
    Heard { from: u8, sessions: u8 },
    Pass(u8),
    Skip(u8),
    Restart { reboot: bool },
    Fail,
    Resume,
}

impl Arbitrary for Act {
    fn arbitrary(g: &mut Gen) -> Self {
        let byte = u8::arbitrary;
        match byte(g) % 16 {
            0..=5 => Self::Claim { who: byte(g), id: byte(g), what: byte(g), wait: bool::arbitrary(g) },
            6 | 7 => Self::Release { who: byte(g), id: byte(g) },
            8 | 9 => Self::Heard { from: byte(g), sessions: byte(g) },
            10 | 11 => Self::Pass(byte(g)),
            12 => Self::Skip(byte(g)),
            13 => Self::Restart { reboot: bool::arbitrary(g) },
            14 => Self::Fail,
            _ => Self::Resume,
        }
    }
}

const WHO: [&str; 4] = ["a@p", "b@p", "a@q", "c@r"];
const WHAT: [&str; 5] = ["res:x", "path_glob:src/**", "path_glob:src/a", "path_glob:*.rs", "path_glob:a.rs"];

impl Rig {
    fn act(&mut self, act: &Act, places: &mut BTreeMap<String, String>, boots: &mut u32) {
        match act {
            Act::Claim { who, id, what, wait } => {
                let (who, what) = (WHO[usize::from(who % 4)], WHAT[usize::from(what % 5)]);
                let id = format!("l{}", id % 24);
                let key = format!("{who} {id}");
                let waiter_id = places.get(&key).cloned();
                let asked = LeaseClaim { wait: *wait, waiter_id, ttl_secs: 30, ..claim(who, &id, what) };
                let outcome = self.ask(who, asked);
                if let Outcome::Queued { waiter_id, .. } = outcome {
                    places.insert(key, waiter_id);
                } else if matches!(outcome, Outcome::Granted(_) | Outcome::WaiterGone) {
                    places.remove(&key);
                }
            }
            Act::Release { who, id } => {
                let id = format!("l{}", id % 24);
                self.release(WHO[usize::from(who % 4)], &id);
            }
            Act::Heard { from, sessions } => {
                let named: Vec<_> =
                    ["a", "b", "c"].into_iter().enumerate().filter(|(n, _)| sessions >> n & 1 == 1).collect();
                let named: Vec<_> = named.into_iter().map(|(_, session)| session).collect();
                self.heard(["p", "q", "r"][usize::from(from % 3)], &named);
            }
            Act::Pass(by) => self.pass(secs((by % 64).into())),
            Act::Skip(by) => self.skip(secs((by % 64).into())),
            Act::Restart { reboot } => {
                *boots += u32::from(*reboot);
                self.restart(&format!("boot-{boots}"));
            }
            Act::Fail => self.fail(),
            Act::Resume => self.resume(),
        }
    }

    /// Leases that the journal says are held at the end of it: token, owner, resource.
    fn held_by_journal(&self) -> Vec<(u64, String, String)> {
        let mut held: Vec<(u64, String, String)> = Vec::new();
        for (bytes, seq) in self.journal.iter().zip(1_u64..) {
            let record = Record::read(bytes).expect("a record");
            if let Record::LeaseEnded { token, .. } = &record {
                held.retain(|(other, ..)| other != token);
            }
            if let Record::LeaseGranted { session, peer, kind, value, mode: Mode::Exclusive, .. } = record {
                let new = (seq, format!("{session}@{peer}"), format!("{kind}:{value}"));
                for (_, owner, resource) in &held {
                    assert!(
                        *owner == new.1 || !overlap(resource, &new.2),
                        "{owner} holds {resource}: {new:?}"
                    );
                }
                held.push(new);
            }
        }
        held
    }
}

fn overlap(one: &str, other: &str) -> bool {
    let ((one_kind, one), (other_kind, other)) =
        (one.split_once(':').expect("a name"), other.split_once(':').expect("a name"));
    one_kind == other_kind && if one_kind == PATH_GLOB { paths_overlap(one, other) } else { one == other }
}

quickcheck! {
    /// S1: of what overlaps one owner holds at a time, as the journal tells it; and the state is what the journal says.
    fn one_owner_holds_what_overlaps_and_the_state_is_what_the_journal_says(acts: Vec<Act>) -> bool {
        let (mut rig, mut places, mut boots) = (Rig::new(), BTreeMap::new(), 1);
        let mut snapshot = (rig.image(), rig.journal.len());
        for (n, act) in acts.iter().enumerate() {
            rig.act(act, &mut places, &mut boots);
            let boot = format!("boot-{boots}");
            assert_eq!(image(&rig.restored(&boot)), rig.image(), "after {act:?}");
            assert_eq!(image(&rig.restored_from(&snapshot, &boot)), rig.image(), "behind a snapshot, after {act:?}");
            if n % 8 == 7 {
                snapshot = (rig.image(), rig.journal.len());
                assert_eq!(image(&rig.restored_from(&snapshot, &boot)), rig.image(), "a snapshot after {act:?}");
            }
        }
        rig.held_by_journal().len() <= rig.authority.table.len()
    }

    /// S2: of two leases on one resource the later has the higher fencing token, across restarts too.
    fn fencing_tokens_never_fall(acts: Vec<Act>) -> bool {
        let (mut rig, mut places, mut boots, mut last) = (Rig::new(), BTreeMap::new(), 1, 0);
        for act in &acts {
            let seen = rig.changes.len();
            rig.act(act, &mut places, &mut boots);
            for change in rig.changes[seen..].iter().filter(|change| change.lapse == Lapse::Granted) {
                assert!(change.fencing_token > last, "{change:?} after {last}");
                last = change.fencing_token;
            }
        }
        true
    }

    /// S4, as a metamorphic law: steps of the wall clock change no grant and no end.
    fn wall_clock_steps_change_nothing(acts: Vec<Act>, steps: Vec<i32>) -> bool {
        let run = |steps: &[i32]| {
            let (mut rig, mut places, mut boots) = (Rig::new(), BTreeMap::new(), 1);
            for (n, act) in acts.iter().enumerate() {
                let step = steps.get(n % steps.len().max(1)).copied().unwrap_or(0);
                let wall = rig.now.wall.as_millis().saturating_add_signed(i64::from(step) * 1000);
                rig.now.wall = Wall::from_millis(wall);
                rig.act(act, &mut places, &mut boots);
            }
            rig.changes.iter().map(|change| (change.id.clone(), change.lapse)).collect::<Vec<_>>()
        };
        run(&steps) == run(&[])
    }
}
