//! The authority: what each request leads to.

mod claim;
mod renewal;
mod restore;
mod view;

use alloc::collections::VecDeque;
use alloc::string::String;

use serde::{Deserialize, Serialize};

use super::owners::{OwnerIndex, Owners, SideIndex};
use super::record::{BootId, Record};
use super::resources::{Resources, WaiterIndex};
use super::table::{Known, Row, Settled, Slot, Table};
use crate::journal::Seq;
use crate::message::lease::{Lease, LeaseRelease, Outcome};
use crate::text::PeerId;
use crate::time::{Mono, Now};

/// Leases and places that one step ends; what is left is due a tick later.
const BATCH: usize = 1024;
const FAILING: &str = "the authority's journal fails: nothing is granted or released until it works again";

/// Grants the fleet's leases.
///
/// ```text
///                    ┌── claim, the resource is free ─────────────────────────┐
///                    │                                                        ▼
///  (nothing) ── claim with `wait` ──▶ waiting ── poll, at the head, free ──▶ active ──▶ released
///                                        │                                    │
///                                        └─ 10 s without a poll ─▶ (nothing)  └─ TTL behind the last renewal ─▶ expired
/// ```
///
/// A lease that ended is remembered by its id, so that a late repeat of its claim is told, not granted.
///
/// Whether a lease holds is judged by time alone: at the instant at which it ends it is free to be claimed, whether its
/// timer has run or not. Every change is recorded before its answer leaves, and the state is what the records say.
///
/// While the journal fails nothing changes: claims and releases are refused, what is durable is still told, and a lease
/// whose time is over stays with its owner until its end can be recorded.
#[derive(Debug, Default)]
pub struct Authority {
    boot: BootId,
    /// The start of the machine that restored records count from.
    restored: Option<BootId>,
    owners: Owners,
    table: Table,
    resources: Resources,
    /// Leases that ended and whose end is not durable yet, as they were.
    ending: VecDeque<(Seq, Lease)>,
    durable: Seq,
    failing: bool,
}

/// Where a change of the leases goes.
pub trait Effects {
    /// Records it, and returns its number.
    fn record(&mut self, record: &Record<'_>) -> Seq;

    /// Tells that it happened.
    fn changed(&mut self, change: Change);
}

/// A lease that was granted, or ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    /// The requester's name for it.
    pub id: String,
    /// `kind:value`.
    pub resource: String,
    /// `session@peer`.
    pub owner: String,
    /// What happened.
    pub lapse: Lapse,
    /// Its fencing token.
    pub fencing_token: u64,
}

/// What happened to a lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(clippy::exhaustive_enums)]
pub enum Lapse {
    /// It was granted.
    Granted,
    /// It ended so.
    Ended(Ended),
}

/// How a lease ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(clippy::exhaustive_enums)]
pub enum Ended {
    /// Its owner gave it back.
    Released,
    /// Nothing renewed it.
    Expired,
}

impl Ended {
    /// The word for it, on the wire too.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Released => "released",
            Self::Expired => "expired",
        }
    }
}

impl Lapse {
    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Granted => "granted",
            Self::Ended(how) => how.as_str(),
        }
    }
}

impl Authority {
    /// An authority without leases, on the start of the machine that its clock counts from. Restore before the first
    /// request, then [`start`](Self::start).
    #[must_use]
    pub fn new(boot: BootId) -> Self {
        Self { boot, ..Self::default() }
    }

    /// A session of `peer` gives a lease back. A place in a queue is given up, which is not told.
    pub fn release(
        &mut self,
        now: Now,
        peer: &PeerId,
        release: &LeaseRelease,
        effects: &mut impl Effects,
    ) -> Outcome {
        let side = self.owners.enter_side(peer);
        if let Some(answered) = self.owners.side(side).answers.get(&release.request_id, &release.lease_id) {
            return answered.clone();
        }
        let outcome = self.judge_release(now, side, release, effects);
        if !matches!(outcome, Outcome::Error(_)) {
            let answers = &mut self.owners.side_mut(side).answers;
            answers.keep(now.mono, &release.request_id, &release.lease_id, outcome.clone());
        }
        outcome
    }

