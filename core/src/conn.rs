//! Ids of connections, and whose they are.

#[cfg(debug_assertions)]
use alloc::boxed::Box;
use core::cmp::Ordering;
use core::fmt;
use core::hash::{Hash, Hasher};
use core::num::NonZeroU32;

/// A connection, or a dial under way: a slot and how often it was used before.
///
/// Only a [`Host`](crate::host::Host) and its [`Outbox`](crate::outbox::Outbox) make one, so that no id can be invented:
///
/// ```compile_fail,E0624
/// let _ = relay_core::machine::ConnId::new(0, 0);
/// ```
///
/// Slots of two hosts collide: in debug builds an [`Outbox`](crate::outbox::Outbox) panics at an id of another's.
#[derive(Clone, Copy)]
pub struct ConnId {
    /// The slot and one, so that an optional id is no larger.
    slot: NonZeroU32,
    generation: u32,
    /// The mark of its host, of which equality, order and hash know nothing.
    #[cfg(debug_assertions)]
    tag: usize,
}

impl ConnId {
    pub(crate) const fn new(slot: u32, generation: u32) -> Self {
        Self {
            slot: NonZeroU32::MIN.saturating_add(slot),
            generation,
            #[cfg(debug_assertions)]
            tag: 0,
        }
    }

    const fn key(self) -> (u32, u32) {
        (self.slot.get(), self.generation)
    }

    /// The slot: small, dense, reused after the connection's end. A table of a driver may be indexed by it.
    #[must_use]
    pub const fn slot(self) -> usize {
        (self.slot.get() - 1) as usize
    }

    /// How many connections had this slot before.
    #[must_use]
    pub const fn generation(self) -> u32 {
        self.generation
    }
}

impl PartialEq for ConnId {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for ConnId {}

impl PartialOrd for ConnId {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ConnId {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl Hash for ConnId {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.key().hash(hasher);
    }
}

impl fmt::Debug for ConnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "conn {}.{}", self.slot(), self.generation)
    }
}

/// Marks the ids of one host, since its slots are numbered as those of any other. In release builds it is nothing, and an
/// id is no larger for it.
///
/// The mark is the place of a byte of its own: no two hosts that live have the same, and nothing counts them. It is only
/// compared, never shown, ordered or hashed, so that no run depends on it.
pub(crate) struct Tag {
    #[cfg(debug_assertions)]
    byte: Box<u8>,
}

impl Tag {
    pub(crate) fn new() -> Self {
        Self {
            #[cfg(debug_assertions)]
            byte: Box::new(0),
        }
    }

    /// The same id, as one of this host.
    #[cfg(debug_assertions)]
    pub(crate) fn mark(&self, conn: ConnId) -> ConnId {
        ConnId { tag: self.place(), ..conn }
    }

    /// The same id, as one of this host.
    #[cfg(not(debug_assertions))]
    pub(crate) const fn mark(&self, conn: ConnId) -> ConnId {
        conn
    }

    /// Panics at an id of another host.
    #[cfg(debug_assertions)]
    #[track_caller]
    pub(crate) fn check(&self, conn: ConnId) {
        assert!(conn.tag == self.place(), "{conn:?} is an id of another host");
    }

    /// Panics at an id of another host, but not in release builds, where it may be mistaken for one of this host.
    #[cfg(not(debug_assertions))]
    pub(crate) const fn check(&self, _conn: ConnId) {}

    #[cfg(debug_assertions)]
    fn place(&self) -> usize {
        core::ptr::from_ref(&*self.byte).addr()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_two_words_and_its_mark_is_nothing_to_see() {
        let (one, two) = (Tag::new(), Tag::new());
        let id = ConnId::new(3, 4);
        assert_eq!(one.mark(id), two.mark(id));
        assert_eq!(one.mark(id).cmp(&two.mark(ConnId::new(3, 5))), Ordering::Less);
        assert_eq!(alloc::format!("{:?}", one.mark(id)), "conn 3.4");
        if !cfg!(debug_assertions) {
            assert_eq!((size_of::<Option<ConnId>>(), size_of::<Tag>()), (8, 0));
        }
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "conn 3.4 is an id of another host")]
    fn an_id_of_another_host_is_caught() {
        let (one, two) = (Tag::new(), Tag::new());
        one.check(one.mark(ConnId::new(3, 4)));
        two.check(one.mark(ConnId::new(3, 4)));
    }
}
