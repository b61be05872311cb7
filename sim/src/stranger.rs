//! A test's own end of a connection: bytes as they are, of no protocol.

use alloc::collections::VecDeque;
use core::cell::RefCell;
use core::net::SocketAddr;

use relay_core::machine::{Address, CloseReason, ConnId, Input, Machine, Target, Transport};
use relay_core::outbox::{Close, Limits, Outbox};
use relay_core::time::{Mono, Now};

use crate::faults::Dialled;
use crate::node::{Node, NodeId, Shell};
use crate::watch::Subject;
use crate::world::World;

/// A peer whose bytes the test writes, at a node of its own. It has one connection at a time, the newest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Stranger(NodeId);

impl Stranger {
    /// Its node, which can be cut off, stalled, held, killed or crashed as any.
    #[must_use]
    pub const fn node(self) -> NodeId {
        self.0
    }
}

/// Strangers.
impl<M: Subject> World<M> {
    /// A stranger that dials an address. What it says before it is connected is sent then.
    pub fn stranger(&mut self, address: impl Into<Dialled>) -> Stranger {
        let stranger = self.add_stranger();
        self.order(stranger, Order::Dial(address.into().0));
        stranger
    }

    /// A stranger that listens at an address.
    pub fn stranger_at(&mut self, address: SocketAddr) -> Stranger {
        let stranger = self.add_stranger();
        self.listen(stranger.0, address);
        stranger
    }

    /// Lets a stranger send bytes over its connection; nothing where it has none.
    pub fn say(&mut self, stranger: Stranger, bytes: impl AsRef<[u8]>) {
        self.order(stranger, Order::Send(bytes.as_ref().to_vec()));
    }

    /// Lets a stranger half-close behind what it said.
    pub fn hang_up(&mut self, stranger: Stranger) {
        self.order(stranger, Order::Finish);
    }

    /// Lets a stranger close its socket at once.
    pub fn leave(&mut self, stranger: Stranger) {
        self.order(stranger, Order::Close);
    }

    /// Whether a stranger has a connection that stands.
    #[must_use]
    pub fn is_connected(&self, stranger: Stranger) -> bool {
        self.visitor(stranger).is_some_and(|visitor| visitor.open)
    }

    /// All that a stranger has read since it came or since its node's last start.
    #[must_use]
    pub fn heard(&self, stranger: Stranger) -> &[u8] {
        self.visitor(stranger).map_or(&[], |visitor| &visitor.heard)
    }

    /// Whether a stranger's peer has half-closed.
    #[must_use]
    pub fn heard_end(&self, stranger: Stranger) -> bool {
        self.visitor(stranger).is_some_and(|visitor| visitor.eof)
    }

    /// Why a stranger's last connection ended, or its dial failed; `None` while it has one.
    #[must_use]
    pub fn ended(&self, stranger: Stranger) -> Option<CloseReason> {
        self.visitor(stranger).and_then(|visitor| visitor.ended)
    }

    fn add_stranger(&mut self) -> Stranger {
        let build = Box::new(|_, _, _: &mut _| Inhabitant::Visitor(Visitor::default()));
        Stranger(self.add(build))
    }

    fn order(&mut self, stranger: Stranger, order: Order) {
        let visitor = self.visitor(stranger);
        visitor.expect("the stranger's node is up").orders.borrow_mut().push_back(order);
        self.turn(stranger.0, "order", 0, &[], |host, now, _, _| host.timer(now));
    }

    fn visitor(&self, stranger: Stranger) -> Option<&Visitor> {
        match &self.host(stranger.0)?.machine().inside {
            Inhabitant::Machine(_) => None,
            Inhabitant::Visitor(visitor) => Some(visitor),
        }
    }

    pub(crate) fn add(&mut self, build: crate::node::Build<M>) -> NodeId {
        let id = NodeId(u16::try_from(self.nodes.len()).expect("at most 65,536 nodes"));
        self.nodes.push(Node { host: None, build, shell: Shell::new(id) });
        self.start(id);
        id
    }
}

