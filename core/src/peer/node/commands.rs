//! What the owner asks, and what comes of actions.

use alloc::boxed::Box;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::net::SocketAddr;
use core::time::Duration;

use super::accept::{peer_file, write_key};
use super::errand::{Asker, Attempt, Errand, Purpose};
use super::state::{Slot, State, Waiting};
use super::{Node, Out};
use crate::action::{ActId, Acted, Action};
use crate::machine::Ticket;
use crate::message::{Kind, RawValue};
use crate::outbox::Close;
use crate::peer::addresses::Addresses;
use crate::peer::book::{PeerIndex, PeerRecord, Stored};
use crate::peer::command::{Answer, Command, DownReason, Event, Failure, PeerView};
use crate::secret::Key;
use crate::text::PeerId;
use crate::time::Now;

/// The files of a peer below the home, beside its key.
const FILES: [&str; 5] = ["key", "meta", "caps", "headroom", "beat"];

impl Node {
    pub(super) fn command(&mut self, now: Now, ticket: Ticket, command: Command, out: &mut Out) {
        let answer = match command {
            Command::Add { record, store } => self.add(ticket, record, store, out),
            Command::Reload { peers, pending } => Some(self.reload(peers, pending)),
            Command::Forget { peer } => Some(self.forget(now, &peer, out)),
            Command::Pend { key } => {
                self.pend(key);
                Some(Answer::Done)
            }
            Command::Connect { address, peer, invite, keep } => {
                self.connect(now, ticket, address, peer, invite, keep, out)
            }
            Command::Send { peer, kind, payload, reply_within } => {
                self.send_to(now, ticket, &peer, kind, payload, reply_within, out)
            }
            Command::Reply { conn, kind, payload } => {
                let checked = check_message(kind, &payload);
                Some(match checked.and_then(|()| self.reply(now, conn, kind, &payload, out)) {
                    Ok(()) => Answer::Done,
                    Err(failure) => Answer::Failed(failure),
                })
            }
            Command::Ping { peer } => self.errand_to(now, ticket, &peer, Purpose::Ping, out),
            Command::Withdraw { ticket } => {
                self.withdraw(now, ticket, out);
                Some(Answer::Done)
            }
            Command::Lease { authority, ask } => self.ask_for_lease(now, ticket, authority, ask, out),
            Command::Peers => Some(Answer::Peers(self.peers(now))),
            Command::Report(report) => {
                self.report(now, &report, out);
                Some(Answer::Done)
            }
        };
        if let Some(answer) = answer {
            out.answer_free(ticket, answer);
        }
    }

    pub(super) fn acted(&mut self, now: Now, id: ActId, result: Acted, out: &mut Out) {
        match self.waiting.remove(&id) {
            Some(Waiting::Admission(admitting)) => self.invited_stored(now, *admitting, result.is_ok(), out),
            Some(Waiting::Command(ticket, answer)) => {
                let answer = match result {
                    Ok(_) => *answer,
                    Err(error) => Answer::Failed(Failure::NotStored(error)),
                };
                out.answer_free(ticket, answer);
            }
            Some(Waiting::Addresses(peer)) => self.addresses_stored(peer, result, out),
            Some(Waiting::File(peer)) => {
                if let Err(error) = result {
                    out.event_free(Event::NotStored { peer: self.book.get(peer).id.clone(), error });
                }
            }
            None => {}
        }
    }

    fn add(&mut self, ticket: Ticket, record: PeerRecord, store: bool, out: &mut Out) -> Option<Answer> {
        let (id, key) = (record.id.clone(), record.key.clone());
        let index = self.know(record);
        if !store {
            return Some(Answer::Done);
        }
        if !self.book.get(index).addresses.is_empty() {
            self.store_addresses(index, out);
        }
        let Some(key) = key else { return Some(Answer::Done) };
        let act = out.act(write_key(&id, &key));
        self.waiting.insert(act, Waiting::Command(ticket, Box::new(Answer::Done)));
        None
    }

    fn reload(&mut self, peers: Vec<PeerRecord>, pending: Option<Key>) -> Answer {
        let paired = peers.iter().filter(|record| record.key.is_some());
        let paired: BTreeSet<_> = paired.map(|record| record.id.clone()).collect();
        for index in 0..self.book.len() as PeerIndex {
            let known = self.book.get_mut(index);
            if !paired.contains(&known.id) {
                known.key = None;
                known.addresses = Addresses::default();
                self.redials.set(index, None);
            }
        }
        for record in peers {
            self.know(record);
        }
        self.pend(pending);
        Answer::Done
    }

