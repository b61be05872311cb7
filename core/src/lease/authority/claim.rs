//! What a claim leads to.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use super::super::owners::{OwnerIndex, SideIndex};
use super::super::record::Record;
use super::super::resources::{
    MAX_COMPARED, MAX_WAITERS, MAX_WAITERS_PER_OWNER, MAX_WAITERS_PER_PEER, MAX_WIDE, WaiterIndex,
};
use super::super::table::{Known, MAX_LEASES, MAX_LEASES_PER_PEER, Row, Slot};
use super::{Authority, Effects, Ended, FAILING, Lapse, place_of, waiter_id};
use crate::journal::Seq;
use crate::message::lease::{Blocker, LeaseClaim, Mode, Outcome};
use crate::text::PeerId;
use crate::time::Now;

/// A waiter id that names no place of its owner's.
struct PlaceGone;

/// What stands in a claim's way, and what only seemed to: by time it is gone.
#[derive(Default)]
struct Obstacles {
    blocker: Option<Blocker>,
    lapsed: Vec<Slot>,
    stale: Vec<WaiterIndex>,
}

impl Authority {
    /// A session of `peer` claims a lease, polls for it, or repeats a claim.
    ///
    /// The order: a repeated request is answered as before; a lease that is known by its id is granted again to its
    /// owner, whatever the repeat asks for, and refused to all others; an advisory claim is granted; an exclusive one is
    /// granted where no exclusive lease of another owner overlaps and nobody waits before it.
    pub fn claim(
        &mut self,
        now: Now,
        peer: &PeerId,
        claim: &LeaseClaim,
        effects: &mut impl Effects,
    ) -> Outcome {
        let side = self.owners.enter_side(peer);
        if let Some(outcome) = self.repeated(now, side, claim) {
            return outcome;
        }
        let outcome = self.judge(now, side, claim, effects);
        match &outcome {
            Outcome::Conflict(_) | Outcome::Queued { .. } => {
                let answers = &mut self.owners.side_mut(side).answers;
                answers.keep(now.mono, &claim.request_id, &claim.lease_id, outcome.clone());
            }
            // A grant is the lease itself, and a fault may have passed.
            Outcome::Granted(_)
            | Outcome::WaiterGone
            | Outcome::Released
            | Outcome::NotOwner { .. }
            | Outcome::NotFound
            | Outcome::NotActive { .. }
            | Outcome::List { .. }
            | Outcome::Error(_) => {}
        }
        outcome
    }

    /// The answer that this request had before, where it still says what is so.
    fn repeated(&mut self, now: Now, side: SideIndex, claim: &LeaseClaim) -> Option<Outcome> {
        let answered = self.owners.side(side).answers.get(&claim.request_id, &claim.lease_id)?.clone();
        if self.table.find(&claim.lease_id).is_some() {
            return None;
        }
        if let Outcome::Queued { waiter_id, .. } = &answered {
            let waiter = place_of(waiter_id).and_then(|place| self.resources.at_place(place))?;
            if self.resources.is_stale(waiter, now.mono) {
                return None;
            }
            self.resources.poll(waiter, now.mono);
        }
        Some(answered)
    }

    fn judge(
        &mut self,
        now: Now,
        side: SideIndex,
        claim: &LeaseClaim,
        effects: &mut impl Effects,
    ) -> Outcome {
        let owner = self.owners.find(side, &claim.session);
        match self.table.find(&claim.lease_id) {
            Some(Known::Active(slot)) => return self.claimed_again(now, *slot, owner, effects),
            Some(Known::Settled(settled)) => {
                let how = settled.how.as_str();
                return Outcome::Error(alloc::format!("lease_id was used before: that lease was {how}"));
            }
            None => {}
        }
        if self.failing {
            return Outcome::Error(FAILING.into());
        }
        match claim.mode {
            Mode::Advisory => {
                let named = claim.waiter_id.as_deref().and_then(place_of);
                let waiter = named.and_then(|place| self.resources.at_place(place));
                if let Some(waiter) = waiter.filter(|at| Some(self.resources.waiter(*at).owner) == owner) {
                    self.unqueue(waiter, effects);
                }
                self.grant(now, side, claim, None, effects)
            }
            Mode::Exclusive => self.judge_exclusive(now, side, owner, claim, effects),
        }
    }

    /// The id is one of a lease that was granted.
    fn claimed_again(
        &mut self,
        now: Now,
        slot: Slot,
        owner: Option<OwnerIndex>,
        effects: &mut impl Effects,
    ) -> Outcome {
        let row = self.table.get(slot);
        if Some(row.owner) != owner {
            return Outcome::Error("lease_id is that of another owner's lease".into());
        }
        if self.failing {
            // What was promised while nothing can be recorded must be what a restart would know too.
            let renewed = self.owners.renews_durably_until(row.owner, self.durable);
            if row.token > self.durable || row.granted.max(renewed).after(row.ttl) <= now.mono {
                return Outcome::Error(FAILING.into());
            }
            return Outcome::Granted(self.view(now, row, renewed));
        }
        if !self.holds(slot, now.mono) {
            self.end(slot, Ended::Expired, "", now, effects);
            return Outcome::Error("lease_id was used before: that lease was expired".into());
        }
        Outcome::Granted(self.view(now, row, self.owners.renews_until(row.owner)))
    }

