//! A machine that does what the test says, and a port that takes what the test lets it.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::rc::Rc;
use core::cell::RefCell;

use relay_core::action::{ActId, Action};
use relay_core::host::Host;
use relay_core::journal::{Records, Seq};
use relay_core::machine::{
    CloseReason, ConnId, Endpoint, Input, ListenerId, Machine, Refused, Target, Ticket,
};
use relay_core::outbox::Outbox;
use relay_core::port::{Ending, Port, Wrote};
use relay_core::time::{Mono, Now, Wall};

pub(crate) type Out = Outbox<u32, u32>;

/// What a command does: anything.
pub(crate) type Order = Box<dyn FnOnce(&mut Out, Ticket) + Send>;

/// What a puppet does by itself at an input, named by its line.
type Reflex = Box<dyn FnMut(&str, &mut Out)>;

/// A machine without a will of its own: it notes each input as a line and does what it is ordered.
pub(crate) struct Puppet {
    pub(crate) heard: Rc<RefCell<Vec<String>>>,
    pub(crate) deadline: Rc<RefCell<Option<Mono>>>,
    pub(crate) reflex: Option<Reflex>,
}

impl Machine for Puppet {
    type Command = Order;
    type Answer = u32;
    type Event = u32;

    fn step(&mut self, now: Now, input: Input<'_, Order>, out: &mut Out) {
        let line = match input {
            Input::Opened { conn, .. } => format!("opened {conn:?}"),
            Input::Bytes { data, .. } if data.len() > 64 => format!("bytes {}", data.len()),
            Input::Bytes { data, .. } => format!("bytes {}", data.escape_ascii()),
            Input::Eof { conn } => format!("eof {conn:?}"),
            Input::Drained { conn } => format!("drained {conn:?}"),
            Input::Closed { conn, why, unsent } => format!("closed {conn:?} {why:?} {unsent}"),
            Input::Persisted { upto } => format!("persisted {}", upto.number()),
            Input::PersistFailed { from } => format!("failing {}", from.number()),
            Input::Resumed { upto } => format!("resumed {}", upto.number()),
            Input::Acted { id, .. } => format!("acted {}", id.number()),
            Input::Drain { .. } => "drain".to_owned(),
            Input::Timer => format!("timer {}", now.mono.as_nanos()),
            Input::Command { ticket, command } => {
                command(out, ticket);
                return;
            }
        };
        let mut deadline = self.deadline.borrow_mut();
        if deadline.is_some_and(|due| due <= now.mono) {
            *deadline = None;
        }
        drop(deadline);
        if let Some(reflex) = &mut self.reflex {
            reflex(&line, out);
        }
        self.heard.borrow_mut().push(line);
    }

    fn deadline(&self) -> Option<Mono> {
        *self.deadline.borrow()
    }
}

/// The outside: sockets that take what is allowed, a journal that says nothing by itself, an owner who listens.
#[derive(Default)]
pub(crate) struct Outside {
    /// What each socket took.
    pub(crate) took: BTreeMap<ConnId, Vec<u8>>,
    /// What each socket still takes before it blocks; without an entry: all.
    pub(crate) room: BTreeMap<ConnId, usize>,
    pub(crate) broken: BTreeSet<ConnId>,
    /// Every other call, as a line.
    pub(crate) calls: Vec<String>,
    pub(crate) appended: VecDeque<Records>,
    pub(crate) events: Vec<u32>,
    pub(crate) answers: Vec<(u64, Result<u32, Refused>)>,
}

impl Port<Puppet> for Outside {
    fn append(&mut self, records: Records) {
        self.appended.push_back(records);
    }

    fn write(&mut self, conn: ConnId, bytes: &[u8]) -> Wrote {
        assert!(!bytes.is_empty(), "nothing was offered");
        if self.broken.contains(&conn) {
            return Wrote::Failed(CloseReason::Reset);
        }
        let room = self.room.entry(conn).or_insert(usize::MAX);
        let count = bytes.len().min(*room);
        if count == 0 {
            return Wrote::Blocked;
        }
        *room -= count;
        self.took.entry(conn).or_default().extend_from_slice(&bytes[..count]);
        Wrote::Bytes(count)
    }

    fn finish(&mut self, conn: ConnId) {
        self.calls.push(format!("finish {conn:?}"));
    }

    fn reading(&mut self, conn: ConnId, on: bool) {
        self.calls.push(format!("reading {conn:?} {on}"));
    }

    fn accepting(&mut self, listener: ListenerId, on: bool) {
        self.calls.push(format!("accepting {} {on}", listener.0));
    }

    fn close(&mut self, conn: ConnId, how: Ending) {
        self.calls.push(format!("close {conn:?} {how:?}"));
    }

    fn dial(&mut self, conn: ConnId, _target: &Target) {
        self.calls.push(format!("dial {conn:?}"));
    }

    fn act(&mut self, id: ActId, _action: Action) {
        self.calls.push(format!("act {}", id.number()));
    }

