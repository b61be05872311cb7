//! Dialling known peers again.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

use super::errand::{Asker, Attempt, Errand, Purpose};
use super::{Node, Out};
use crate::peer::book::PeerIndex;
use crate::peer::command::Direction;
use crate::time::Now;

impl Node {
    /// The most that the first dials of a start, or of a reload, are spread over.
    const SPREAD: Duration = Duration::from_millis(500);
    /// How much longer the end waits that did not dial the lost link, so that both do not dial at once.
    const ACCEPTER_WAITS: Duration = Duration::from_secs(3);

    /// Whether this node is to keep a link with a peer, and can.
    fn wants_link(&self, peer: PeerIndex) -> bool {
        let known = self.book.get(peer);
        (self.settings.dial_known || known.keep)
            && !self.draining
            && known.key.is_some()
            && !known.addresses.is_empty()
            && known.id != self.settings.id
    }

    /// The first step's: only now is it known what time it is.
    pub(super) fn dial_known_soon(&mut self) {
        for peer in 0..self.book.len() as PeerIndex {
            if self.redials.get(peer).is_some() {
                self.dial_soon(peer);
            }
        }
    }

    pub(super) fn dial_soon(&mut self, peer: PeerIndex) {
        let known = self.book.get(peer);
        if known.link.is_none() && known.dialling.is_none() && self.wants_link(peer) {
            let spread = Self::SPREAD.as_nanos() as u64;
            let wait = Duration::from_nanos(self.entropy.draw_u64() % spread);
            self.redials.set(peer, Some(self.stepped.after(wait)));
        }
    }

    /// Sets a time for the next dial; `None` where there will be none.
    pub(super) fn redial_later(
        &mut self,
        now: Now,
        peer: PeerIndex,
        direction: Direction,
        denials: u8,
    ) -> Option<Duration> {
        let known = self.book.get(peer);
        if known.link.is_some() || known.dialling.is_some() || !self.wants_link(peer) {
            return None;
        }
        let noise = self.entropy.draw_u64();
        let mut wait = self.book.get_mut(peer).backoff.next(denials, noise);
        if direction == Direction::Inbound {
            wait += Self::ACCEPTER_WAITS;
        }
        self.redials.set(peer, Some(now.mono.after(wait)));
        Some(wait)
    }

    pub(super) fn redial(&mut self, now: Now, peer: PeerIndex, out: &mut Out) {
        let known = self.book.get(peer);
        if known.link.is_some() || known.dialling.is_some() || !self.wants_link(peer) {
            return;
        }
        let attempts = self.attempts_for(peer);
        let errand = Errand::new(Purpose::Link { peer: Some(peer), keep: false }, Asker::Nobody, attempts);
        self.pursue(now, errand, out);
    }

    /// Every address of a peer, the best first, with its key.
    pub(super) fn attempts_for(&self, peer: PeerIndex) -> VecDeque<Attempt> {
        let known = self.book.get(peer);
        let Some(key) = &known.key else { return VecDeque::new() };
        let addresses: Vec<_> = known.addresses.iter().map(|known| known.address).collect();
        let attempt =
            |address| Attempt { address, peer: Some(known.id.clone()), key: key.clone(), invite: false };
        addresses.into_iter().map(attempt).collect()
    }
}