    fn judge_release(
        &mut self,
        now: Now,
        side: SideIndex,
        release: &LeaseRelease,
        effects: &mut impl Effects,
    ) -> Outcome {
        let owner = self.owners.find(side, &release.session);
        match self.table.find(&release.lease_id) {
            Some(Known::Active(slot)) => {
                let slot = *slot;
                let holder = self.table.get(slot).owner;
                if Some(holder) != owner {
                    Outcome::NotOwner { holder: Some(self.owners.name(holder)) }
                } else if self.failing {
                    Outcome::Error(FAILING.into())
                } else if self.holds(slot, now.mono) {
                    self.end(slot, Ended::Released, &release.request_id, now, effects);
                    Outcome::Released
                } else {
                    self.end(slot, Ended::Expired, "", now, effects);
                    Outcome::NotActive { status: Some(Ended::Expired.as_str().into()) }
                }
            }
            Some(Known::Settled(settled)) => {
                let peer = self.owners.side(side).id.as_str();
                if *settled.session != *release.session || *settled.peer != *peer {
                    let holder = alloc::format!("{}@{}", settled.session, settled.peer);
                    Outcome::NotOwner { holder: Some(holder) }
                } else if settled.how == Ended::Released && *settled.request_id == *release.request_id {
                    Outcome::Released
                } else {
                    Outcome::NotActive { status: Some(settled.how.as_str().into()) }
                }
            }
            None => {
                let waiter = owner.and_then(|owner| self.resources.of_lease(owner, &release.lease_id));
                if let Some(waiter) = waiter {
                    if self.failing {
                        return Outcome::Error(FAILING.into());
                    }
                    self.unqueue(waiter, effects);
                }
                Outcome::NotFound
            }
        }
    }

    /// The active leases, the newest first, as many as fit a frame: [`Self::LIST_BYTES`].
    #[must_use]
    pub fn list(&self, now: Now) -> Outcome {
        let (leases, truncated) = self.view_list(now);
        Outcome::List { leases, truncated }
    }

    /// Ends what is due, up to a batch. Before the [`deadline`](Self::deadline) nothing.
    pub fn fire(&mut self, now: Now, effects: &mut impl Effects) {
        if self.failing {
            return;
        }
        for _ in 0..BATCH {
            let Some(slot) = self.table.pop_due(now.mono) else { break };
            if self.holds(slot, now.mono) {
                self.table.arm(slot, self.ends_at(slot));
            } else {
                self.end(slot, Ended::Expired, "", now, effects);
            }
        }
        for _ in 0..BATCH {
            let Some(waiter) = self.resources.pop_due(now.mono) else { break };
            self.unqueue(waiter, effects);
        }
    }

    /// When something ends next; nothing while the journal fails.
    #[must_use]
    pub fn deadline(&self) -> Option<Mono> {
        if self.failing {
            return None;
        }
        [self.table.deadline(), self.resources.deadline()].into_iter().flatten().min()
    }

    /// Every record up to here is durable.
    pub fn persisted(&mut self, upto: Seq) {
        self.durable = self.durable.max(upto);
        while self.ending.front().is_some_and(|(seq, _)| *seq <= self.durable) {
            self.ending.pop_front();
        }
    }

    /// The journal fails: nothing changes until [`resumed`](Self::resumed).
    pub fn persist_failed(&mut self) {
        self.failing = true;
    }

    /// The journal works again.
    pub fn resumed(&mut self, now: Now, upto: Seq, effects: &mut impl Effects) {
        self.failing = false;
        self.persisted(upto);
        self.hear_deferred(now, effects);
    }

    /// Whether the journal fails, so that answers rest on what is durable alone and need not wait.
    #[must_use]
    pub const fn is_failing(&self) -> bool {
        self.failing
    }

