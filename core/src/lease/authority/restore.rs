//! From the journal and back: the state is what the records say.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::time::Duration;

use super::super::owners::OwnerIndex;
use super::super::record::{BootId, Record, read_lines, write_line};
use super::super::table::{Row, Settled};
use super::{Authority, Effects};
use crate::journal::Seq;
use crate::machine::BadRecord;
use crate::message::lease::Mode;
use crate::text::PeerId;
use crate::time::{Mono, Now, Wall};

impl Authority {
    /// Takes one record, in order, before [`start`](Self::start).
    ///
    /// # Errors
    /// It does not fit what came before, or names what no version of this project would have written.
    pub fn restore(&mut self, seq: Seq, record: Record<'_>) -> Result<(), BadRecord> {
        self.durable = self.durable.max(seq);
        match record {
            Record::LeaseBoot { boot, mono } => {
                self.restored = Some(BootId::new(&boot));
                self.reboot(Mono::from_nanos(mono));
            }
            Record::LeaseGranted {
                id,
                session,
                peer,
                kind,
                value,
                mode,
                ttl_secs,
                reason,
                wall,
                mono,
                listed,
                place,
            } => {
                if self.table.find(&id).is_some() {
                    return Err(BadRecord { reason: "a lease that was granted before" });
                }
                let owner = self.owner(&session, &peer)?;
                if listed {
                    self.owners.list(owner, seq);
                } else if self.owners.get(owner).leases.is_empty() {
                    // While it only waited, nothing was recorded of what heartbeats said.
                    self.owners.unlist(owner, Mono::ZERO);
                }
                let holds = mode == Mode::Exclusive;
                let row = Row {
                    id: Box::from(&*id),
                    owner,
                    holds: holds.then(|| self.resources.enter(&kind, &value)),
                    kind: Box::from(&*kind),
                    value: Box::from(&*value),
                    mode,
                    ttl: Duration::from_secs(ttl_secs),
                    reason: Box::from(&*reason),
                    granted: Mono::from_nanos(mono),
                    acquired: Wall::from_millis(wall),
                    token: seq,
                };
                self.hold(row);
                if let Some(place) = place {
                    self.restore_unqueued(place)?;
                }
            }
            Record::LeaseEnded { token, how, request_id } => {
                let slot = self.table.slot_of(Seq::new(token));
                let slot = slot.ok_or(BadRecord { reason: "the end of a lease that does not hold" })?;
                let owner = self.table.get(slot).owner;
                self.settle(slot, how, &request_id);
                self.owners.leave(owner);
            }
            Record::LeaseQueued { id, session, peer, kind, value } => {
                let owner = self.owner(&session, &peer)?;
                self.wait(owner, &id, &kind, &value, seq, Mono::ZERO);
            }
            Record::LeaseUnqueued { place } => self.restore_unqueued(place)?,
            Record::LeaseSessionListed { session, peer } => {
                let owner = self.owner(&session, &peer)?;
                self.owners.list(owner, seq);
                self.owners.leave(owner);
            }
            Record::LeaseSessionGone { session, peer, mono } => {
                let owner = self.owner(&session, &peer)?;
                self.owners.unlist(owner, Mono::from_nanos(mono));
                self.owners.leave(owner);
            }
            Record::LeaseSettled { id, session, peer, how, request_id } => {
                let settled = Settled {
                    session: Box::from(&*session),
                    peer: Box::from(&*peer),
                    how,
                    request_id: Box::from(&*request_id),
                };
                self.table.remember(Box::from(&*id), settled);
            }
        }
        Ok(())
    }

    /// The first moment after a restart: from here time runs on for what was restored.
    ///
    /// On the same start of the machine each lease ends when it would have; whoever was listed in a heartbeat counts as
    /// heard now, since nobody knows how new its last one was. On another start the old instants mean nothing, and each
    /// lease has its full time again: to free one early is what may not happen. Whoever waits has a poll's time.
    pub fn start(&mut self, now: Now, effects: &mut impl Effects) {
        if self.restored.as_ref().is_some_and(|restored| *restored != self.boot) {
            self.reboot(now.mono);
        }
        if self.restored.is_some() {
            self.note_boot(now, effects);
        }
        self.owners.hear_all_listed(now.mono);
        let rows: Vec<_> = self.table.oldest_first().map(|(slot, _)| slot).collect();
        for slot in rows {
            self.table.arm(slot, self.ends_at(slot));
        }
        let places: Vec<_> = self.resources.all_waiting().map(|(place, _)| place).collect();
        for place in places {
            if let Some(waiter) = self.resources.at_place(place) {
                self.resources.poll(waiter, now.mono);
            }
        }
    }