    fn forget(&mut self, now: Now, peer: &PeerId, out: &mut Out) -> Answer {
        let Some(index) = self.find(peer) else { return Answer::Failed(Failure::UnknownPeer) };
        let known = self.book.get_mut(index);
        known.key = None;
        known.addresses = Addresses::default();
        known.keep = false;
        let link = known.link;
        self.redials.set(index, None);
        if let Some(conn) = link {
            self.end_link(now, conn, DownReason::Forgotten, Close::Flush, out);
        }
        // Open one-shots and dials end too: nothing of a forgotten peer is executed, and no key of it is shown.
        for slot in 0..self.slots.len() {
            let Slot { conn, state } = &mut self.slots[slot];
            let conn = *conn;
            match state {
                State::Inbound(inbound) if inbound.peer == index => self.end_inbound(conn, Close::Abort, out),
                State::Dialling(dial) => {
                    dial.errand.attempts.retain(|next| next.invite || next.peer.as_ref() != Some(peer));
                    if !dial.attempt.invite && dial.attempt.peer.as_ref() == Some(peer) {
                        self.abandon_attempt(now, conn, out);
                    }
                }
                State::Vacant
                | State::Greeted(_)
                | State::Storing(_)
                | State::Link(_)
                | State::Inbound(_)
                | State::Outbound(_)
                | State::Closing => {}
            }
        }
        let known = self.book.get_mut(index);
        (known.heard, known.beaten) = (None, false);
        // A write that is under way comes before the removal; none may follow it.
        if known.stored == Stored::Outdated {
            known.stored = Stored::UnderWay;
        }
        for file in FILES {
            if let Some(path) = peer_file(peer, file) {
                out.act(Action::RemoveFile { path });
            }
        }
        Answer::Done
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of the command")]
    fn connect(
        &mut self,
        now: Now,
        ticket: Ticket,
        address: SocketAddr,
        peer: Option<PeerId>,
        invite: Option<Key>,
        keep: bool,
        out: &mut Out,
    ) -> Option<Answer> {
        let known = peer.as_ref().and_then(|peer| self.find(peer));
        if let Some(index) = known
            && self.book.get(index).link.is_some()
        {
            self.book.get_mut(index).keep |= keep;
            return peer.map(|peer| Answer::Connected { peer, paired: false });
        }
        let stored = self.keys_for(address, peer.as_ref());
        let invited = invite.map(|key| Attempt { address, peer: peer.clone(), key, invite: true });
        let attempts: VecDeque<_> = stored.into_iter().chain(invited).collect();
        if attempts.is_empty() {
            let unknown = peer.is_some() && known.is_none();
            return Some(Answer::Failed(if unknown { Failure::UnknownPeer } else { Failure::NotPaired }));
        }
        if let Some(index) = known
            && keep
        {
            let known = self.book.get_mut(index);
            known.keep = true;
            known.addresses.advertised(address);
        }
        self.start(now, Errand::new(Purpose::Link { peer: known, keep }, Asker::Owner(ticket), attempts), out)
    }

    /// The keys to try at an address: those of the peer that is expected there, else those of peers known there, then
    /// all others.
    fn keys_for(&self, address: SocketAddr, peer: Option<&PeerId>) -> Vec<Attempt> {
        let candidates = self.book.iter().map(|index| self.book.get(index));
        let mut keyed: Vec<_> = candidates
            .filter(|known| peer.is_none_or(|peer| *peer == known.id))
            .filter_map(|known| Some((known, known.key.as_ref()?)))
            .collect();
        keyed.sort_by_key(|(known, _)| !known.addresses.contains(address));
        let attempt = |(known, key): (&crate::peer::book::Peer, &Key)| Attempt {
            address,
            peer: Some(known.id.clone()),
            key: key.clone(),
            invite: false,
        };
        keyed.into_iter().map(attempt).collect()
    }

    /// Ends a message or a ping of the owner's that is under way. A dial for a lasting link goes on: the link is wanted.
    fn withdraw(&mut self, now: Now, ticket: Ticket, out: &mut Out) {
        if self.withdraw_request(now, ticket, out) || self.withdraw_asked(ticket, out) {
            return;
        }
        if let Some(conn) = self.exchange_of(Asker::Owner(ticket)) {
            self.end_exchange(now, conn, Failure::Withdrawn, out);
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of the command")]
    fn send_to(
        &mut self,
        now: Now,
        ticket: Ticket,
        peer: &PeerId,
        kind: Kind,
        payload: Box<RawValue>,
        reply_within: Option<Duration>,
        out: &mut Out,
    ) -> Option<Answer> {
        if let Err(failure) = check_message(kind, &payload) {
            return Some(Answer::Failed(failure));
        }
        let reply = kind.answer().zip(reply_within);
        let Some(index) = self.find(peer) else { return Some(Answer::Failed(Failure::UnknownPeer)) };
        if self.book.get(index).addresses.is_empty()
            && let Some(conn) = self.book.get(index).link
        {
            return self.ask_over_link(now, conn, Asker::Owner(ticket), kind, &payload, reply, out);
        }
        self.errand_to(now, ticket, peer, Purpose::Send { peer: index, kind, payload, reply }, out)
    }

    fn errand_to(
        &mut self,
        now: Now,
        ticket: Ticket,
        peer: &PeerId,
        purpose: Purpose,
        out: &mut Out,
    ) -> Option<Answer> {
        let Some(index) = self.find(peer) else { return Some(Answer::Failed(Failure::UnknownPeer)) };
        if self.book.get(index).key.is_none() {
            return Some(Answer::Failed(Failure::NotPaired));
        }
        let attempts = self.attempts_for(index);
        if attempts.is_empty() {
            return Some(Answer::Failed(Failure::NoAddress));
        }
        self.start(now, Errand::new(purpose, Asker::Owner(ticket), attempts), out)
    }

    pub(super) fn start(&mut self, now: Now, errand: Errand, out: &mut Out) -> Option<Answer> {
        if self.draining {
            return Some(Answer::Failed(Failure::Stopping));
        }
        if self.dials >= Errand::MAX_UNDER_WAY {
            return Some(Answer::Failed(Failure::Busy));
        }
        self.pursue(now, errand, out);
        None
    }

    /// The place of a peer that is known for something: one that was forgotten is not.
    pub(super) fn find(&self, peer: &PeerId) -> Option<PeerIndex> {
        let index = self.book.find(peer.as_str())?;
        self.book.get(index).is_known().then_some(index)
    }

    fn peers(&self, now: Now) -> Vec<PeerView> {
        let known = self.book.iter().filter(|index| self.book.get(*index).is_known());
        known
            .map(|index| {
                let peer = self.book.get(index);
                let link = peer.link.and_then(|conn| match self.state(conn) {
                    Some(State::Link(link)) => Some(self.view(link)),
                    Some(_) | None => None,
                });
                PeerView {
                    id: peer.id.clone(),
                    paired: peer.key.is_some(),
                    addresses: peer.addresses.iter().copied().collect(),
                    link,
                    dialling: peer.dialling.is_some(),
                    retry_in: self.redials.get(index).map(|due| due.since(now.mono)),
                    report: peer.report().map(|report| (now.mono.since(report.beat), report)),
                }
            })
            .collect()
    }
}

/// Whether the owner may send this at all.
fn check_message(kind: Kind, payload: &RawValue) -> Result<(), Failure> {
    match kind {
        Kind::Challenge | Kind::Handshake | Kind::HandshakeAck => {
            return Err(Failure::BadRequest("a handshake is not sent by hand"));
        }
        Kind::Heartbeat
        | Kind::Ack
        | Kind::DelegateTask
        | Kind::TaskStatus
        | Kind::TaskHandoff
        | Kind::TaskInterrupt
        | Kind::KnowledgeSync
        | Kind::KnowledgeRequest
        | Kind::KnowledgeSnapshot
        | Kind::HiveJoinRequest
        | Kind::HiveJoinResult
        | Kind::KnowledgeRejected
        | Kind::SessionTransfer
        | Kind::SessionReceived
        | Kind::LeaseClaim
        | Kind::LeaseRelease
        | Kind::LeaseList
        | Kind::LeaseResult => {}
    }
    if payload.get().starts_with('{') {
        Ok(())
    } else {
        Err(Failure::BadRequest("the payload is no JSON object"))
    }
}
