//! What overlaps what, and who waits for it.
//!
//! A resource is here while an exclusive lease holds it or somebody waits for it. Values of
//! [`PATH_GLOB`] are found by their [`stem`]: all that can overlap a value have a stem that is a
//! prefix of its own, or has its own as a prefix, so that a look-up costs O(log n) and the candidates.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::ops::Bound;
use core::time::Duration;

use slab::Slab;

use super::overlap::{PATH_GLOB, paths_overlap, stem};
use super::owners::OwnerIndex;
use super::ranks::Ranks;
use super::table::Slot;
use crate::journal::Seq;
use crate::time::Mono;
use crate::timers::DeadlineQueue;

/// How long a place in a queue is kept without a poll.
pub const POLL_WITHIN: Duration = Duration::from_secs(10);
/// Path resources that begin with a wildcard, or are the root: every claim on a path is compared with each.
pub const MAX_WIDE: usize = 64;
/// Path resources that one claim is compared with.
pub const MAX_COMPARED: usize = 1 << 14;
/// Places in all queues together.
pub(super) const MAX_WAITERS: usize = 1 << 16;
/// Places of one peer.
pub(super) const MAX_WAITERS_PER_PEER: usize = 1 << 13;
/// Places of one owner.
pub(super) const MAX_WAITERS_PER_OWNER: usize = 64;

/// A resource's place, while it is held or waited for.
pub(super) type ResourceIndex = u32;
/// A waiter's place in the table of waiters.
pub(super) type WaiterIndex = u32;

#[derive(Debug)]
pub(super) struct Resource {
    name: Box<str>,
    kind_len: usize,
    /// Exclusive leases, by place: of one owner, or ended by time.
    pub(super) holders: BTreeSet<Slot>,
    /// Who waits, by the number of the record that says so: first come, first served.
    pub(super) queue: BTreeMap<Seq, WaiterIndex>,
    ranks: Ranks,
}

#[derive(Debug)]
pub(super) struct Waiter {
    /// The lease that is asked for.
    pub(super) lease_id: Box<str>,
    pub(super) owner: OwnerIndex,
    pub(super) resource: ResourceIndex,
    /// The number of the record that made it.
    pub(super) place: Seq,
    rank: u32,
    pub(super) polled: Mono,
}

#[derive(Debug, Default)]
pub(super) struct Resources {
    slots: Slab<Resource>,
    by_name: BTreeMap<Box<str>, ResourceIndex>,
    by_stem: BTreeMap<Box<str>, BTreeSet<ResourceIndex>>,
    waiters: Slab<Waiter>,
    by_place: BTreeMap<Seq, WaiterIndex>,
    by_lease: BTreeMap<(OwnerIndex, Box<str>), WaiterIndex>,
    due: DeadlineQueue,
}

/// More resources would have to be compared than a claim may cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TooManyCompared;

impl Resource {
    pub(super) fn kind(&self) -> &str {
        &self.name[..self.kind_len]
    }

    pub(super) fn value(&self) -> &str {
        &self.name[self.kind_len + 1..]
    }
}

/// The resources.
impl Resources {
    pub(super) fn get(&self, resource: ResourceIndex) -> &Resource {
        &self.slots[resource as usize]
    }

    /// Every resource that overlaps this one, itself among them.
    pub(super) fn overlapping(&self, kind: &str, value: &str) -> Result<Vec<ResourceIndex>, TooManyCompared> {
        let mut found = Vec::new();
        if kind != PATH_GLOB {
            found.extend(self.by_name.get(&*name(kind, value)));
            return Ok(found);
        }
        let own = stem(value);
        let mut compared = 0;
        let mut visit = |set: &BTreeSet<ResourceIndex>| {
            compared += set.len();
            found.extend(set.iter().filter(|at| paths_overlap(self.get(**at).value(), value)));
            if compared > MAX_COMPARED { Err(TooManyCompared) } else { Ok(()) }
        };
        // Stems that are a prefix of this one, the longest first: what is no prefix says how long the next can be.
        let mut upto = Bound::Included(own.to_owned());
        while let Some((key, set)) =
            self.by_stem.range::<str, _>((Bound::Unbounded, upto.as_ref().map(|s| &**s))).next_back()
        {
            if own.starts_with(&**key) {
                visit(set)?;
                upto = Bound::Excluded((**key).to_owned());
            } else {
                upto = Bound::Included(own[..common(own, key)].to_owned());
            }
        }
        let longer = self.by_stem.range::<str, _>((Bound::Excluded(own), Bound::Unbounded));
        for (_, set) in longer.take_while(|(key, _)| key.starts_with(own)) {
            visit(set)?;
        }
        Ok(found)
    }

