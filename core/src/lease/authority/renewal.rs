//! What a heartbeat changes.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::super::owners::{SideIndex, Turn};
use super::super::record::Record;
use super::super::table::Slot;
use super::{Authority, Effects, Ended};
use crate::journal::Seq;
use crate::text::PeerId;
use crate::time::{Mono, Now};

impl Authority {
    /// A heartbeat of `peer` names its running sessions, each given to the visitor by `each`. One that says nothing of
    /// sessions is not told here: it renews nothing and ends nothing.
    pub fn heard(
        &mut self,
        now: Now,
        peer: &PeerId,
        each: impl FnOnce(&mut dyn FnMut(&str)),
        effects: &mut impl Effects,
    ) {
        let side = self.owners.enter_side(peer);
        let named = self.owners.named(side, each);
        if self.failing {
            self.owners.defer(side, now.mono, named);
        } else {
            self.hear(now, side, now.mono, named, effects);
        }
    }

    /// Heartbeats that came while nothing could be recorded count from when they came.
    pub(super) fn hear_deferred(&mut self, now: Now, effects: &mut impl Effects) {
        for (side, heard, named) in self.owners.take_deferred() {
            self.hear(now, side, heard, named, effects);
        }
    }

    fn hear(
        &mut self,
        now: Now,
        side: SideIndex,
        heard: Mono,
        named: BTreeSet<Box<str>>,
        effects: &mut impl Effects,
    ) {
        for (owner, turn) in self.owners.turns(side, heard, &named) {
            let leases: Vec<Slot> = self.owners.get(owner).leases.iter().copied().collect();
            let (session, peer) = (self.owners.get(owner).session.clone(), self.owners.side(side).id.clone());
            match turn {
                Turn::Listed => {
                    // What had ended before is not brought back.
                    let (live, lapsed): (Vec<_>, Vec<_>) =
                        leases.into_iter().partition(|slot| self.holds(*slot, heard));
                    let is_held = !live.is_empty() || !self.owners.get(owner).waiters.is_empty();
                    for slot in lapsed {
                        self.end(slot, Ended::Expired, "", now, effects);
                    }
                    if !is_held {
                        continue;
                    }
                    let record = || Record::LeaseSessionListed {
                        session: (*session).into(),
                        peer: peer.as_str().into(),
                    };
                    let seq = if live.is_empty() { Seq::NONE } else { effects.record(&record()) };
                    self.owners.list(owner, seq);
                }
                // What is granted from here on counts from its grant.
                Turn::Gone(_) if leases.is_empty() => self.owners.unlist(owner, Mono::ZERO),
                Turn::Gone(last) => {
                    effects.record(&Record::LeaseSessionGone {
                        session: (*session).into(),
                        peer: peer.as_str().into(),
                        mono: last.as_nanos(),
                    });
                    self.owners.unlist(owner, last);
                    // They end earlier now than they were expected to.
                    for slot in leases {
                        self.table.arm(slot, self.ends_at(slot));
                    }
                }
            }
        }
        self.owners.hear(side, heard, named);
    }
}
