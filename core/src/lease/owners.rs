//! Who holds and waits, and whose session lives: a session that stands in its peer's newest heartbeat renews all its
//! leases, for as long as that heartbeat counts.
//!
//! The reference renews at each collection, about every 5 s, to now + TTL. Time is continuous here: an owner has the
//! last instant at which such a collection would renew it, and a lease ends its TTL behind that instant. So a renewal
//! touches no lease, and nothing has to run for one to hold.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use core::time::Duration;

use slab::Slab;

use super::answers::Answers;
use crate::journal::Seq;
use crate::text::PeerId;
use crate::time::Mono;

/// How long a heartbeat renews.
pub const HEARD_FOR: Duration = Duration::from_secs(90);
/// Sessions without a lease that are remembered of a peer's newest heartbeat, for the claims that they may make.
pub const MAX_SESSIONS: usize = 512;

/// An owner's place, for as long as it holds or waits.
pub(super) type OwnerIndex = u32;
/// A peer's place: never reused.
pub(super) type SideIndex = u32;

/// A session of a peer that holds or waits.
#[derive(Debug)]
pub(super) struct Owner {
    pub(super) session: Box<str>,
    pub(super) side: SideIndex,
    /// Whether the peer's newest heartbeat names it, and the record that says so.
    pub(super) listed: Option<Seq>,
    /// Until when it renewed, where it is not listed.
    last: Mono,
    pub(super) leases: BTreeSet<u32>,
    pub(super) waiters: BTreeSet<u32>,
}

/// What is known of one peer.
#[derive(Debug)]
pub(super) struct Side {
    pub(super) id: PeerId,
    heard: Mono,
    /// Sessions that the newest heartbeat names and that hold nothing.
    spare: BTreeSet<Box<str>>,
    owners: BTreeMap<Box<str>, OwnerIndex>,
    pub(super) leases: usize,
    pub(super) waiters: usize,
    pub(super) answers: Answers,
    /// A heartbeat that came while nothing could be recorded.
    deferred: Option<(Mono, BTreeSet<Box<str>>)>,
}

impl Owner {
    /// Until when it renewed before it was listed no more.
    pub(super) const fn last(&self) -> Mono {
        self.last
    }

    /// One lease less. Without any, until when it renewed says nothing of what it will be granted.
    pub(super) fn remove_lease(&mut self, lease: u32) {
        self.leases.remove(&lease);
        if self.leases.is_empty() {
            self.last = Mono::ZERO;
        }
    }
}

/// What a heartbeat changed for an owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Turn {
    /// It is named, and was not, or was not heard of for too long.
    Listed,
    /// It is named no more, and renewed until then.
    Gone(Mono),
}

#[derive(Debug, Default)]
pub(super) struct Owners {
    owners: Slab<Owner>,
    sides: alloc::vec::Vec<Side>,
    by_peer: BTreeMap<PeerId, SideIndex>,
}

impl Owners {
    pub(super) fn get(&self, owner: OwnerIndex) -> &Owner {
        &self.owners[owner as usize]
    }

    pub(super) fn get_mut(&mut self, owner: OwnerIndex) -> &mut Owner {
        &mut self.owners[owner as usize]
    }

    pub(super) fn side(&self, side: SideIndex) -> &Side {
        &self.sides[side as usize]
    }

    pub(super) fn side_mut(&mut self, side: SideIndex) -> &mut Side {
        &mut self.sides[side as usize]
    }

    /// `session@peer`, as messages call the owner.
    pub(super) fn name(&self, owner: OwnerIndex) -> alloc::string::String {
        let owner = self.get(owner);
        let peer = self.side(owner.side).id.as_str();
        let mut name = alloc::string::String::with_capacity(owner.session.len() + 1 + peer.len());
        name.push_str(&owner.session);
        name.push('@');
        name.push_str(peer);
        name
    }