    /// Records which start of the machine instants count from, before the first that is recorded.
    pub(super) fn note_boot(&mut self, now: Now, effects: &mut impl Effects) {
        if self.restored.as_ref() != Some(&self.boot) {
            let boot = self.boot.as_str().into();
            effects.record(&Record::LeaseBoot { boot, mono: now.mono.as_nanos() });
            self.restored = Some(self.boot.clone());
        }
    }

    /// Writes all that the records built.
    pub fn snapshot(&self, into: &mut Vec<u8>) {
        let none = Seq::NONE;
        if let Some(boot) = &self.restored {
            write_line(none, &Record::LeaseBoot { boot: boot.as_str().into(), mono: 0 }, into);
        }
        for (id, settled) in self.table.settled() {
            let record = Record::LeaseSettled {
                id: id.into(),
                session: (*settled.session).into(),
                peer: (*settled.peer).into(),
                how: settled.how,
                request_id: (*settled.request_id).into(),
            };
            write_line(none, &record, into);
        }
        for (_, row) in self.table.oldest_first() {
            let owner = self.owners.get(row.owner);
            let record = Record::LeaseGranted {
                id: (*row.id).into(),
                session: (*owner.session).into(),
                peer: self.owners.side(owner.side).id.as_str().into(),
                kind: (*row.kind).into(),
                value: (*row.value).into(),
                mode: row.mode,
                ttl_secs: row.ttl.as_secs(),
                reason: (*row.reason).into(),
                wall: row.acquired.as_millis(),
                mono: row.granted.as_nanos(),
                listed: owner.listed.is_some(),
                place: None,
            };
            write_line(row.token, &record, into);
        }
        for (place, waiter) in self.resources.all_waiting() {
            let owner = self.owners.get(waiter.owner);
            let resource = self.resources.get(waiter.resource);
            let record = Record::LeaseQueued {
                id: (*waiter.lease_id).into(),
                session: (*owner.session).into(),
                peer: self.owners.side(owner.side).id.as_str().into(),
                kind: resource.kind().into(),
                value: resource.value().into(),
            };
            write_line(place, &record, into);
        }
        for owner in self.owners.iter().filter(|owner| !owner.leases.is_empty() && owner.listed.is_none()) {
            let record = Record::LeaseSessionGone {
                session: (*owner.session).into(),
                peer: self.owners.side(owner.side).id.as_str().into(),
                mono: owner.last().as_nanos(),
            };
            write_line(none, &record, into);
        }
    }

    /// Takes what [`snapshot`](Self::snapshot) wrote.
    ///
    /// # Errors
    /// As for [`restore`](Self::restore).
    pub fn restore_snapshot(&mut self, snapshot: &[u8]) -> Result<(), BadRecord> {
        read_lines(snapshot, |seq, record| {
            // The instants of a snapshot are those of its boot already.
            if let Record::LeaseBoot { boot, .. } = &record {
                self.restored = Some(BootId::new(boot));
                return Ok(());
            }
            self.restore(seq, record)
        })
    }

    fn reboot(&mut self, now: Mono) {
        self.table.reboot(now);
        self.owners.reboot();
    }

    fn owner(&mut self, session: &str, peer: &str) -> Result<OwnerIndex, BadRecord> {
        let peer = PeerId::parse(peer).ok_or(BadRecord { reason: "a lease of what is no peer id" })?;
        let side = self.owners.enter_side(&peer);
        // Only records say who was listed; what a heartbeat named is not known any more.
        self.owners.forget_spare(side, session);
        Ok(self.owners.enter(side, session))
    }

    fn restore_unqueued(&mut self, place: u64) -> Result<(), BadRecord> {
        let waiter = self.resources.at_place(Seq::new(place));
        let waiter = waiter.ok_or(BadRecord { reason: "a place in a queue that nobody had" })?;
        self.drop_waiter(waiter);
        Ok(())
    }
}
