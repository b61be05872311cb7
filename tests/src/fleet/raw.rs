//! A peer that knows no protocol: it dials or listens, sends the bytes it is given and keeps those it gets.

use alloc::rc::Rc;
use core::cell::RefCell;
use core::net::SocketAddr;

use relay_core::machine::{CloseReason, ConnId, Input, Opener, Target};
use relay_core::outbox::{Close, Limits, Outbox};
use relay_core::peer::{Answer, Command, Event};
use relay_sim::{NodeId, World};
use serde_json::Value;

use super::actor::Actor;
use super::spec::PORT;
use super::wire::{self, Sent};

/// A raw peer of a fleet.
#[derive(Clone)]
pub struct Raw {
    node: NodeId,
    shared: Rc<RefCell<Shared>>,
}

/// What a raw peer is to do next. Connections are named by their place in the order in which they came about.
#[derive(Debug)]
#[non_exhaustive]
pub enum Order {
    /// Dial.
    Dial(SocketAddr),
    /// Send bytes.
    Send(usize, Vec<u8>),
    /// Half-close.
    Finish(usize),
    /// Close, in order where nothing is unread.
    Close(usize),
}

/// One connection of a raw peer, and all that was heard on it.
#[derive(Clone)]
pub struct Talk {
    raw: Raw,
    index: usize,
}

#[derive(Default)]
struct Shared {
    orders: Vec<Order>,
    heard: Vec<Heard>,
}

struct Heard {
    conn: ConnId,
    dialled: bool,
    open: bool,
    bytes: Vec<u8>,
    eof: bool,
    closed: Option<CloseReason>,
}

/// The machine behind a [`Raw`].
pub struct RawMachine {
    shared: Rc<RefCell<Shared>>,
}

impl Raw {
    pub(super) fn join(world: &mut World<Actor>) -> Self {
        let shared = Rc::new(RefCell::new(Shared::default()));
        let machine = Rc::clone(&shared);
        let node = world.node(move |_, _, _| Actor::Raw(RawMachine { shared: Rc::clone(&machine) }));
        world.listen(node, node.at(PORT));
        Self { node, shared }
    }

    /// Its node in the world.
    #[must_use]
    pub const fn node(&self) -> NodeId {
        self.node
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.node.at(PORT)
    }

    /// The connections that came to it or that it dialled, in order.
    #[must_use]
    pub fn talks(&self) -> Vec<Talk> {
        (0..self.shared.borrow().heard.len()).map(|index| self.talk(index)).collect()
    }

    /// The connections that were dialled to it.
    #[must_use]
    pub fn visits(&self) -> Vec<Talk> {
        self.talks().into_iter().filter(|talk| !talk.with(|heard| heard.dialled)).collect()
    }

    pub(super) fn next_talk(&self) -> Talk {
        self.talk(self.shared.borrow().heard.len())
    }

    pub(super) fn push(&self, order: Order) {
        self.shared.borrow_mut().orders.push(order);
    }

    fn talk(&self, index: usize) -> Talk {
        Talk { raw: self.clone(), index }
    }
}