    fn judge_exclusive(
        &mut self,
        now: Now,
        side: SideIndex,
        owner: Option<OwnerIndex>,
        claim: &LeaseClaim,
        effects: &mut impl Effects,
    ) -> Outcome {
        let waiter = match self.find_place(now, owner, claim, effects) {
            Ok(waiter) => waiter,
            Err(PlaceGone) => return Outcome::WaiterGone,
        };
        // A place that was given up may have been all that the owner had.
        let owner = self.owners.find(side, &claim.session);
        let place = waiter.map(|at| self.resources.waiter(at).place);
        let Some(obstacles) = self.obstacles(now, owner, claim, place) else {
            return Outcome::Error(alloc::format!(
                "value: more than {MAX_COMPARED} paths would have to be compared with this one"
            ));
        };
        for slot in obstacles.lapsed {
            self.end(slot, Ended::Expired, "", now, effects);
        }
        for waiter in obstacles.stale {
            self.unqueue(waiter, effects);
        }
        match (obstacles.blocker, waiter, claim.wait) {
            (None, waiter, _) => self.grant(now, side, claim, waiter, effects),
            (Some(blocker), _, false) => Outcome::Conflict(blocker),
            (Some(blocker), Some(waiter), true) => {
                let waiter_id = waiter_id(self.resources.waiter(waiter).place);
                Outcome::Queued { blocker, waiter_id }
            }
            (Some(blocker), None, true) => match self.queue_up(now, side, claim, effects) {
                Ok(place) => Outcome::Queued { blocker, waiter_id: waiter_id(place) },
                Err(full) => Outcome::Error(full),
            },
        }
    }

    /// The claim's place in a queue, where it has one: that of its waiter id, which belongs to its owner and resource,
    /// or the one that an earlier try of the same claim took. It counts as polled.
    fn find_place(
        &mut self,
        now: Now,
        owner: Option<OwnerIndex>,
        claim: &LeaseClaim,
        effects: &mut impl Effects,
    ) -> Result<Option<WaiterIndex>, PlaceGone> {
        let found = match &claim.waiter_id {
            Some(id) => place_of(id).and_then(|place| self.resources.at_place(place)),
            None => owner.and_then(|owner| self.resources.of_lease(owner, &claim.lease_id)),
        };
        let is_here = |at: &WaiterIndex| {
            let waiter = self.resources.waiter(*at);
            let resource = self.resources.get(waiter.resource);
            Some(waiter.owner) == owner && resource.kind() == claim.kind && resource.value() == claim.value
        };
        let is_own = found.is_some_and(|at| is_here(&at));
        let is_live = found.is_some_and(|at| !self.resources.is_stale(at, now.mono));
        match (found, claim.waiter_id.is_some()) {
            (Some(waiter), _) if is_own && is_live => {
                self.resources.poll(waiter, now.mono);
                Ok(Some(waiter))
            }
            (Some(waiter), true) => {
                if is_own {
                    self.unqueue(waiter, effects);
                }
                Err(PlaceGone)
            }
            (None, true) => Err(PlaceGone),
            // The same claim for something else, or come back too late: it stands at the end.
            (Some(waiter), false) => {
                self.unqueue(waiter, effects);
                Ok(None)
            }
            (None, false) => Ok(None),
        }
    }

    /// What blocks an exclusive claim; `None` where finding out would cost too much.
    fn obstacles(
        &self,
        now: Now,
        owner: Option<OwnerIndex>,
        claim: &LeaseClaim,
        place: Option<Seq>,
    ) -> Option<Obstacles> {
        let overlapping = self.resources.overlapping(&claim.kind, &claim.value).ok()?;
        let mut obstacles = Obstacles::default();
        for at in &overlapping {
            for slot in &self.resources.get(*at).holders {
                let row = self.table.get(*slot);
                if Some(row.owner) == owner {
                    // All leases on one resource are of one owner, but for those whose time is over.
                    continue;
                }
                if !self.holds(*slot, now.mono) {
                    obstacles.lapsed.push(*slot);
                    continue;
                }
                obstacles.blocker = Some(Blocker::Lease {
                    holder: self.owners.name(row.owner),
                    lease_id: String::from(&*row.id),
                    expires_at: Some(self.shown_end(now, row, self.owners.renews_until(row.owner))),
                });
                return Some(obstacles);
            }
        }
        let mut is_behind = false;
        for at in &overlapping {
            let queue = &self.resources.get(*at).queue;
            for (_, waiter) in queue.iter().take_while(|(other, _)| place.is_none_or(|place| **other < place))
            {
                if Some(self.resources.waiter(*waiter).owner) == owner {
                    continue;
                }
                if self.resources.is_stale(*waiter, now.mono) {
                    obstacles.stale.push(*waiter);
                    continue;
                }
                is_behind = true;
                break;
            }
        }
        if is_behind {
            let all: u64 = overlapping.iter().map(|at| self.resources.ahead(*at, place)).sum();
            let own = owner.map_or(0, |owner| {
                let before = |at: &&WaiterIndex| {
                    let waiter = self.resources.waiter(**at);
                    overlapping.contains(&waiter.resource) && place.is_none_or(|place| waiter.place < place)
                };
                self.owners.get(owner).waiters.iter().filter(before).count() as u64
            });
            let ahead = all.saturating_sub(own + obstacles.stale.len() as u64);
            obstacles.blocker = Some(Blocker::Queue { ahead });
        }
        Some(obstacles)
    }

