//! What is to happen, in order.

use alloc::collections::BinaryHeap;
use core::cmp::Reverse;

use relay_core::action::ActId;

use crate::link::{LinkId, Side};
use crate::node::Life;

/// Something that is to happen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Happening {
    /// What the test set for this time.
    Script { number: u64 },
    /// A node's deadline may have come.
    Timer { life: Life },
    /// A dial reaches the other end.
    Knock { link: LinkId },
    /// The dialler hears that it is connected.
    Answered { link: LinkId },
    /// The dialler gives up.
    DialTimeout { link: LinkId },
    /// A listener takes what waits.
    Accept { life: Life, listener: u16 },
    /// Bytes or an end of stream from this side arrive.
    Arrive { link: LinkId, from: Side },
    /// A reset from this side arrives.
    Reset { link: LinkId, from: Side },
    /// This side looks at what arrived for it.
    Read { link: LinkId, at: Side },
    /// This side hears that its window opened.
    Window { link: LinkId, of: Side },
    /// A sync ends.
    Synced { life: Life },
    /// A journal that failed is opened again.
    Reopen { life: Life },
    /// An action ends.
    Acted { life: Life, id: ActId },
}

impl Happening {
    /// Whether [`World::settle`](crate::World::settle) waits for it.
    const fn is_work(self) -> bool {
        match self {
            Self::Timer { .. } | Self::DialTimeout { .. } | Self::Script { .. } => false,
            Self::Knock { .. }
            | Self::Answered { .. }
            | Self::Accept { .. }
            | Self::Arrive { .. }
            | Self::Reset { .. }
            | Self::Read { .. }
            | Self::Window { .. }
            | Self::Synced { .. }
            | Self::Reopen { .. }
            | Self::Acted { .. } => true,
        }
    }

    /// Whether it is a disk's to end.
    pub(crate) const fn is_of_disk(self) -> bool {
        match self {
            Self::Synced { .. } | Self::Reopen { .. } | Self::Acted { .. } => true,
            Self::Script { .. }
            | Self::Timer { .. }
            | Self::Knock { .. }
            | Self::Answered { .. }
            | Self::DialTimeout { .. }
            | Self::Accept { .. }
            | Self::Arrive { .. }
            | Self::Reset { .. }
            | Self::Read { .. }
            | Self::Window { .. } => false,
        }
    }

    /// The node's life that this happens to, where it is bound to one.
    pub(crate) const fn life(self) -> Option<Life> {
        match self {
            Self::Timer { life }
            | Self::Accept { life, .. }
            | Self::Synced { life }
            | Self::Reopen { life }
            | Self::Acted { life, .. } => Some(life),
            Self::Script { .. }
            | Self::Knock { .. }
            | Self::Answered { .. }
            | Self::DialTimeout { .. }
            | Self::Arrive { .. }
            | Self::Reset { .. }
            | Self::Read { .. }
            | Self::Window { .. } => None,
        }
    }
}

/// Events by (time, sequence number), so that equal times keep the order in which they were set.
#[derive(Default)]
pub(crate) struct Queue {
    heap: BinaryHeap<Reverse<Entry>>,
    pushed: u64,
    work: usize,
}

impl Queue {
    pub(crate) fn push(&mut self, at: u64, what: Happening) {
        self.pushed += 1;
        self.work += usize::from(what.is_work());
        self.heap.push(Reverse(Entry { at, sequence: self.pushed, what }));
    }

    pub(crate) fn next_at(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse(entry)| entry.at)
    }

    pub(crate) fn pop(&mut self) -> Option<(u64, Happening)> {
        let Reverse(entry) = self.heap.pop()?;
        self.work -= usize::from(entry.what.is_work());
        Some((entry.at, entry.what))
    }

    /// How much is under way that is neither a timer nor a script.
    pub(crate) const fn work(&self) -> usize {
        self.work
    }
}

struct Entry {
    at: u64,
    sequence: u64,
    what: Happening,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.sequence == other.sequence
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::NodeId;

    #[test]
    fn equal_times_keep_their_order() {
        let mut queue = Queue::default();
        for (at, number) in [(5, 0), (3, 1), (5, 2), (3, 3)] {
            queue.push(at, Happening::Script { number });
        }
        let order: Vec<_> = core::iter::from_fn(|| queue.pop()).collect();
        let numbers = [(3, 1), (3, 3), (5, 0), (5, 2)];
        assert_eq!(order, numbers.map(|(at, number)| (at, Happening::Script { number })));
    }

    #[test]
    fn a_life_is_named_where_there_is_one() {
        let life = Life { node: NodeId(1), boot: 2 };
        assert_eq!(Happening::Timer { life }.life(), Some(life));
        assert_eq!(Happening::Script { number: 0 }.life(), None);
    }
}
