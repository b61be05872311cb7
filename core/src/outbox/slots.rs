//! The connections of an outbox: one slot for each, and what is known of it.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::{Limits, Outbox};
use crate::machine::{CloseReason, ConnId};

/// A connection's sending half. Kept small: there is one for every idle link.
pub(crate) struct Tx {
    generation: u32,
    /// What the machine said in place of [`Limits::DEFAULT`].
    pub(super) limits: Option<Box<Limits>>,
    /// How many bytes the socket took: a position in the stream, as those of [`Unsent`] are.
    pub(super) taken: u64,
    /// Only there while something is unsent.
    pub(super) unsent: Option<Box<Unsent>>,
    pub(crate) stage: Stage,
    pub(crate) dirty: bool,
    pub(crate) blocked: bool,
    pub(crate) pause: Pause,
    pub(crate) finish: Finish,
    pub(crate) eof: bool,
    /// Whether the port was told not to read.
    pub(crate) silenced: bool,
    /// Whether the host has set a time for its end.
    pub(crate) closing: bool,
    /// Whether the port knows its id.
    pub(crate) named: bool,
}

/// What a connection has queued and its socket has not taken.
#[derive(Default)]
pub(super) struct Unsent {
    pub(super) buf: Vec<u8>,
    /// Positions in the stream: what may leave, what was queued. Never out of that order, nor before what was taken.
    pub(super) free: u64,
    pub(super) queued: u64,
    /// How many entries of [`Outbox::holds`] are this connection's.
    pub(super) holds: u32,
    /// The newest of them, counted as [`Outbox::released`] counts.
    pub(super) newest_hold: u32,
}