    fn queue_up(
        &mut self,
        now: Now,
        side: SideIndex,
        claim: &LeaseClaim,
        effects: &mut impl Effects,
    ) -> Result<Seq, String> {
        let full =
            |max: usize, whose: &str| Err(alloc::format!("wait: {whose} waits in {max} places already"));
        if self.resources.waiting() >= MAX_WAITERS {
            return full(MAX_WAITERS, "the fleet");
        }
        if self.owners.side(side).waiters >= MAX_WAITERS_PER_PEER {
            return full(MAX_WAITERS_PER_PEER, "this peer");
        }
        let waits = self.owners.find(side, &claim.session).map(|owner| self.owners.get(owner).waiters.len());
        if waits.is_some_and(|waits| waits >= MAX_WAITERS_PER_OWNER) {
            return full(MAX_WAITERS_PER_OWNER, "this session");
        }
        if self.resources.is_too_wide(&claim.kind, &claim.value) {
            return Err(too_wide());
        }
        self.note_boot(now, effects);
        let owner = self.owners.enter(side, &claim.session);
        let peer = self.owners.side(side).id.as_str();
        let place = effects.record(&Record::LeaseQueued {
            id: claim.lease_id.as_str().into(),
            session: claim.session.as_str().into(),
            peer: peer.into(),
            kind: claim.kind.as_str().into(),
            value: claim.value.as_str().into(),
        });
        self.wait(owner, &claim.lease_id, &claim.kind, &claim.value, place, now.mono);
        Ok(place)
    }

    fn grant(
        &mut self,
        now: Now,
        side: SideIndex,
        claim: &LeaseClaim,
        waiter: Option<WaiterIndex>,
        effects: &mut impl Effects,
    ) -> Outcome {
        if self.table.len() >= MAX_LEASES {
            return Outcome::Error(alloc::format!("lease_id: the fleet holds {MAX_LEASES} leases already"));
        }
        if self.owners.side(side).leases >= MAX_LEASES_PER_PEER {
            return Outcome::Error(alloc::format!(
                "lease_id: this peer holds {MAX_LEASES_PER_PEER} leases already"
            ));
        }
        let holds = claim.mode == Mode::Exclusive;
        if holds && self.resources.is_too_wide(&claim.kind, &claim.value) {
            return Outcome::Error(too_wide());
        }
        self.note_boot(now, effects);
        let owner = self.owners.enter(side, &claim.session);
        let listed = self.owners.get(owner).listed.is_some();
        let token = effects.record(&Record::LeaseGranted {
            id: claim.lease_id.as_str().into(),
            session: claim.session.as_str().into(),
            peer: self.owners.side(side).id.as_str().into(),
            kind: claim.kind.as_str().into(),
            value: claim.value.as_str().into(),
            mode: claim.mode,
            ttl_secs: claim.ttl_secs,
            reason: claim.reason.as_str().into(),
            wall: now.wall.as_millis(),
            mono: now.mono.as_nanos(),
            listed,
            place: waiter.map(|at| self.resources.waiter(at).place.number()),
        });
        if listed {
            self.owners.list(owner, token);
        }
        let row = Row {
            id: claim.lease_id.as_str().into(),
            owner,
            holds: holds.then(|| self.resources.enter(&claim.kind, &claim.value)),
            kind: Box::from(&*claim.kind),
            value: Box::from(&*claim.value),
            mode: claim.mode,
            ttl: Duration::from_secs(claim.ttl_secs),
            reason: Box::from(&*claim.reason),
            granted: now.mono,
            acquired: now.wall,
            token,
        };
        let slot = self.hold(row);
        self.table.arm(slot, self.ends_at(slot));
        if let Some(waiter) = waiter {
            self.drop_waiter(waiter);
        }
        let row = self.table.get(slot);
        debug_assert!(self.is_sole_holder(now, slot), "no two owners hold what overlaps");
        effects.changed(self.change(row, Lapse::Granted));
        Outcome::Granted(self.view(now, row, self.owners.renews_until(owner)))
    }

    /// Whether no other owner's lease on the same resource holds.
    fn is_sole_holder(&self, now: Now, slot: Slot) -> bool {
        let row = self.table.get(slot);
        row.holds.is_none_or(|resource| {
            let mut others = self.resources.get(resource).holders.iter();
            others.all(|other| self.table.get(*other).owner == row.owner || !self.holds(*other, now.mono))
        })
    }
}

fn too_wide() -> String {
    alloc::format!("value: {MAX_WIDE} paths that begin with a wildcard are held or waited for already")
}
