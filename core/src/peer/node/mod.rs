//! The node over many links: a [`Machine`] that listens, dials, keeps one link with each peer and carries one-shots.

mod accept;
mod asked;
mod beat;
mod commands;
mod dial;
mod dispatch;
mod errand;
mod large;
mod leases;
mod link;
mod one_shot;
mod redial;
mod requests;
mod route;
mod slots;
mod state;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::mem;
use core::time::Duration;

use serde::Serialize;

use self::asked::AskedList;
use self::beat::News;
use self::errand::Errand;
use self::leases::Scribe;
use self::requests::Requests;
use self::state::{Slot, Waiting};
use super::admission::Admission;
use super::book::{Book, PeerIndex, PeerRecord};
use super::command::{Answer, Command, Event};
use super::refusals::Refusals;
use super::report::Report;
use super::settings::Settings;
use super::shared::Shared;
use crate::action::ActId;
use crate::frame::{self, EncodeError, Framing};
use crate::journal::Seq;
use crate::lease::Authority;
use crate::machine::{ConnId, Input, ListenerId, Machine, Share};
use crate::message::{self, Kind, RawValue, Reading};
use crate::outbox::Outbox;
use crate::secret::{Entropy, Key, encode_hex};
use crate::time::{Mono, Now};
use crate::timers::DeadlineQueue;

type Out = Outbox<Event, Answer>;

/// How long a handshake may take, in all, from the first byte of the connection.
pub const HANDSHAKE_TIME: Duration = Duration::from_secs(10);
/// How long a frame may take from its first byte to its last.
pub const FRAME_TIME: Duration = Duration::from_secs(30);
/// Bytes that all connections together may have sent without a proof and without a whole frame.
pub const BEFORE_PROOF: usize = 16 << 20;
/// A text longer than this is checked in pieces, so that nobody waits for the whole, in bytes.
const LARGE: usize = 64 << 10;
/// What a frame costs beside the bytes of its text, in such bytes.
const FRAME_WORK: usize = 512;
/// Timers that one step fires; what is left is due a tick later.
const BATCH: usize = 1024;
/// That tick.
const TICK: Duration = Duration::from_millis(1);

/// A relay: every connection of it, every peer, every timer.
///
/// Each connection goes its own way, one state at a time:
///
/// ```text
///  accepted ─▶ Greeted ─────┬───────────────▶ Link ──────▶ Closing
///                └▶ Storing ┘└──────────────▶ Inbound ───▶    ▲
///  dial ─────▶ Dialling ─┬──────────────────▶ Link ───────────┤
///                        └──────────────────▶ Outbound ───────┘
/// ```
///
/// `Greeted` was challenged, `Storing` waits until an invite's key is on disk, `Inbound` and `Outbound` are one-shots
/// of the peer and of ours, `Closing` waits for the connection's end.
pub struct Node {
    settings: Settings,
    entropy: Entropy,
    book: Book,
    /// The key of the outstanding invite.
    pending: Option<Key>,
    /// Counts what the owner said of invites, so that what is under way for an earlier one is known.
    invites: u64,
    slots: Vec<Slot>,
    /// Deadlines of connections, by slot.
    timers: DeadlineQueue,
    /// When peers are dialled again, by their place in the book.
    redials: DeadlineQueue,
    admission: Admission,
    refusals: Refusals,
    /// Nonces of challenges that are not answered yet.
    issued: BTreeSet<[u8; 32]>,
    waiting: BTreeMap<ActId, Waiting>,
    asked: AskedList,
    leases: Authority,
    /// The record that the newest snapshot reaches to.
    snapped: Seq,
    requests: Requests,
    listeners: BTreeSet<ListenerId>,
    /// What heartbeats say, where headroom is spoken of and where it is not.
    beats: [Box<RawValue>; 2],
    news: News,
    links: usize,
    /// What the peers of links say their versions are.
    versions: Shared,
    dials: usize,
    /// One-shots of peers that are open.
    one_shots: usize,
    unproven_bytes: usize,
    stepped: Mono,
    started: bool,
    draining: bool,
    /// Long texts that are being checked, one a share: who is at its first does not give way before its end.
    large: BTreeMap<ConnId, Reading>,
    /// Buffers that steps reuse: a frame's text, a message's text, the message as a frame.
    inflated: Vec<u8>,
    text: Vec<u8>,
    framed: Vec<u8>,
    counts: Counts,
}

#[derive(Debug, Default)]
struct Counts {
    handshakes: u64,
    handshakes_failed: u64,
    connections_refused: u64,
    frames: u64,
    faults: u64,
    repeats: u64,
}

