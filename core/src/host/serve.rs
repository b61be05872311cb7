//! Turns: how much of a machine's work each share gets, and when.

use super::Host;
use crate::machine::{ConnId, Input, Machine};
use crate::outbox::Stage;
use crate::time::Now;

impl<M: Machine> Host<M> {
    /// Gives those who wait their turns, a share after the other; false where nobody waits.
    pub(super) fn serve(&mut self, now: Now) -> bool {
        if !self.is_anybody_waiting() {
            return false;
        }
        let mut allowance = Self::TURN_WORK;
        for _ in 0..self.out.turns.shares() {
            let Some(share) = self.out.turns.next_share() else { break };
            while allowance > 0
                && let Some(conn) = self.out.turns.first(share, |conn| self.out.can_have_turn(conn))
            {
                let data = self.out.turns.take(conn, Self::MAX_READ);
                let work = self.work(now, conn, &data, allowance);
                allowance = allowance.saturating_sub(work);
                let waits = self.out.turns.rest(conn);
                if !waits && self.out.touch(conn).is_some_and(|tx| tx.eof && tx.stage == Stage::Open) {
                    self.step(now, Input::Eof { conn });
                }
                // What needs a whole turn is first in one of the next.
                if waits && work == 0 {
                    break;
                }
            }
            if allowance == 0 {
                break;
            }
        }
        true
    }

    /// Has the machine take bytes, and says what work that was.
    pub(super) fn work(&mut self, now: Now, conn: ConnId, data: &[u8], allowance: usize) -> usize {
        let before = self.out.turns.bytes(conn);
        self.out.allowance = allowance;
        self.step(now, Input::Bytes { conn, data });
        let left = self.out.turns.bytes(conn) - before;
        self.out.work.max(data.len().saturating_sub(left))
    }

    pub(super) fn is_anybody_waiting(&self) -> bool {
        !self.is_congested() && self.out.turns.any(|conn| self.out.can_have_turn(conn))
    }
}