impl Talk {
    /// All bytes that came.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        self.with(|heard| heard.bytes.clone())
    }

    /// All messages that came.
    #[must_use]
    pub fn messages(&self) -> Vec<Sent> {
        wire::read(&self.bytes())
    }

    /// The messages of one type.
    #[must_use]
    pub fn of_type(&self, msg_type: &str) -> Vec<Sent> {
        self.messages().into_iter().filter(|sent| sent.msg_type == msg_type).collect()
    }

    /// The nonce of the challenge.
    ///
    /// # Panics
    /// Where none came.
    #[must_use]
    pub fn nonce(&self) -> String {
        let challenge = self.of_type("challenge");
        let nonce = challenge.first().and_then(|sent| sent.payload["nonce"].as_str());
        nonce.expect("a challenge came").to_owned()
    }

    /// The payload of the ack.
    ///
    /// # Panics
    /// Where none came.
    #[must_use]
    pub fn ack(&self) -> Value {
        self.of_type("handshake_ack").first().expect("an ack came").payload.clone()
    }

    /// The status of the ack; empty where none came.
    #[must_use]
    pub fn status(&self) -> String {
        let acks = self.of_type("handshake_ack");
        acks.first().and_then(|sent| sent.payload["status"].as_str()).unwrap_or_default().to_owned()
    }

    /// Whether the other end has ended the connection, in order or not.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.with(|heard| heard.eof || heard.closed.is_some())
    }

    /// Whether the connection stands in both directions.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.with(|heard| heard.open && !heard.eof && heard.closed.is_none())
    }

    /// How the connection ended here; `None` while it has not.
    #[must_use]
    pub fn closed(&self) -> Option<CloseReason> {
        self.with(|heard| heard.closed)
    }

    /// Its id at the raw peer, once there is one.
    #[must_use]
    pub fn conn(&self) -> Option<ConnId> {
        self.raw.shared.borrow().heard.get(self.index).map(|heard| heard.conn)
    }

    /// Its place among the raw peer's connections.
    #[must_use]
    pub const fn index(&self) -> usize {
        self.index
    }

    pub(super) const fn raw(&self) -> &Raw {
        &self.raw
    }

    fn with<T>(&self, look: impl FnOnce(&Heard) -> T) -> T {
        look(self.raw.shared.borrow().heard.get(self.index).expect("the connection came about"))
    }
}

impl RawMachine {
    /// What it may have unsent: a test sends megabytes at once.
    const LIMITS: Limits = Limits { high: 1 << 26, low: 1 << 20, cap: 1 << 27 };

    pub(super) fn step(&self, input: Input<'_, Command>, out: &mut Outbox<Event, Answer>) {
        let mut shared = self.shared.borrow_mut();
        match input {
            Input::Opened { conn, by, .. } => {
                out.limit(conn, Self::LIMITS);
                match by {
                    Opener::Accepted(_) => shared.heard.push(Heard::new(conn, false)),
                    Opener::Dialled => {}
                }
                shared.of(conn, |heard| heard.open = true);
            }
            Input::Bytes { conn, data } => shared.of(conn, |heard| heard.bytes.extend_from_slice(data)),
            Input::Eof { conn } => shared.of(conn, |heard| heard.eof = true),
            Input::Closed { conn, why, .. } => shared.of(conn, |heard| heard.closed = Some(why)),
            Input::Command { ticket, .. } => {
                for order in core::mem::take(&mut shared.orders) {
                    shared.obey(order, out);
                }
                out.answer(ticket, Answer::Done);
            }
            Input::Drained { .. }
            | Input::Persisted { .. }
            | Input::PersistFailed { .. }
            | Input::Resumed { .. }
            | Input::Acted { .. }
            | Input::Drain { .. }
            | Input::Timer => {}
        }
    }
}

impl Shared {
    fn of(&mut self, conn: ConnId, note: impl FnOnce(&mut Heard)) {
        if let Some(heard) = self.heard.iter_mut().rfind(|heard| heard.conn == conn) {
            note(heard);
        }
    }

    fn obey(&mut self, order: Order, out: &mut Outbox<Event, Answer>) {
        let conn = |index: usize| {
            self.heard.get(index).map(|heard| heard.conn).expect("a connection that came about")
        };
        match order {
            Order::Dial(address) => {
                let conn = out.dial(Target::tcp(address));
                self.heard.push(Heard::new(conn, true));
            }
            Order::Send(index, bytes) => out.send(conn(index), |buf| buf.extend_from_slice(&bytes)),
            Order::Finish(index) => out.finish(conn(index)),
            Order::Close(index) => out.close(conn(index), Close::Flush),
        }
    }
}

impl Heard {
    const fn new(conn: ConnId, dialled: bool) -> Self {
        Self { conn, dialled, open: false, bytes: Vec::new(), eof: false, closed: None }
    }
}