impl Node {
    /// A node of these settings that knows these peers.
    ///
    /// `seed` is the only randomness it ever gets: it must be fresh at every start, and secret.
    #[must_use]
    pub fn new(mut settings: Settings, seed: [u8; 32], peers: Vec<PeerRecord>, pending: Option<Key>) -> Self {
        let [shortest, longest] = Settings::HEARTBEAT_BOUNDS;
        settings.heartbeat = settings.heartbeat.clamp(shortest, longest);
        let mut node = Self {
            entropy: Entropy::new(seed),
            book: Book::default(),
            pending: None,
            invites: 0,
            slots: Vec::new(),
            timers: DeadlineQueue::new(),
            redials: DeadlineQueue::new(),
            admission: Admission::default(),
            refusals: Refusals::default(),
            issued: BTreeSet::new(),
            waiting: BTreeMap::new(),
            asked: AskedList::default(),
            leases: Authority::new(settings.boot.clone()),
            snapped: Seq::NONE,
            requests: Requests::default(),
            listeners: BTreeSet::new(),
            beats: beat::payloads(&settings.id, &Report::default()),
            news: News::default(),
            links: 0,
            versions: Shared::default(),
            dials: 0,
            one_shots: 0,
            unproven_bytes: 0,
            stepped: Mono::ZERO,
            started: false,
            draining: false,
            large: BTreeMap::new(),
            inflated: Vec::new(),
            text: Vec::new(),
            framed: Vec::new(),
            counts: Counts::default(),
            settings,
        };
        for record in peers {
            node.know(record);
        }
        node.pend(pending);
        node
    }

    /// The settings that it was made with.
    #[must_use]
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Lasting links that stand.
    #[must_use]
    pub const fn links(&self) -> usize {
        self.links
    }

    fn fire(&mut self, now: Now, out: &mut Out) {
        for _ in 0..BATCH {
            let Some(slot) = self.timers.pop_due(now.mono) else { break };
            let conn = self.slots[slot as usize].conn;
            self.connection_due(now, conn, out);
        }
        for _ in 0..BATCH {
            if self.redials.deadline().is_none_or(|due| due > now.mono) || self.dials >= Errand::MAX_UNDER_WAY
            {
                break;
            }
            let Some(peer) = self.redials.pop_due(now.mono) else { break };
            self.redial(now, peer, out);
        }
        self.asked_due(now, out);
        self.refusals_due(now, out);
        self.requests_due(now, out);
        self.news_due(now, out);
        self.leases.fire(now, &mut Scribe(out));
    }

    /// Sends one message, which rests on the journal unless its kind says nothing that a record could, or the journal
    /// fails; the error is ours, and the connection is unhurt.
    fn send<P: Serialize + ?Sized>(
        &mut self,
        now: Now,
        conn: ConnId,
        framing: Framing,
        kind: Kind,
        payload: &P,
        out: &mut Out,
    ) -> Result<(), EncodeError> {
        self.compose(now, framing, kind, payload)?;
        let write = |buf: &mut Vec<u8>| buf.extend_from_slice(&self.framed);
        // While the journal fails, what is told of leases is durable, and nothing else rests on a record.
        if self.leases.is_failing() || matches!(kind, Kind::Challenge | Kind::Handshake | Kind::Heartbeat) {
            out.send_free(conn, write);
        } else {
            out.send(conn, write);
        }
        Ok(())
    }

    /// Writes a message, framed, into `self.framed`.
    fn compose<P: Serialize + ?Sized>(
        &mut self,
        now: Now,
        framing: Framing,
        kind: Kind,
        payload: &P,
    ) -> Result<(), EncodeError> {
        // An id that nobody can guess, so that nobody can use it up in another's name.
        let id = alloc::format!("msg_{}_{:016x}", now.wall.as_millis(), self.entropy.draw_u64());
        // A challenge goes to somebody who has not said who it is.
        let from = if kind == Kind::Challenge { "" } else { self.settings.id.as_str() };
        self.text.clear();
        self.framed.clear();
        message::write(&mut self.text, &id, kind, from, now.wall.as_millis(), payload)
            .map_err(|_| EncodeError::Empty)?;
        if framing == Framing::Ndjson {
            // A payload that somebody wrote over several lines: inside JSON, only white space can be a raw line break.
            self.text.iter_mut().filter(|byte| **byte == b'\n').for_each(|byte| *byte = b' ');
        }
        frame::encode(framing, &self.text, &mut self.framed)?;
        if self.text.capacity() > frame::MAX_FRAME {
            self.text = Vec::new();
        }
        Ok(())
    }

