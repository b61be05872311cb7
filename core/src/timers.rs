//! Deadlines: a named table for one owner, and a queue for many.

use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::time::Mono;

/// The timers of one owner, by name.
///
/// `K` numbers its variants from 0 to `N - 1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimerTable<const N: usize> {
    due: [Option<Mono>; N],
}

impl<const N: usize> TimerTable<N> {
    /// No timer set.
    #[must_use]
    pub const fn new() -> Self {
        Self { due: [None; N] }
    }

    /// Sets a timer, in place of what it was set to.
    pub fn set(&mut self, name: usize, due: Mono) {
        self.due[name] = Some(due);
    }

    /// Stops a timer.
    pub fn stop(&mut self, name: usize) {
        self.due[name] = None;
    }

    /// When a timer is due, where it is set.
    #[must_use]
    pub const fn get(&self, name: usize) -> Option<Mono> {
        self.due[name]
    }

    /// Whether a timer is due; it is stopped then.
    pub fn take_due(&mut self, name: usize, now: Mono) -> bool {
        let due = self.due[name].is_some_and(|due| due <= now);
        if due {
            self.due[name] = None;
        }
        due
    }

    /// The earliest.
    #[must_use]
    pub fn next(&self) -> Option<Mono> {
        self.due.iter().flatten().min().copied()
    }
}

impl<const N: usize> Default for TimerTable<N> {
    fn default() -> Self {
        Self::new()
    }
}

/// One deadline for each of many owners, which are small dense numbers.
///
/// A heap with one live entry an owner. A deadline that is put off stays where it is in the heap and is moved when it
/// comes to the top, so that a renewal writes one field; one that is brought forward gets a new entry, and the old one
/// is dropped when it comes to the top. [`deadline`](Self::deadline) is exact and O(1), since the top is kept true.
#[derive(Clone, Debug, Default)]
pub struct DeadlineQueue {
    heap: BinaryHeap<Reverse<(Mono, u32)>>,
    owners: Vec<Owner>,
    live: usize,
}

#[derive(Clone, Copy, Debug)]
struct Owner {
    /// When the owner is due; [`NEVER`] for not at all.
    due: Mono,
    /// The earliest of its entries in the heap that counts.
    entry: Mono,
}

const NEVER: Mono = Mono::from_nanos(u64::MAX);

impl DeadlineQueue {
    /// Entries beyond twice the live ones at which the heap is rebuilt.
    pub const STALE_ENTRIES: usize = 1024;

    /// No owner has a deadline.
    #[must_use]
    pub const fn new() -> Self {
        Self { heap: BinaryHeap::new(), owners: Vec::new(), live: 0 }
    }

    /// Sets an owner's deadline, or takes it away.
    pub fn set(&mut self, owner: u32, due: Option<Mono>) {
        let due = due.unwrap_or(NEVER);
        let index = owner as usize;
        if index >= self.owners.len() {
            if due == NEVER {
                return;
            }
            self.owners.resize(index + 1, Owner { due: NEVER, entry: NEVER });
        }
        let state = &mut self.owners[index];
        match (state.due == NEVER, due == NEVER) {
            (true, false) => self.live += 1,
            (false, true) => self.live -= 1,
            (true, true) | (false, false) => {}
        }
        state.due = due;
        if due < state.entry {
            state.entry = due;
            self.heap.push(Reverse((due, owner)));
        }
        self.keep_top_true();
        if self.heap.len() > 2 * self.live + Self::STALE_ENTRIES {
            self.rebuild();
        }
    }

    /// An owner's deadline.
    #[must_use]
    pub fn get(&self, owner: u32) -> Option<Mono> {
        self.owners.get(owner as usize).map(|state| state.due).filter(|due| *due != NEVER)
    }

    /// The earliest deadline.
    #[must_use]
    pub fn deadline(&self) -> Option<Mono> {
        self.heap.peek().map(|Reverse((due, _))| *due)
    }

    /// Takes the earliest owner that is due, and its deadline away.
    pub fn pop_due(&mut self, now: Mono) -> Option<u32> {
        let Reverse((due, owner)) = *self.heap.peek()?;
        if due > now {
            return None;
        }
        self.set(owner, None);
        Some(owner)
    }

    /// How many owners have a deadline.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.live
    }

    /// Whether no owner has one.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// Entries in the heap, live or not.
    #[must_use]
    pub fn entries(&self) -> usize {
        self.heap.len()
    }

    fn keep_top_true(&mut self) {
        while let Some(Reverse((at, owner))) = self.heap.peek().copied() {
            let state = &mut self.owners[owner as usize];
            if state.due == at && state.entry == at {
                return;
            }
            self.heap.pop();
            if state.entry == at {
                state.entry = state.due;
                if state.due != NEVER {
                    self.heap.push(Reverse((state.due, owner)));
                }
            }
        }
    }

    fn rebuild(&mut self) {
        self.heap.clear();
        for (owner, state) in self.owners.iter_mut().enumerate() {
            state.entry = state.due;
            if state.due != NEVER {
                self.heap.push(Reverse((state.due, owner as u32)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;
    use alloc::vec::Vec;

    use quickcheck::quickcheck;

    use super::*;

    fn at(nanos: u64) -> Mono {
        Mono::from_nanos(nanos)
    }

    #[test]
    fn the_earliest_named_timer_is_next() {
        let mut table = TimerTable::<3>::new();
        assert_eq!(table.next(), None);
        table.set(0, at(9));
        table.set(2, at(4));
        assert_eq!(table.next(), Some(at(4)));
        assert!(!table.take_due(2, at(3)));
        assert!(table.take_due(2, at(4)));
        assert_eq!((table.next(), table.get(2)), (Some(at(9)), None));
    }

    #[test]
    fn a_renewal_writes_one_field() {
        let mut queue = DeadlineQueue::new();
        queue.set(0, Some(at(1)));
        queue.set(1, Some(at(1000)));
        for later in 1001..9000 {
            queue.set(1, Some(at(later)));
        }
        assert_eq!(queue.entries(), 2);
        assert_eq!(queue.pop_due(at(5)), Some(0));
        assert_eq!(queue.deadline(), Some(at(8999)));
    }

    #[test]
    fn cycles_of_arming_and_cancelling_leave_a_bounded_heap() {
        let mut queue = DeadlineQueue::new();
        queue.set(0, Some(at(1)));
        for cycle in 0..100_000_u64 {
            queue.set(1, Some(at(1_000_000 - cycle)));
            queue.set(1, None);
        }
        assert!(queue.entries() <= 2 * queue.len() + DeadlineQueue::STALE_ENTRIES);
    }

    quickcheck! {
        fn a_queue_is_a_plain_table(steps: Vec<(u8, Option<u8>)>, asks: Vec<u8>) -> bool {
            let mut queue = DeadlineQueue::new();
            let mut table = BTreeMap::new();
            for (owner, due) in steps {
                let due = due.map(|due| at(u64::from(due)));
                queue.set(u32::from(owner % 8), due);
                match due {
                    Some(due) => table.insert(u32::from(owner % 8), due),
                    None => table.remove(&u32::from(owner % 8)),
                };
                if queue.deadline() != table.values().min().copied() || queue.len() != table.len() {
                    return false;
                }
            }
            for now in asks {
                let popped = queue.pop_due(at(u64::from(now)));
                let least = table.values().min().copied().filter(|due| *due <= at(u64::from(now)));
                match (popped, least) {
                    (None, None) => {}
                    (Some(owner), Some(least)) if table.remove(&owner) == Some(least) => {}
                    _ => return false,
                }
            }
            queue.deadline() == table.values().min().copied()
        }
    }
}
