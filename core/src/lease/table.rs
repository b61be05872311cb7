//! The leases: found by id, listed by grant, ended by deadline.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use core::time::Duration;

use slab::Slab;

use super::Ended;
use super::owners::OwnerIndex;
use super::resources::ResourceIndex;
use crate::journal::Seq;
use crate::message::lease::Mode;
use crate::time::{Mono, Wall};
use crate::timers::DeadlineQueue;

/// Leases that hold at once.
pub(super) const MAX_LEASES: usize = 1 << 18;
/// Leases of one peer that hold at once.
pub(super) const MAX_LEASES_PER_PEER: usize = 1 << 14;
/// Ended leases whose ids are remembered, so that a late repeat of a claim is not granted again.
pub const MAX_SETTLED: usize = 1 << 13;

/// A lease's place while it holds.
pub(super) type Slot = u32;

/// A lease that was granted and has not ended.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) id: Box<str>,
    pub(super) owner: OwnerIndex,
    /// The resource that it keeps from others; none for an advisory lease.
    pub(super) holds: Option<ResourceIndex>,
    pub(super) kind: Box<str>,
    pub(super) value: Box<str>,
    pub(super) mode: Mode,
    pub(super) ttl: Duration,
    pub(super) reason: Box<str>,
    pub(super) granted: Mono,
    pub(super) acquired: Wall,
    /// The number of its grant: its fencing token.
    pub(super) token: Seq,
}

/// A lease that ended.
#[derive(Clone, Debug)]
pub(super) struct Settled {
    pub(super) session: Box<str>,
    pub(super) peer: Box<str>,
    pub(super) how: Ended,
    /// The request that gave it back.
    pub(super) request_id: Box<str>,
}

#[derive(Debug)]
pub(super) enum Known {
    Active(Slot),
    Settled(Settled),
}

#[derive(Debug, Default)]
pub(super) struct Table {
    rows: Slab<Row>,
    by_id: BTreeMap<Box<str>, Known>,
    by_token: BTreeMap<Seq, Slot>,
    due: DeadlineQueue,
    /// Ids of ended leases, the oldest first.
    settled: VecDeque<Box<str>>,
}

impl Table {
    pub(super) fn get(&self, slot: Slot) -> &Row {
        &self.rows[slot as usize]
    }

    pub(super) fn find(&self, id: &str) -> Option<&Known> {
        self.by_id.get(id)
    }

    pub(super) fn slot_of(&self, token: Seq) -> Option<Slot> {
        self.by_token.get(&token).copied()
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Leases that hold, and ended ones that are remembered.
    pub(super) fn rows(&self) -> usize {
        self.by_id.len()
    }

    pub(super) fn insert(&mut self, row: Row) -> Slot {
        let (id, token) = (row.id.clone(), row.token);
        let slot = self.rows.insert(row) as Slot;
        let before = self.by_id.insert(id, Known::Active(slot));
        debug_assert!(before.is_none(), "an id is granted once");
        self.by_token.insert(token, slot);
        slot
    }

    /// Ends a lease, and remembers its id.
    pub(super) fn settle(&mut self, slot: Slot, settled: Settled) -> Row {
        self.due.set(slot, None);
        let row = self.rows.remove(slot as usize);
        self.by_token.remove(&row.token);
        self.by_id.remove(&row.id);
        self.remember(row.id.clone(), settled);
        row
    }

    pub(super) fn remember(&mut self, id: Box<str>, settled: Settled) {
        if self.settled.len() >= MAX_SETTLED
            && let Some(oldest) = self.settled.pop_front()
        {
            self.by_id.remove(&oldest);
        }
        self.by_id.insert(id.clone(), Known::Settled(settled));
        self.settled.push_back(id);
    }

    /// The newest grant first.
    pub(super) fn newest_first(&self) -> impl Iterator<Item = (Slot, &Row)> {
        self.by_token.values().rev().map(|slot| (*slot, self.get(*slot)))
    }

    /// The oldest grant first.
    pub(super) fn oldest_first(&self) -> impl Iterator<Item = (Slot, &Row)> {
        self.by_token.values().map(|slot| (*slot, self.get(*slot)))
    }

    /// Ended leases, the oldest end first.
    pub(super) fn settled(&self) -> impl Iterator<Item = (&str, &Settled)> {
        self.settled.iter().filter_map(|id| match self.by_id.get(id)? {
            Known::Settled(settled) => Some((&**id, settled)),
            Known::Active(_) => None,
        })
    }

    pub(super) fn arm(&mut self, slot: Slot, due: Mono) {
        self.due.set(slot, Some(due));
    }

    pub(super) fn pop_due(&mut self, now: Mono) -> Option<Slot> {
        self.due.pop_due(now)
    }

    pub(super) fn deadline(&self) -> Option<Mono> {
        self.due.deadline()
    }

    /// The clock starts anew: each lease was granted now, as far as time goes.
    pub(super) fn reboot(&mut self, now: Mono) {
        for (_, row) in &mut self.rows {
            row.granted = now;
        }
    }
}