/// Who lives in a node.
pub(crate) enum Inhabitant<M> {
    /// The machine under test.
    Machine(M),
    /// A stranger.
    Visitor(Visitor),
}

/// The machine of a stranger: it does what it is ordered, at once.
#[derive(Default)]
pub(crate) struct Visitor {
    /// Set by the world, which sees the machine but cannot change it.
    orders: RefCell<VecDeque<Order>>,
    conn: Option<ConnId>,
    /// Whether it stands.
    open: bool,
    heard: Vec<u8>,
    eof: bool,
    ended: Option<CloseReason>,
}

enum Order {
    Dial(Address),
    Send(Vec<u8>),
    Finish,
    Close,
}

impl Visitor {
    fn step<C, E, A>(&mut self, input: &Input<'_, C>, out: &mut Outbox<E, A>) {
        match input {
            Input::Opened { conn, .. } => {
                if let Some(older) = self.conn.replace(*conn)
                    && older != *conn
                {
                    out.close(older, Close::Abort);
                }
                (self.open, self.eof, self.ended) = (true, false, None);
                Self::unbind(*conn, out);
            }
            Input::Bytes { conn, data } if self.conn == Some(*conn) => self.heard.extend_from_slice(data),
            Input::Eof { conn } if self.conn == Some(*conn) => self.eof = true,
            Input::Closed { conn, why, .. } if self.conn == Some(*conn) => {
                (self.conn, self.open) = (None, false);
                self.ended = Some(*why);
            }
            Input::Bytes { .. }
            | Input::Eof { .. }
            | Input::Drained { .. }
            | Input::Closed { .. }
            | Input::Persisted { .. }
            | Input::PersistFailed { .. }
            | Input::Resumed { .. }
            | Input::Acted { .. }
            | Input::Drain { .. }
            | Input::Timer
            | Input::Command { .. } => {}
        }
        let orders = core::mem::take(self.orders.get_mut());
        for order in orders {
            self.obey(order, out);
        }
    }

    fn obey<E, A>(&mut self, order: Order, out: &mut Outbox<E, A>) {
        match (order, self.conn) {
            (Order::Dial(address), _) => {
                let conn = out.dial(Target { address, transport: Transport::Plain });
                Self::unbind(conn, out);
                (self.conn, self.open) = (Some(conn), false);
            }
            (Order::Send(bytes), Some(conn)) => out.send(conn, |buf| buf.extend_from_slice(&bytes)),
            (Order::Finish, Some(conn)) => out.finish(conn),
            (Order::Close, Some(conn)) => out.close(conn, Close::Abort),
            (Order::Send(_) | Order::Finish | Order::Close, None) => {}
        }
    }

    /// A test may say as much as it likes.
    fn unbind<E, A>(conn: ConnId, out: &mut Outbox<E, A>) {
        out.limit(conn, Limits { cap: u32::MAX, ..Limits::DEFAULT });
    }

    fn deadline(&self) -> Option<Mono> {
        (!self.orders.borrow().is_empty()).then_some(Mono::ZERO)
    }
}

impl<M: Machine> Machine for Inhabitant<M> {
    type Command = M::Command;
    type Answer = M::Answer;
    type Event = M::Event;

    fn step(&mut self, now: Now, input: Input<'_, M::Command>, out: &mut Outbox<M::Event, M::Answer>) {
        match self {
            Self::Machine(machine) => machine.step(now, input, out),
            Self::Visitor(visitor) => visitor.step(&input, out),
        }
    }

    fn deadline(&self) -> Option<Mono> {
        match self {
            Self::Machine(machine) => machine.deadline(),
            Self::Visitor(visitor) => visitor.deadline(),
        }
    }

    fn idle(&self) -> bool {
        match self {
            Self::Machine(machine) => machine.idle(),
            Self::Visitor(_) => true,
        }
    }

    fn gauges(&self, sink: &mut dyn FnMut(&'static str, u64)) {
        match self {
            Self::Machine(machine) => machine.gauges(sink),
            Self::Visitor(_) => {}
        }
    }
}