    pub(super) fn len(&self) -> usize {
        self.owners.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Owner> {
        self.by_peer.values().flat_map(|side| self.side(*side).owners.values()).map(|owner| self.get(*owner))
    }

    pub(super) fn enter_side(&mut self, peer: &PeerId) -> SideIndex {
        if let Some(side) = self.by_peer.get(peer) {
            return *side;
        }
        let index = self.sides.len() as SideIndex;
        self.sides.push(Side {
            id: peer.clone(),
            heard: Mono::ZERO,
            spare: BTreeSet::new(),
            owners: BTreeMap::new(),
            leases: 0,
            waiters: 0,
            answers: Answers::default(),
            deferred: None,
        });
        self.by_peer.insert(peer.clone(), index);
        index
    }

    pub(super) fn find(&self, side: SideIndex, session: &str) -> Option<OwnerIndex> {
        self.side(side).owners.get(session).copied()
    }

    /// The owner's place; a new one where it held nothing.
    pub(super) fn enter(&mut self, side: SideIndex, session: &str) -> OwnerIndex {
        if let Some(owner) = self.find(side, session) {
            return owner;
        }
        let at = &mut self.sides[side as usize];
        let listed = at.spare.take(session);
        let owner = Owner {
            session: session.into(),
            side,
            listed: listed.map(|_| Seq::NONE),
            last: Mono::ZERO,
            leases: BTreeSet::new(),
            waiters: BTreeSet::new(),
        };
        let index = self.owners.insert(owner) as OwnerIndex;
        at.owners.insert(session.into(), index);
        index
    }

    /// Forgets that a heartbeat named a session which holds nothing.
    pub(super) fn forget_spare(&mut self, side: SideIndex, session: &str) {
        self.side_mut(side).spare.remove(session);
    }

    /// Forgets an owner that holds nothing and waits for nothing.
    pub(super) fn leave(&mut self, owner: OwnerIndex) {
        if self.get(owner).leases.is_empty() && self.get(owner).waiters.is_empty() {
            let Owner { session, side, listed, .. } = self.owners.remove(owner as usize);
            let side = self.side_mut(side);
            side.owners.remove(&session);
            if listed.is_some() && side.spare.len() < MAX_SESSIONS {
                side.spare.insert(session);
            }
        }
    }

    /// The last instant at which an owner renews, as far as is known; in the future while it lives.
    pub(super) fn renews_until(&self, owner: OwnerIndex) -> Mono {
        let owner = self.get(owner);
        if owner.listed.is_some() { self.side(owner.side).heard.after(HEARD_FOR) } else { owner.last }
    }

    /// As [`renews_until`](Self::renews_until), by what is durable up to `upto` alone.
    pub(super) fn renews_durably_until(&self, owner: OwnerIndex, upto: Seq) -> Mono {
        match self.get(owner).listed {
            Some(record) if record > upto => self.get(owner).last,
            Some(_) | None => self.renews_until(owner),
        }
    }

    /// Every owner of a peer that a heartbeat of these sessions changes, in order.
    pub(super) fn turns(
        &self,
        side: SideIndex,
        heard: Mono,
        named: &BTreeSet<Box<str>>,
    ) -> alloc::vec::Vec<(OwnerIndex, Turn)> {
        let side = self.side(side);
        let counted = side.heard.after(HEARD_FOR);
        let turn = |session: &str, owner: &OwnerIndex| {
            let was = self.get(*owner).listed.is_some();
            match (was, named.contains(session)) {
                (true, true) if counted < heard => Some((*owner, Turn::Listed)),
                (false, true) => Some((*owner, Turn::Listed)),
                (true, false) => Some((*owner, Turn::Gone(counted.min(heard)))),
                (true, true) | (false, false) => None,
            }
        };
        side.owners.iter().filter_map(|(session, owner)| turn(session, owner)).collect()
    }

    /// Takes a heartbeat as the peer's newest.
    pub(super) fn hear(&mut self, side: SideIndex, heard: Mono, named: BTreeSet<Box<str>>) {
        let side = self.side_mut(side);
        side.heard = side.heard.max(heard);
        side.spare = named.into_iter().filter(|session| !side.owners.contains_key(session)).collect();
    }

    /// What a heartbeat names that matters: owners, and as many others as are remembered.
    pub(super) fn named(
        &self,
        side: SideIndex,
        each: impl FnOnce(&mut dyn FnMut(&str)),
    ) -> BTreeSet<Box<str>> {
        let side = self.side(side);
        let (mut named, mut others) = (BTreeSet::new(), 0);
        each(&mut |session| {
            let is_owner = side.owners.contains_key(session);
            if is_owner || (others < MAX_SESSIONS && crate::message::lease::is_session(session)) {
                others += usize::from(named.insert(session.into()) && !is_owner);
            }
        });
        named
    }

    pub(super) fn list(&mut self, owner: OwnerIndex, record: Seq) {
        self.get_mut(owner).listed = Some(record);
    }

    pub(super) fn unlist(&mut self, owner: OwnerIndex, last: Mono) {
        let owner = self.get_mut(owner);
        (owner.listed, owner.last) = (None, last);
    }

    /// Keeps a heartbeat until something can be recorded again; the newest takes an older one's place.
    pub(super) fn defer(&mut self, side: SideIndex, heard: Mono, named: BTreeSet<Box<str>>) {
        self.side_mut(side).deferred = Some((heard, named));
    }

    pub(super) fn take_deferred(&mut self) -> alloc::vec::Vec<(SideIndex, Mono, BTreeSet<Box<str>>)> {
        let sides = self.sides.iter_mut().zip(0..);
        sides
            .filter_map(|(side, index)| side.deferred.take().map(|(heard, named)| (index, heard, named)))
            .collect()
    }

    /// After a restart whoever was listed counts as heard now: its heartbeat may have been the last thing that came.
    pub(super) fn hear_all_listed(&mut self, now: Mono) {
        for (_, owner) in &self.owners {
            if owner.listed.is_some() {
                self.sides[owner.side as usize].heard = now;
            }
        }
    }

    /// The clock starts anew.
    pub(super) fn reboot(&mut self) {
        for (_, owner) in &mut self.owners {
            owner.last = Mono::ZERO;
        }
    }
}