/// A connection's life.
///
/// ```text
///  Free ─▶ Dialling ─▶ Open ─▶ Flushing ─▶ Lingering ─▶ Free
///    └──────────────────▲└──────────┴──▶ Ending ────────▲
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// The slot has no connection.
    Free,
    /// A dial is under way.
    Dialling,
    /// Bytes go both ways.
    Open,
    /// Closed by the machine; what is queued still leaves.
    Flushing,
    /// All has left and our end is finished; the peer's last bytes are thrown away, so that no reset overtakes ours.
    Lingering,
    /// To be closed at the next settle.
    Ending(CloseReason),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pause {
    /// Reading.
    Off,
    /// The machine asked; the port has not been told.
    Asked,
    /// The port does not read.
    On,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Finish {
    /// Our direction is open.
    Open,
    /// To be half-closed once all has left.
    Asked,
    /// Half-closed.
    Done,
}

impl Tx {
    const fn new(generation: u32, stage: Stage) -> Self {
        Self {
            generation,
            limits: None,
            taken: 0,
            unsent: None,
            stage,
            dirty: false,
            blocked: false,
            pause: Pause::Off,
            finish: Finish::Open,
            eof: false,
            silenced: false,
            closing: false,
            named: false,
        }
    }

    pub(crate) fn unsent(&self) -> usize {
        self.unsent.as_ref().map_or(0, |unsent| (unsent.queued - self.taken) as usize)
    }

    /// The bytes that may leave now.
    pub(crate) fn sendable(&self) -> &[u8] {
        let Some(Unsent { buf, free, .. }) = self.unsent.as_deref() else { return &[] };
        let start = buf.len() - self.unsent();
        &buf[start..start + (free - self.taken) as usize]
    }

    pub(crate) fn low(&self) -> usize {
        self.limits().low as usize
    }

    pub(super) fn limits(&self) -> &Limits {
        self.limits.as_deref().unwrap_or(&Limits::DEFAULT)
    }

    /// Whether more may be queued.
    pub(super) const fn writable(&self) -> bool {
        match self.stage {
            Stage::Dialling | Stage::Open => matches!(self.finish, Finish::Open),
            Stage::Free | Stage::Flushing | Stage::Lingering | Stage::Ending(_) => false,
        }
    }
}

impl<E, A> Outbox<E, A> {
    /// Whether a connection that waits for its turn can have it.
    pub(crate) fn can_have_turn(&self, conn: ConnId) -> bool {
        self.get(conn).is_some_and(|tx| tx.stage == Stage::Open && tx.pause == Pause::Off)
    }

    pub(crate) fn open(&mut self, stage: Stage) -> ConnId {
        // A connection that was accepted comes from the port.
        let named = stage == Stage::Open;
        if let Some(slot) = self.spare_slots.pop() {
            let tx = &mut self.slots[slot as usize];
            debug_assert_eq!(tx.stage, Stage::Free);
            tx.stage = stage;
            tx.named = named;
            return self.tag.mark(ConnId::new(slot, tx.generation));
        }
        self.slots.push(Tx { named, ..Tx::new(0, stage) });
        self.tag.mark(ConnId::new((self.slots.len() - 1) as u32, 0))
    }

    /// An id as the driver has it. It may come from a record of another run, and is this host's by what it says.
    pub(crate) fn own(&self, conn: ConnId) -> ConnId {
        self.tag.mark(conn)
    }

    /// Gives a slot back, with its buffer; its id is stale from here on. Returns the bytes that were unsent.
    pub(crate) fn free(&mut self, conn: ConnId) -> usize {
        let Some(tx) = self.get_mut(conn) else { return 0 };
        let unsent = tx.unsent();
        let queue = tx.unsent.take();
        // It may stand on the list still; the next connection of the slot finds itself there.
        *tx = Tx { dirty: tx.dirty, ..Tx::new(tx.generation.wrapping_add(1), Stage::Free) };
        self.spare_slots.push(conn.slot() as u32);
        self.recycle(queue);
        unsent
    }

    /// The connection that has a slot now.
    pub(crate) fn at(&self, slot: u32) -> Option<ConnId> {
        let tx = self.slots.get(slot as usize)?;
        (tx.stage != Stage::Free).then(|| self.tag.mark(ConnId::new(slot, tx.generation)))
    }

    pub(crate) fn slot_mut(&mut self, slot: u32) -> Option<&mut Tx> {
        self.slots.get_mut(slot as usize)
    }

    pub(crate) fn stage(&self, conn: ConnId) -> Option<Stage> {
        self.get(conn).map(|tx| tx.stage)
    }

    /// Lets nothing more be queued on a connection whose end is about to be told; the bytes that stay unsent.
    pub(crate) fn mark_ended(&mut self, conn: ConnId) -> usize {
        let Some(tx) = self.get_mut(conn) else { return 0 };
        tx.stage = Stage::Ending(CloseReason::Asked);
        tx.unsent()
    }

    /// Gives the list of a settle back, so that its buffer is used again.
    pub(crate) fn reuse_dirty(&mut self, mut list: Vec<u32>) {
        if self.dirty.is_empty() {
            list.clear();
            self.dirty = list;
        }
    }

    pub(crate) fn open_connections(&self) -> usize {
        self.slots.len() - self.spare_slots.len()
    }

    pub(crate) fn connections(&self) -> impl Iterator<Item = ConnId> {
        (0..self.slots.len() as u32).filter_map(|slot| self.at(slot))
    }

    pub(super) fn get(&self, conn: ConnId) -> Option<&Tx> {
        self.tag.check(conn);
        let tx = self.slots.get(conn.slot())?;
        (tx.generation == conn.generation() && tx.stage != Stage::Free).then_some(tx)
    }

    pub(crate) fn get_mut(&mut self, conn: ConnId) -> Option<&mut Tx> {
        self.tag.check(conn);
        let tx = self.slots.get_mut(conn.slot())?;
        (tx.generation == conn.generation() && tx.stage != Stage::Free).then_some(tx)
    }

    pub(super) fn unsent_mut(&mut self, conn: ConnId) -> Option<&mut Unsent> {
        self.get_mut(conn)?.unsent.as_deref_mut()
    }

    /// As `get_mut`, with the connection on the list of those to settle.
    pub(crate) fn touch(&mut self, conn: ConnId) -> Option<&mut Tx> {
        self.tag.check(conn);
        let Some(tx) = self.slots.get_mut(conn.slot()) else {
            self.stale += 1;
            return None;
        };
        if tx.generation != conn.generation() || tx.stage == Stage::Free {
            self.stale += 1;
            return None;
        }
        if !tx.dirty {
            tx.dirty = true;
            self.dirty.push(conn.slot() as u32);
        }
        Some(tx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_connection_is_small_and_owns_nothing() {
        assert!(size_of::<Tx>() <= 40, "a connection takes {}", size_of::<Tx>());
    }
}