    fn event(&mut self, event: u32) {
        self.events.push(event);
    }

    fn answer(&mut self, ticket: Ticket, answer: Result<u32, Refused>) {
        self.answers.push((ticket.number(), answer));
    }
}

/// A host of a puppet, with its outside and its clock.
pub(crate) struct Rig {
    pub(crate) host: Host<Puppet>,
    pub(crate) port: Outside,
    pub(crate) heard: Rc<RefCell<Vec<String>>>,
    pub(crate) deadline: Rc<RefCell<Option<Mono>>>,
    pub(crate) clock: u64,
}

impl Rig {
    pub(crate) fn new() -> Self {
        Self::with(None)
    }

    /// A puppet that does something by itself at each input.
    pub(crate) fn with_reflex(reflex: impl FnMut(&str, &mut Out) + 'static) -> Self {
        Self::with(Some(Box::new(reflex)))
    }

    fn with(reflex: Option<Reflex>) -> Self {
        let (heard, deadline) = (Rc::default(), Rc::default());
        let machine = Puppet { heard: Rc::clone(&heard), deadline: Rc::clone(&deadline), reflex };
        Self { host: Host::new(machine, Seq::NONE), port: Outside::default(), heard, deadline, clock: 1 }
    }

    pub(crate) fn now(&self) -> Now {
        Now { mono: Mono::from_nanos(self.clock), wall: Wall::from_millis(0) }
    }

    pub(crate) fn accept(&mut self) -> ConnId {
        let peer = Endpoint::Unix { uid: None, pid: None };
        let conn = self.host.accepted(self.now(), ListenerId(0), &peer, None).expect("there is room");
        self.settle();
        conn
    }

    /// Lets the machine dial, with a text queued.
    pub(crate) fn dial(&mut self, text: &'static str) -> ConnId {
        let (told, id) = std::sync::mpsc::channel();
        self.order(move |out, _| {
            let conn = out.dial(Target::unix("somewhere"));
            out.send(conn, |buf| buf.extend_from_slice(text.as_bytes()));
            told.send(conn).expect("the test waits for it");
        });
        id.recv().expect("the order was carried out")
    }

    /// Lets the machine do something, without settling.
    pub(crate) fn order_only(&mut self, order: impl FnOnce(&mut Out, Ticket) + Send + 'static) -> Ticket {
        self.host.command(self.now(), Box::new(order))
    }

    /// Lets the machine do something, and settles.
    pub(crate) fn order(&mut self, order: impl FnOnce(&mut Out, Ticket) + Send + 'static) -> Ticket {
        let ticket = self.order_only(order);
        self.settle();
        ticket
    }

    pub(crate) fn send(&mut self, conn: ConnId, text: &'static str) {
        self.order(move |out, _| out.send(conn, |buf| buf.extend_from_slice(text.as_bytes())));
    }

    pub(crate) fn send_free(&mut self, conn: ConnId, text: &'static str) {
        self.order(move |out, _| out.send_free(conn, |buf| buf.extend_from_slice(text.as_bytes())));
    }

    /// Queues so many bytes.
    pub(crate) fn fill(&mut self, conn: ConnId, bytes: usize) {
        self.order(move |out, _| out.send(conn, |buf| buf.resize(bytes, b'x')));
    }

    pub(crate) fn record(&mut self) {
        self.order(|out, _| {
            out.record(|buf| buf.push(b'r'));
        });
    }

    pub(crate) fn persisted(&mut self, upto: u64) {
        self.host.persisted(self.now(), Seq::new(upto));
        self.settle();
    }

    pub(crate) fn settle(&mut self) {
        let now = self.now();
        for _ in 0..100 {
            if !self.host.settle(now, &mut self.port) {
                return;
            }
        }
        panic!("the host never comes to rest");
    }

    /// A socket takes so many bytes more, or none.
    pub(crate) fn allow(&mut self, conn: ConnId, room: usize) {
        self.port.room.insert(conn, room);
        if room > 0 {
            self.host.writable(conn);
            self.settle();
        }
    }

    pub(crate) fn took(&self, conn: ConnId) -> String {
        let bytes = self.port.took.get(&conn).map_or(&[][..], Vec::as_slice);
        String::from_utf8_lossy(bytes).into_owned()
    }

    /// The lines heard since the last time, without those of connections that opened.
    pub(crate) fn heard(&mut self) -> Vec<String> {
        let mut heard = self.heard.take();
        heard.retain(|line| !line.starts_with("opened"));
        heard
    }

    pub(crate) fn calls(&mut self) -> Vec<String> {
        core::mem::take(&mut self.port.calls)
    }

    pub(crate) fn gauge(&self, wanted: &str) -> u64 {
        let mut found = None;
        self.host.gauges(&mut |name, value| {
            if name == wanted {
                found = Some(value);
            }
        });
        found.expect("a gauge of that name")
    }
}