    /// The resource's place; a new one where it is not held and not waited for.
    pub(super) fn enter(&mut self, kind: &str, value: &str) -> ResourceIndex {
        let name = name(kind, value);
        if let Some(at) = self.by_name.get(&name) {
            return *at;
        }
        let resource = Resource {
            name: name.clone(),
            kind_len: kind.len(),
            holders: BTreeSet::new(),
            queue: BTreeMap::new(),
            ranks: Ranks::default(),
        };
        let at = self.slots.insert(resource) as ResourceIndex;
        self.by_name.insert(name, at);
        if kind == PATH_GLOB {
            self.by_stem.entry(stem(value).into()).or_default().insert(at);
        }
        at
    }

    pub(super) fn hold(&mut self, resource: ResourceIndex, slot: Slot) {
        self.slots[resource as usize].holders.insert(slot);
    }

    pub(super) fn unhold(&mut self, resource: ResourceIndex, slot: Slot) {
        self.slots[resource as usize].holders.remove(&slot);
        self.leave(resource);
    }

    /// Whether this value would be compared with every path, and no more such are taken.
    pub(super) fn is_too_wide(&self, kind: &str, value: &str) -> bool {
        kind == PATH_GLOB
            && stem(value).is_empty()
            && !self.by_name.contains_key(&*name(kind, value))
            && self.by_stem.get("").is_some_and(|wide| wide.len() >= MAX_WIDE)
    }

    fn leave(&mut self, resource: ResourceIndex) {
        let at = &self.slots[resource as usize];
        if !at.holders.is_empty() || !at.queue.is_empty() {
            return;
        }
        let gone = self.slots.remove(resource as usize);
        self.by_name.remove(&gone.name);
        if gone.kind() == PATH_GLOB {
            let stem = stem(gone.value());
            if let Some(set) = self.by_stem.get_mut(stem) {
                set.remove(&resource);
                if set.is_empty() {
                    self.by_stem.remove(stem);
                }
            }
        }
    }
}

/// The queues.
impl Resources {
    pub(super) fn waiter(&self, waiter: WaiterIndex) -> &Waiter {
        &self.waiters[waiter as usize]
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiters.len()
    }

    /// All who wait, the first come first.
    pub(super) fn all_waiting(&self) -> impl Iterator<Item = (Seq, &Waiter)> {
        self.by_place.iter().map(|(place, at)| (*place, self.waiter(*at)))
    }

    pub(super) fn at_place(&self, place: Seq) -> Option<WaiterIndex> {
        self.by_place.get(&place).copied()
    }

    pub(super) fn of_lease(&self, owner: OwnerIndex, lease_id: &str) -> Option<WaiterIndex> {
        self.by_lease.get(&(owner, lease_id.into())).copied()
    }

    pub(super) fn enqueue(
        &mut self,
        resource: ResourceIndex,
        owner: OwnerIndex,
        lease_id: &str,
        place: Seq,
        now: Mono,
    ) -> WaiterIndex {
        if self.get(resource).ranks.is_sparse() {
            self.rank_anew(resource);
        }
        let queue = &mut self.slots[resource as usize];
        let rank = queue.ranks.push();
        let waiter = Waiter { lease_id: lease_id.into(), owner, resource, place, rank, polled: now };
        let at = self.waiters.insert(waiter) as WaiterIndex;
        queue.queue.insert(place, at);
        self.by_place.insert(place, at);
        self.by_lease.insert((owner, lease_id.into()), at);
        self.due.set(at, Some(gone_at(now)));
        at
    }

    pub(super) fn poll(&mut self, waiter: WaiterIndex, now: Mono) {
        self.waiters[waiter as usize].polled = now;
        self.due.set(waiter, Some(gone_at(now)));
    }

    pub(super) fn is_stale(&self, waiter: WaiterIndex, now: Mono) -> bool {
        now.since(self.waiter(waiter).polled) > POLL_WITHIN
    }

    pub(super) fn dequeue(&mut self, waiter: WaiterIndex) -> Waiter {
        self.due.set(waiter, None);
        let gone = self.waiters.remove(waiter as usize);
        let resource = &mut self.slots[gone.resource as usize];
        resource.queue.remove(&gone.place);
        resource.ranks.remove(gone.rank);
        self.by_place.remove(&gone.place);
        self.by_lease.remove(&(gone.owner, gone.lease_id.clone()));
        self.leave(gone.resource);
        gone
    }

