//! Who waits for a turn: connections whose machine left some of what arrived, by whose they are.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::mem;

use crate::conn::ConnId;

/// Whose a connection is: all of one share together get what one connection of another share gets.
///
/// What the numbers mean is the machine's affair.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Share {
    class: u8,
    key: u64,
}

impl Share {
    /// A connection that is nobody else's.
    #[must_use]
    pub const fn alone(conn: ConnId) -> Self {
        Self { class: 0, key: conn.slot() as u64 }
    }

    /// Whoever has this key among its class; class 0 is that of [`alone`](Self::alone).
    #[must_use]
    pub const fn of(class: u8, key: u64) -> Self {
        Self { class, key }
    }
}

/// What was received and is not worked on yet.
///
/// A connection holds what one read gave when its machine left something, and what the driver had read before it was told to
/// read no more.
#[derive(Default)]
pub(crate) struct Turns {
    waiting: BTreeMap<ConnId, Waiting>,
    /// Who left something since the lines were looked at last.
    pub(crate) new: Vec<ConnId>,
    /// Connections that wait, first come first, by share.
    lines: BTreeMap<Share, VecDeque<ConnId>>,
    /// Each share that has a line, in the order of their turns.
    order: VecDeque<Share>,
    /// What each share has spent since the last settle.
    spent: BTreeMap<Share, usize>,
}

#[derive(Default)]
struct Waiting {
    /// What arrived and was not taken; nothing, where the machine only has more to do.
    bytes: Vec<u8>,
    /// Whose line it stands in.
    share: Option<Share>,
    /// False for one that has its turn and has left nothing yet.
    more: bool,
}

impl Turns {
    /// Puts bytes in front of what waits of a connection.
    pub(crate) fn leave(&mut self, conn: ConnId, rest: &[u8]) {
        self.entry(conn).splice(0..0, rest.iter().copied());
    }

    /// Puts bytes behind what waits of a connection.
    pub(crate) fn keep(&mut self, conn: ConnId, data: &[u8]) {
        self.entry(conn).extend_from_slice(data);
    }

    pub(crate) fn waits(&self, conn: ConnId) -> bool {
        self.waiting.get(&conn).is_some_and(|waiting| waiting.more)
    }

    /// How many bytes of a connection wait.
    pub(crate) fn bytes(&self, conn: ConnId) -> usize {
        self.waiting.get(&conn).map_or(0, |waiting| waiting.bytes.len())
    }

    pub(crate) fn has_line(&self, share: Share) -> bool {
        self.lines.contains_key(&share)
    }

    /// Puts a connection at the end of a share's line, where it stands in none.
    pub(crate) fn enter(&mut self, conn: ConnId, share: Share) {
        let Some(waiting) = self.waiting.get_mut(&conn) else { return };
        if waiting.share.is_some() {
            return;
        }
        waiting.share = Some(share);
        let line = self.lines.entry(share).or_insert_with(|| {
            self.order.push_back(share);
            VecDeque::new()
        });
        line.push_back(conn);
    }

    /// Takes up to `most` bytes of a connection that has its turn; [`rest`](Self::rest) follows.
    pub(crate) fn take(&mut self, conn: ConnId, most: usize) -> Vec<u8> {
        let Some(waiting) = self.waiting.get_mut(&conn) else { return Vec::new() };
        let rest = waiting.bytes.split_off(most.min(waiting.bytes.len()));
        waiting.more = !rest.is_empty();
        mem::replace(&mut waiting.bytes, rest)
    }

    /// A connection has had its turn: false where nothing more of it waits.
    pub(crate) fn rest(&mut self, conn: ConnId) -> bool {
        let waits = self.waits(conn);
        if !waits {
            self.forget(conn);
        }
        waits
    }

    /// Throws away what waits of a connection.
    pub(crate) fn forget(&mut self, conn: ConnId) {
        let Some(share) = self.waiting.remove(&conn).and_then(|waiting| waiting.share) else { return };
        let Some(line) = self.lines.get_mut(&share) else { return };
        line.retain(|waiting| *waiting != conn);
        if line.is_empty() {
            self.lines.remove(&share);
            self.order.retain(|other| *other != share);
        }
    }

    /// How many shares have a line.
    pub(crate) fn shares(&self) -> usize {
        self.order.len()
    }

    /// The share whose turn it is, which goes to the end.
    pub(crate) fn next_share(&mut self) -> Option<Share> {
        let share = self.order.pop_front()?;
        self.order.push_back(share);
        Some(share)
    }

    /// The first of a share's line that can have a turn.
    pub(crate) fn first(&self, share: Share, can: impl Fn(ConnId) -> bool) -> Option<ConnId> {
        self.lines.get(&share)?.iter().copied().find(|conn| can(*conn))
    }

    /// Whether anybody who waits can have a turn.
    pub(crate) fn any(&self, can: impl Fn(ConnId) -> bool) -> bool {
        self.waiting.keys().any(|conn| can(*conn))
    }

    pub(crate) fn spent(&self, share: Share) -> usize {
        self.spent.get(&share).copied().unwrap_or(0)
    }

    pub(crate) fn spend(&mut self, share: Share, work: usize) {
        *self.spent.entry(share).or_default() += work;
    }

    /// A turn ended.
    pub(crate) fn settled(&mut self) {
        self.spent.clear();
    }

    /// How many connections wait, and the bytes that they wait with.
    pub(crate) fn held(&self) -> (usize, usize) {
        (self.waiting.len(), self.waiting.values().map(|waiting| waiting.bytes.len()).sum())
    }

    fn entry(&mut self, conn: ConnId) -> &mut Vec<u8> {
        let waiting = self.waiting.entry(conn).or_default();
        waiting.more = true;
        if waiting.share.is_none() {
            self.new.push(conn);
        }
        &mut waiting.bytes
    }
}
