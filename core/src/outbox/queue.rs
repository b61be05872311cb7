//! Bytes on their way: from a machine into a connection's buffer, and from there into its socket.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::mem;

use super::Outbox;
use super::slots::{Stage, Unsent};
use crate::machine::{CloseReason, ConnId};

impl<E, A> Outbox<E, A> {
    /// Buffers kept for reuse, and the largest that is kept, in bytes.
    const POOL: usize = 64;
    const POOLED_BYTES: usize = 64 << 10;

    /// Copies a message behind the connection's buffer; false where the connection takes no more.
    pub(super) fn queue(&mut self, conn: ConnId, write: impl FnOnce(&mut Vec<u8>)) -> bool {
        let mut scratch = mem::take(&mut self.scratch);
        scratch.clear();
        let fresh = match self.touch(conn) {
            Some(tx) if tx.writable() => tx.unsent.is_none(),
            Some(_) | None => {
                self.scratch = scratch;
                return false;
            }
        };
        write(&mut scratch);
        if scratch.is_empty() {
            self.scratch = scratch;
            return false;
        }
        let spare = if fresh { self.pool.pop() } else { None };
        let Some(tx) = self.get_mut(conn) else { return false };
        let taken = tx.taken;
        let unsent = tx.unsent.get_or_insert_with(|| {
            let mut spare = spare.unwrap_or_default();
            (spare.free, spare.queued, spare.holds) = (taken, taken, 0);
            spare
        });
        // What the socket took leaves the buffer when it is most of it, so that copying stays linear.
        let sent = unsent.buf.len() - (unsent.queued - taken) as usize;
        if sent > unsent.buf.len() / 2 {
            unsent.buf.drain(..sent);
        }
        unsent.buf.extend_from_slice(&scratch);
        unsent.queued += scratch.len() as u64;
        if tx.unsent() > tx.limits().cap as usize {
            tx.stage = Stage::Ending(CloseReason::Overflow);
        }
        if scratch.capacity() > Self::POOLED_BYTES {
            scratch = Vec::new();
        }
        self.scratch = scratch;
        true
    }

    /// The socket took `count` bytes.
    pub(crate) fn took(&mut self, conn: ConnId, count: usize) {
        let Some(tx) = self.get_mut(conn) else { return };
        let free = tx.unsent.as_ref().map_or(tx.taken, |unsent| unsent.free);
        debug_assert!(tx.taken + count as u64 <= free, "a driver says no more was taken than was offered");
        tx.taken = (tx.taken + count as u64).min(free);
        if tx.unsent() == 0 {
            let queue = tx.unsent.take();
            self.recycle(queue);
        }
    }

    pub(super) fn recycle(&mut self, queue: Option<Box<Unsent>>) {
        let Some(mut queue) = queue else { return };
        if queue.buf.capacity() <= Self::POOLED_BYTES && self.pool.len() < Self::POOL {
            queue.buf.clear();
            self.pool.push(queue);
        }
    }
}
