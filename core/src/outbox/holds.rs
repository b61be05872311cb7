//! What waits for the journal: bytes of connections, answers, events and actions.

use core::mem;

use super::Outbox;
use super::slots::Stage;
use crate::action::{ActId, Action};
use crate::journal::Seq;
use crate::machine::{CloseReason, ConnId, Refused, Ticket};

/// What leaves a host other than bytes.
pub(crate) enum Emission<E, A> {
    Event(E),
    Answer(Ticket, Result<A, Refused>),
    Act(ActId, Action),
}

pub(super) struct Hold {
    pub(super) seq: Seq,
    pub(super) conn: ConnId,
    /// Where in the connection's stream the held bytes end.
    pub(super) end: u64,
}

impl<E, A> Outbox<E, A> {
    /// Everything up to `upto` is durable: what rested on it may leave.
    pub(crate) fn persisted(&mut self, upto: Seq) {
        self.durable = self.durable.max(upto.min(self.recorded));
        while let Some(hold) = self.holds.front()
            && hold.seq <= self.durable
        {
            let (conn, end) = (hold.conn, hold.end);
            self.holds.pop_front();
            self.released = self.released.wrapping_add(1);
            if self.get(conn).is_some()
                && let Some(tx) = self.touch(conn)
                && let Some(unsent) = &mut tx.unsent
            {
                unsent.free = unsent.free.max(end);
                unsent.holds -= 1;
                let whole = unsent.holds > 0 || unsent.free == unsent.queued;
                debug_assert!(whole, "the newest hold covers all behind it");
            }
        }
        while let Some((seq, _)) = self.held.front()
            && *seq <= self.durable
        {
            if let Some((_, emission)) = self.held.pop_front() {
                self.ready.push_back(emission);
            }
        }
    }

    /// The journal fails: connections that hold bytes end, answers that are held are refused. Events and actions stay
    /// until the records under them are durable after all.
    pub(crate) fn persist_failed(&mut self) {
        self.failing = true;
        for hold in mem::take(&mut self.holds) {
            self.released = self.released.wrapping_add(1);
            if self.get(hold.conn).is_some()
                && let Some(tx) = self.touch(hold.conn)
            {
                tx.stage = Stage::Ending(CloseReason::NotDurable);
                if let Some(unsent) = &mut tx.unsent {
                    unsent.holds = 0;
                }
            }
        }
        self.refuse_held(Refused::NotDurable);
    }

    /// Refuses the answers that wait for the journal.
    pub(crate) fn refuse_held(&mut self, why: Refused) {
        for (seq, emission) in mem::take(&mut self.held) {
            match emission {
                Emission::Answer(ticket, _) => self.ready.push_back(Emission::Answer(ticket, Err(why))),
                Emission::Event(_) | Emission::Act(..) => self.held.push_back((seq, emission)),
            }
        }
    }

    pub(crate) fn resumed(&mut self, upto: Seq) {
        self.failing = false;
        self.persisted(upto);
    }

    /// Whether anything waits for the journal.
    pub(crate) fn waits(&self) -> bool {
        !self.records.is_empty() || self.durable < self.recorded
    }

    /// How many bytes of answers, events and actions wait; each emission counts as one.
    pub(crate) fn held_emissions(&self) -> usize {
        self.held.len()
    }

    pub(super) fn emit(&mut self, emission: Emission<E, A>) {
        if self.is_durable() {
            self.ready.push_back(emission);
        } else {
            self.held.push_back((self.recorded, emission));
        }
    }

    pub(super) fn is_durable(&self) -> bool {
        self.durable >= self.recorded
    }

    pub(super) fn next_act(&mut self) -> ActId {
        self.acts += 1;
        ActId(self.acts)
    }

    /// Lets a hold cover the stream up to `end`.
    pub(super) fn extend_hold(&mut self, hold: u32, end: u64) {
        let index = hold.wrapping_sub(self.released) as usize;
        if let Some(hold) = self.holds.get_mut(index) {
            hold.end = end;
        }
    }
}
