//! Deadlines: a named table for one owner, and a queue for many.

use alloc::vec::Vec;
use core::mem;

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
/// A heap of owners that knows where each of them stands, so that a deadline moves within it and an owner has one entry at
/// most. Sixteen bytes an owner. Those that are due at once come in the order of their numbers.
#[derive(Clone, Debug, Default)]
pub struct DeadlineQueue {
    /// Owners that have a deadline; none is due before the one at half its place.
    heap: Vec<u32>,
    /// When each owner is due; [`NEVER`] for not at all.
    due: Vec<Mono>,
    /// Where in the heap each owner stands, if it has a deadline.
    places: Vec<u32>,
}

const NEVER: Mono = Mono::from_nanos(u64::MAX);

impl DeadlineQueue {
    /// No owner has a deadline.
    #[must_use]
    pub const fn new() -> Self {
        Self { heap: Vec::new(), due: Vec::new(), places: Vec::new() }
    }

    /// Sets an owner's deadline, or takes it away: O(log n), and O(1) for what it is already.
    pub fn set(&mut self, owner: u32, due: Option<Mono>) {
        let due = due.unwrap_or(NEVER);
        let index = owner as usize;
        if index >= self.due.len() {
            if due == NEVER {
                return;
            }
            self.due.resize(index + 1, NEVER);
            self.places.resize(index + 1, 0);
        }
        let before = mem::replace(&mut self.due[index], due);
        if before == due {
            return;
        }
        if before == NEVER {
            self.heap.push(owner);
            self.rise(self.heap.len() - 1);
        } else if due == NEVER {
            self.remove(self.places[index] as usize);
        } else {
            self.settle(self.places[index] as usize);
        }
    }

    /// An owner's deadline.
    #[must_use]
    pub fn get(&self, owner: u32) -> Option<Mono> {
        self.due.get(owner as usize).copied().filter(|due| *due != NEVER)
    }

    /// The earliest deadline: O(1).
    #[must_use]
    pub fn deadline(&self) -> Option<Mono> {
        self.heap.first().map(|owner| self.due[*owner as usize])
    }

    /// Takes the earliest owner that is due, and its deadline away.
    pub fn pop_due(&mut self, now: Mono) -> Option<u32> {
        let owner = *self.heap.first()?;
        if self.due[owner as usize] > now {
            return None;
        }
        self.set(owner, None);
        Some(owner)
    }

    /// How many owners have a deadline.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.heap.len()
    }

    /// Whether no owner has one.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    fn remove(&mut self, place: usize) {
        self.heap.swap_remove(place);
        if place < self.heap.len() {
            self.settle(place);
        }
    }

    /// Moves the owner at `place`, whose deadline may be any, to where it belongs.
    fn settle(&mut self, place: usize) {
        let owner = self.heap[place];
        self.rise(place);
        self.sink(self.places[owner as usize] as usize);
    }

    fn rise(&mut self, mut place: usize) {
        let owner = self.heap[place];
        while place > 0 {
            let parent = (place - 1) / 2;
            if self.order(self.heap[parent]) < self.order(owner) {
                break;
            }
            self.put(place, self.heap[parent]);
            place = parent;
        }
        self.put(place, owner);
    }

    fn sink(&mut self, mut place: usize) {
        let owner = self.heap[place];
        loop {
            let children = self.heap.iter().enumerate().skip(2 * place + 1).take(2);
            let Some((child, first)) = children.min_by_key(|(_, child)| self.order(**child)) else { break };
            let first = *first;
            if self.order(owner) < self.order(first) {
                break;
            }
            self.put(place, first);
            place = child;
        }
        self.put(place, owner);
    }

    fn put(&mut self, place: usize, owner: u32) {
        self.heap[place] = owner;
        self.places[owner as usize] = place as u32;
    }

    fn order(&self, owner: u32) -> (Mono, u32) {
        (self.due[owner as usize], owner)
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
    fn owners_that_are_due_at_once_come_in_the_order_of_their_numbers() {
        let mut queue = DeadlineQueue::new();
        for owner in [3, 0, 4, 1, 2] {
            queue.set(owner, Some(at(7)));
        }
        let order: Vec<_> = core::iter::from_fn(|| queue.pop_due(at(7))).collect();
        assert_eq!(order, [0, 1, 2, 3, 4]);
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
                let placed = queue.heap.iter().enumerate().all(|(at, owner)| queue.places[*owner as usize] as usize == at);
                if !placed || queue.deadline() != table.values().min().copied() || queue.len() != table.len() {
                    return false;
                }
            }
            for now in asks {
                let popped = queue.pop_due(at(u64::from(now)));
                let least = table.iter().map(|(owner, due)| (*due, *owner)).min();
                let least = least.filter(|(due, _)| *due <= at(u64::from(now))).map(|(_, owner)| owner);
                if popped != least {
                    return false;
                }
                least.and_then(|owner| table.remove(&owner));
            }
            queue.deadline() == table.values().min().copied()
        }
    }
}