    /// Leases, places in queues and ended leases: what a snapshot has a line for.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.table.rows() + self.resources.waiting()
    }

    /// Reports what it holds, each value under a stable name.
    pub fn gauges(&self, sink: &mut dyn FnMut(&'static str, u64)) {
        sink("leases", self.table.len() as u64);
        sink("lease_waiters", self.resources.waiting() as u64);
        sink("lease_owners", self.owners.len() as u64);
    }

    /// Whether a lease holds at an instant.
    fn holds(&self, slot: Slot, at: Mono) -> bool {
        self.ends_at(slot) > at
    }

    /// When a lease ends, unless something renews it further.
    fn ends_at(&self, slot: Slot) -> Mono {
        let row = self.table.get(slot);
        row.granted.max(self.owners.renews_until(row.owner)).after(row.ttl)
    }

    fn end(&mut self, slot: Slot, how: Ended, request_id: &str, now: Now, effects: &mut impl Effects) {
        let row = self.table.get(slot);
        let (owner, token) = (row.owner, row.token);
        let record = Record::LeaseEnded { token: token.number(), how, request_id: request_id.into() };
        let seq = effects.record(&record);
        effects.changed(self.change(row, Lapse::Ended(how)));
        self.ending.push_back((seq, self.view(now, row, self.owners.renews_until(owner))));
        self.settle(slot, how, request_id);
        self.owners.leave(owner);
    }

    /// Takes an ended lease out of every table but that of ended ones.
    fn settle(&mut self, slot: Slot, how: Ended, request_id: &str) {
        let owner = self.table.get(slot).owner;
        let held = self.owners.get_mut(owner);
        held.remove_lease(slot);
        let (session, side) = (held.session.clone(), held.side);
        let side = self.owners.side_mut(side);
        side.leases -= 1;
        let peer = side.id.as_str().into();
        let settled = Settled { session, peer, how, request_id: request_id.into() };
        let row = self.table.settle(slot, settled);
        if let Some(resource) = row.holds {
            self.resources.unhold(resource, slot);
        }
    }

    fn unqueue(&mut self, waiter: WaiterIndex, effects: &mut impl Effects) {
        let place = self.resources.waiter(waiter).place;
        effects.record(&Record::LeaseUnqueued { place: place.number() });
        self.drop_waiter(waiter);
    }

    fn drop_waiter(&mut self, waiter: WaiterIndex) {
        let owner = self.resources.dequeue(waiter).owner;
        let held = self.owners.get_mut(owner);
        held.waiters.remove(&waiter);
        let side = held.side;
        self.owners.side_mut(side).waiters -= 1;
        self.owners.leave(owner);
    }

    /// Puts a granted lease into every table.
    fn hold(&mut self, row: Row) -> Slot {
        let (owner, holds) = (row.owner, row.holds);
        let slot = self.table.insert(row);
        let held = self.owners.get_mut(owner);
        held.leases.insert(slot);
        let side = held.side;
        self.owners.side_mut(side).leases += 1;
        if let Some(resource) = holds {
            self.resources.hold(resource, slot);
        }
        slot
    }

    fn wait(&mut self, owner: OwnerIndex, lease_id: &str, kind: &str, value: &str, place: Seq, now: Mono) {
        let resource = self.resources.enter(kind, value);
        let waiter = self.resources.enqueue(resource, owner, lease_id, place, now);
        let held = self.owners.get_mut(owner);
        held.waiters.insert(waiter);
        let side = held.side;
        self.owners.side_mut(side).waiters += 1;
    }

    fn change(&self, row: &Row, lapse: Lapse) -> Change {
        Change {
            id: String::from(&*row.id),
            resource: alloc::format!("{}:{}", row.kind, row.value),
            owner: self.owners.name(row.owner),
            lapse,
            fencing_token: row.token.number(),
        }
    }
}

/// The id of a place in a queue, as a poll presents it.
fn waiter_id(place: Seq) -> String {
    alloc::format!("w{}", place.number())
}

fn place_of(waiter_id: &str) -> Option<Seq> {
    let number = waiter_id.strip_prefix('w')?.parse().ok()?;
    // As it was written, and no other spelling of the number.
    (self::waiter_id(Seq::new(number)) == waiter_id).then_some(Seq::new(number))
}

#[cfg(test)]
mod tests;
