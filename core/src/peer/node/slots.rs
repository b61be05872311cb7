//! The places of connections: what each is doing, and when it wants attention.

use core::mem;

use super::Node;
use super::state::{Slot, State};
use crate::frame::Cutter;
use crate::machine::ConnId;

impl Node {
    pub(super) fn enter(&mut self, conn: ConnId, state: State) {
        let slot = conn.slot();
        if slot >= self.slots.len() {
            self.slots.resize_with(slot + 1, Slot::vacant);
        }
        debug_assert!(matches!(self.slots[slot].state, State::Vacant), "a slot has one connection at a time");
        self.slots[slot] = Slot { conn, state };
    }

    pub(super) fn state(&self, conn: ConnId) -> Option<&State> {
        self.slots.get(conn.slot()).filter(|slot| slot.conn == conn).map(|slot| &slot.state)
    }

    pub(super) fn state_mut(&mut self, conn: ConnId) -> Option<&mut State> {
        self.slots.get_mut(conn.slot()).filter(|slot| slot.conn == conn).map(|slot| &mut slot.state)
    }

    pub(super) fn set_state(&mut self, conn: ConnId, state: State) {
        if let Some(held) = self.state_mut(conn) {
            *held = state;
        }
    }

    /// Takes a connection's state out and leaves it closing.
    pub(super) fn take_state(&mut self, conn: ConnId) -> State {
        let Some(state) = self.state_mut(conn) else { return State::Vacant };
        let state = mem::replace(state, State::Closing);
        self.large.remove(&conn);
        self.timers.set(conn.slot() as u32, None);
        state
    }

    pub(super) fn cutter(&mut self, conn: ConnId) -> Option<&mut Cutter> {
        match self.state_mut(conn)? {
            State::Greeted(greeted) => Some(&mut greeted.cutter),
            State::Dialling(dial) => Some(&mut dial.cutter),
            State::Link(link) => Some(&mut link.cutter),
            State::Inbound(inbound) => Some(&mut inbound.cutter),
            State::Outbound(outbound) => Some(&mut outbound.cutter),
            State::Vacant | State::Storing(_) | State::Closing => None,
        }
    }

    /// Sets a connection's timer to what its state waits for.
    pub(super) fn arm(&mut self, conn: ConnId) {
        // An id that has ended leaves the timer of whoever has its slot now alone.
        let Some(state) = self.state(conn) else { return };
        let due = state.deadline(&self.settings);
        self.timers.set(conn.slot() as u32, due);
    }
}