    /// How many of a resource's queue, whoever they are, came before `place`; all for a claim without one.
    pub(super) fn ahead(&self, resource: ResourceIndex, place: Option<Seq>) -> u64 {
        let resource = self.get(resource);
        let Some(place) = place else { return resource.queue.len() as u64 };
        // The first that did not come before says how many did.
        let next = resource.queue.range(place..).next();
        next.map_or(resource.queue.len() as u64, |(_, at)| {
            u64::from(resource.ranks.ahead(self.waiter(*at).rank))
        })
    }

    pub(super) fn pop_due(&mut self, now: Mono) -> Option<WaiterIndex> {
        self.due.pop_due(now)
    }

    pub(super) fn deadline(&self) -> Option<Mono> {
        self.due.deadline()
    }

    fn rank_anew(&mut self, resource: ResourceIndex) {
        let queue = &mut self.slots[resource as usize];
        queue.ranks = Ranks::default();
        for at in queue.queue.values() {
            self.waiters[*at as usize].rank = queue.ranks.push();
        }
    }
}

fn gone_at(polled: Mono) -> Mono {
    polled.after(POLL_WITHIN).after(Duration::from_nanos(1))
}

fn name(kind: &str, value: &str) -> Box<str> {
    let mut name = alloc::string::String::with_capacity(kind.len() + 1 + value.len());
    name.push_str(kind);
    name.push(':');
    name.push_str(value);
    name.into()
}

/// How much of `one`, in whole characters, `other` begins with.
fn common(one: &str, other: &str) -> usize {
    let same = one.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count();
    (0..=same).rev().find(|at| one.is_char_boundary(*at)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use alloc::string::String;

    use quickcheck::quickcheck;

    use super::*;

    quickcheck! {
        fn the_index_finds_what_comparing_with_all_finds(values: Vec<Vec<u8>>, asked: Vec<u8>) -> bool {
            let spell = |parts: &Vec<u8>| -> String {
                let parts = parts.iter().take(6).map(|part| {
                    ["a", "b", "/", "*", "**", "ab", "é", "/a"][usize::from(part % 8)]
                });
                core::iter::once("").chain(parts).collect()
            };
            let mut resources = Resources::default();
            let all: BTreeSet<_> = values.iter().map(spell).filter(|value| !value.is_empty()).collect();
            for value in &all {
                let at = resources.enter(PATH_GLOB, value);
                resources.hold(at, 0);
            }
            let asked = spell(&asked);
            let mut found: Vec<_> = resources
                .overlapping(PATH_GLOB, &asked)
                .expect("few are compared")
                .into_iter()
                .map(|at| resources.get(at).value().to_owned())
                .collect();
            found.sort();
            let expected: Vec<_> = all.into_iter().filter(|value| paths_overlap(value, &asked)).collect();
            found == expected
        }
    }

    #[test]
    fn another_kind_never_overlaps_and_the_same_matches_exactly() {
        let mut resources = Resources::default();
        let at = resources.enter("file", "a");
        resources.hold(at, 0);
        assert_eq!(resources.overlapping("file", "a"), Ok([at].to_vec()));
        assert_eq!(resources.overlapping("file", "ab"), Ok(Vec::new()));
        assert_eq!(resources.overlapping(PATH_GLOB, "a"), Ok(Vec::new()));
    }

    #[test]
    fn a_resource_that_nobody_holds_or_waits_for_is_forgotten() {
        let mut resources = Resources::default();
        let at = resources.enter(PATH_GLOB, "src/**");
        resources.hold(at, 7);
        let waiter = resources.enqueue(at, 0, "l", Seq::new(1), Mono::ZERO);
        resources.unhold(at, 7);
        assert_eq!(resources.overlapping(PATH_GLOB, "src/a"), Ok([at].to_vec()));
        resources.dequeue(waiter);
        assert!(resources.slots.is_empty() && resources.by_name.is_empty() && resources.by_stem.is_empty());
    }

    #[test]
    fn a_queue_knows_how_many_stand_before_each() {
        let mut resources = Resources::default();
        let at = resources.enter("res", "x");
        resources.hold(at, 0);
        let waiters: Vec<_> =
            (1..=1000).map(|n| resources.enqueue(at, n, "l", Seq::new(n.into()), Mono::ZERO)).collect();
        for waiter in &waiters[..400] {
            resources.dequeue(*waiter);
        }
        assert_eq!(resources.ahead(at, Some(Seq::new(401))), 0);
        assert_eq!(resources.ahead(at, Some(Seq::new(1000))), 599);
        assert_eq!(resources.ahead(at, None), 600);
    }
}