    fn fresh_nonce(&mut self) -> ([u8; 32], alloc::string::String) {
        let nonce = self.entropy.draw();
        (nonce, encode_hex(&nonce))
    }

    /// Takes a peer in, or what is newly said of it: addresses that are said go before those that are known.
    fn know(&mut self, record: PeerRecord) -> PeerIndex {
        let index = self.book.enter(&record.id);
        let peer = self.book.get_mut(index);
        let mut news = false;
        if record.key.is_some() && record.key != peer.key {
            peer.key = record.key;
            news = true;
        }
        let known = mem::replace(&mut peer.addresses, record.addresses);
        news |= peer.addresses.iter().any(|new| !known.contains(new.address));
        peer.addresses.append(&known);
        // What is known already does not hurry a dial that waits its turn.
        if news && self.settings.dial_known {
            self.dial_soon(index);
        }
        index
    }

    fn drain(&mut self, now: Now, out: &mut Out) {
        self.draining = true;
        self.stop_requests(out);
        self.tell_left_out(out);
        for listener in &self.listeners {
            out.accepting(*listener, false);
        }
        for peer in 0..self.book.len() as PeerIndex {
            self.redials.set(peer, None);
        }
        for slot in 0..self.slots.len() {
            let conn = self.slots[slot].conn;
            self.stop_connection(now, conn, out);
        }
    }
}

impl Machine for Node {
    type Command = Command;
    type Answer = Answer;
    type Event = Event;

    fn step(&mut self, now: Now, input: Input<'_, Command>, out: &mut Out) {
        self.stepped = now.mono;
        if !self.started {
            self.started = true;
            self.dial_known_soon();
            self.leases.start(now, &mut Scribe(out));
        }
        match input {
            Input::Opened { conn, by, peer, identity: _ } => self.opened(now, conn, by, peer, out),
            Input::Bytes { conn, data } => self.bytes(now, conn, data, out),
            Input::Eof { conn } => self.eof(now, conn, out),
            Input::Drained { conn } => self.drained(now, conn),
            Input::Closed { conn, why, unsent: _ } => self.closed(now, conn, why, out),
            Input::Persisted { upto } => self.leases.persisted(upto),
            Input::PersistFailed { .. } => {
                self.leases.persist_failed();
                out.event_free(Event::Journal { failing: true });
            }
            Input::Resumed { upto } => {
                self.leases.resumed(now, upto, &mut Scribe(out));
                out.event_free(Event::Journal { failing: false });
            }
            Input::Timer => {}
            Input::Acted { id, result } => self.acted(now, id, result, out),
            Input::Drain { by: _ } => self.drain(now, out),
            Input::Command { ticket, command } => self.command(now, ticket, command, out),
        }
        self.fire(now, out);
        self.snap(out);
    }

    fn deadline(&self) -> Option<Mono> {
        let redials = if self.dials >= Errand::MAX_UNDER_WAY { None } else { self.redials.deadline() };
        let own = [self.timers.deadline(), redials, self.asked.deadline(), self.refusals.deadline()];
        let leases = [self.leases.deadline(), self.requests.deadline(), self.news.deadline()];
        let due = own.into_iter().chain(leases).flatten().min()?;
        Some(if due <= self.stepped { self.stepped.after(TICK) } else { due })
    }

    fn idle(&self) -> bool {
        self.links == 0 && self.dials == 0 && self.waiting.is_empty()
    }

    fn share(&self, conn: ConnId) -> Share {
        self.share_of(conn)
    }

    fn gauges(&self, sink: &mut dyn FnMut(&'static str, u64)) {
        sink("links", self.links as u64);
        sink("dials", self.dials as u64);
        sink("peers", self.book.len() as u64);
        sink("one_shots", self.one_shots as u64);
        sink("handshakes_under_way", self.admission.under_way() as u64);
        sink("unproven_bytes", self.unproven_bytes as u64);
        sink("connection_timers", self.timers.len() as u64);
        sink("redial_timers", self.redials.len() as u64);
        sink("actions_under_way", self.waiting.len() as u64);
        sink("replies_awaited", self.asked.len() as u64);
        sink("lease_requests", self.requests.len() as u64);
        self.leases.gauges(sink);
        sink("handshakes", self.counts.handshakes);
        sink("handshakes_failed", self.counts.handshakes_failed);
        sink("connections_refused", self.counts.connections_refused);
        sink("frames", self.counts.frames);
        sink("faults", self.counts.faults);
        sink("repeated_messages", self.counts.repeats);
    }
}
