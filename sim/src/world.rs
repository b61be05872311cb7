//! A world: nodes, a network and disks in virtual time.

use alloc::collections::BTreeMap;
use core::ops::Range;
use core::time::Duration;

use relay_core::host::Host;
use relay_core::journal::{Journal, Seq};
use relay_core::machine::{Address, ConnId, Durable, ListenerId, Refused, Ticket};
use relay_core::time::Now;

use crate::disk::Disk;
use crate::draw::Draws;
use crate::link::LinkId;
use crate::net::Core;
use crate::node::{Listener, Node, NodeId, Shell, State};
use crate::queue::Happening;
use crate::stranger::Inhabitant;
use crate::trace::Fingerprint;
use crate::watch::{Subject, Witness};

/// Nodes of one machine type, run by one thread in virtual time.
///
/// The same seed and the same calls give the same run, to the last event: see [`fingerprint`](Self::fingerprint).
/// Rules of the contract are held at every step, and a broken one panics with its name.
///
/// ```
/// use core::time::Duration;
/// use relay_core::machine::{Input, Machine, Target};
/// use relay_core::outbox::Outbox;
/// use relay_core::time::{Mono, Now};
/// use relay_sim::World;
///
/// /// Dials what it is told to, and tells how many bytes it read.
/// struct Echo;
///
/// impl Machine for Echo {
///     type Command = Target;
///     type Answer = ();
///     type Event = usize;
///
///     fn step(&mut self, _: Now, input: Input<'_, Target>, out: &mut Outbox<usize, ()>) {
///         match input {
///             Input::Command { command, .. } => {
///                 let conn = out.dial(command);
///                 out.send(conn, |buf| buf.extend_from_slice(b"hello"));
///             }
///             Input::Bytes { data, .. } => out.event(data.len()),
///             _ => {}
///         }
///     }
///
///     fn deadline(&self) -> Option<Mono> {
///         None
///     }
/// }
///
/// let mut world = World::new(7);
/// let server = world.node(|_, _, _| Echo);
/// let client = world.node(|_, _, _| Echo);
/// world.listen(server, server.at(7000));
/// world.command(client, Target::tcp(server.at(7000)));
/// world.settle();
/// assert_eq!(world.events(server).iter().map(|(_, read)| read).sum::<usize>(), 5);
///
/// world.crash(server);
/// world.run_for(Duration::from_secs(5));
/// assert!(!world.is_up(server));
/// ```
pub struct World<M: Subject> {
    pub(crate) core: Core,
    pub(crate) nodes: Vec<Node<M>>,
    pub(crate) witness: Option<Box<dyn Witness<M>>>,
    pub(crate) scripts: BTreeMap<u64, Script<M>>,
    scripted: u64,
}

pub(crate) type Script<M> = Box<dyn FnOnce(&mut World<M>)>;

/// Building.
impl<M: Subject> World<M> {
    /// An empty world at time zero.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            core: Core::new(seed),
            nodes: Vec::new(),
            witness: None,
            scripts: BTreeMap::new(),
            scripted: 0,
        }
    }

    /// Adds a node and starts it. `build` makes its machine, now and at each restart, of what its disk kept; its second
    /// argument counts the starts from 0.
    ///
    /// # Panics
    /// Past 65,536 nodes.
    pub fn node(&mut self, mut build: impl FnMut(NodeId, u32, &mut Disk) -> M + 'static) -> NodeId {
        self.add(Box::new(move |id, boot, disk| Inhabitant::Machine(build(id, boot, disk))))
    }

    /// Lets a node listen at an address: any, [`NodeId::at`] being its own. It listens again after each restart.
    ///
    /// # Panics
    /// Where another listens there.
    pub fn listen(&mut self, node: NodeId, address: core::net::SocketAddr) -> ListenerId {
        self.listen_at(node, Address::Tcp(address))
    }

    /// Lets a node listen at the path of a unix socket. All nodes of a world share one space of paths.
    ///
    /// # Panics
    /// Where another listens there.
    pub fn listen_unix(&mut self, node: NodeId, path: &str) -> ListenerId {
        self.listen_at(node, Address::Unix(path.into()))
    }

    /// Holds what becomes visible against what is durable.
    pub fn witness(&mut self, witness: impl Witness<M> + 'static) {
        self.witness = Some(Box::new(witness));
    }

    fn listen_at(&mut self, node: NodeId, address: Address) -> ListenerId {
        let listeners = &mut self.nodes[usize::from(node.0)].shell.listeners;
        let id = listeners.len() as u16;
        listeners.push(Listener { address: address.clone(), accepting: true, backlog: Default::default() });
        let before = self.core.net.listeners.insert(address.clone(), (node, id));
        assert!(before.is_none(), "somebody listens at {address:?} already");
        ListenerId(id)
    }
}

/// Running.
impl<M: Subject> World<M> {
    /// How long [`run_until`](Self::run_until) and [`settle`](Self::settle) go on: an hour of virtual time.
    pub const PATIENCE: Duration = Duration::from_secs(3600);

    /// Runs for a span of virtual time.
    pub fn run_for(&mut self, span: Duration) {
        let end = self.core.after(span);
        while self.core.queue.next_at().is_some_and(|at| at <= end) {
            self.advance();
        }
        self.core.now = end;
    }

    /// Runs until something holds.
    ///
    /// # Panics
    /// Where it still does not hold when nothing is left to happen, or after [`PATIENCE`](Self::PATIENCE).
    pub fn run_until(&mut self, mut holds: impl FnMut(&Self) -> bool) {
        let end = self.core.after(Self::PATIENCE);
        while !holds(self) {
            let due = self.core.queue.next_at();
            assert!(due.is_some(), "nothing is left to happen at {:?}, and it does not hold", self.now());
            assert!(due.is_some_and(|at| at <= end), "it does not hold after {:?}", Self::PATIENCE);
            self.advance();
        }
    }

    /// Runs until nothing is under way: no bytes, no dials, no syncs, no actions. Timers and scripts may be left.
    ///
    /// # Panics
    /// Where that does not come within [`PATIENCE`](Self::PATIENCE).
    pub fn settle(&mut self) {
        let end = self.core.after(Self::PATIENCE);
        while self.core.queue.work() > 0 {
            assert!(self.core.queue.next_at().is_some_and(|at| at <= end), "the world does not come to rest");
            self.advance();
        }
        self.check_ids();
    }

    /// Does something at a time of the world, counted from its start; at once where that is over.
    pub fn at(&mut self, time: Duration, script: impl FnOnce(&mut Self) + 'static) {
        let number = self.scripted;
        self.scripted += 1;
        self.scripts.insert(number, Box::new(script));
        let at = (time.as_nanos() as u64).max(self.core.now);
        self.core.queue.push(at, Happening::Script { number });
    }
}

/// The owner's side, and what a test looks at.
impl<M: Subject> World<M> {
    /// Gives a node a command.
    ///
    /// # Panics
    /// Where the node is down or held.
    pub fn command(&mut self, node: NodeId, command: M::Command) -> Ticket {
        assert!(self.shell(node).frozen.is_none(), "{node} is held: nobody can give it a command");
        let text = format!("{command:?}");
        self.turn(node, "command", 0, text.as_bytes(), |host, now, _, _| host.command(now, command))
            .expect("the node is up")
    }

    /// Asks a node to end within a span; it stops when it has, at the latest then.
    pub fn drain(&mut self, node: NodeId, within: Duration) {
        self.turn(node, "drain", 0, &[], |host, now, _, _| host.drain(now, now.mono.after(within)));
    }

    /// A command's answer, where it has come: of the node's life now.
    #[must_use]
    pub fn answer(&self, node: NodeId, ticket: Ticket) -> Option<&Result<M::Answer, Refused>> {
        let shell = self.shell(node);
        shell
            .answers
            .iter()
            .rfind(|known| known.boot == shell.boot && known.ticket == ticket)
            .map(|known| &known.answer)
    }

    /// All answers that a node ever gave, with their times.
    pub fn answers(
        &self,
        node: NodeId,
    ) -> impl Iterator<Item = (Duration, Ticket, &Result<M::Answer, Refused>)> {
        self.shell(node).answers.iter().map(|known| (known.at, known.ticket, &known.answer))
    }

    /// All events that a node ever told, with their times.
    #[must_use]
    pub fn events(&self, node: NodeId) -> &[(Duration, M::Event)] {
        &self.shell(node).events
    }

    /// A node's machine; `None` where the node is down.
    #[must_use]
    pub fn machine(&self, node: NodeId) -> Option<&M> {
        match &self.host(node)?.machine().inside {
            Inhabitant::Machine(machine) => Some(machine),
            Inhabitant::Visitor(_) => None,
        }
    }

    /// A gauge of a node's host or machine.
    #[must_use]
    pub fn gauge(&self, node: NodeId, name: &str) -> Option<u64> {
        let mut found = None;
        self.host(node)?.gauges(&mut |known, value| {
            if known == name {
                found = Some(value);
            }
        });
        found
    }

    /// What is durable of a node.
    #[must_use]
    pub fn disk(&self, node: NodeId) -> &Disk {
        &self.shell(node).disk
    }

    /// The newest record of a node that a [`Witness`] saw something visible rest on.
    #[must_use]
    pub fn newest_visible(&self, node: NodeId) -> Seq {
        self.shell(node).visible
    }

    /// Whether a node runs.
    #[must_use]
    pub fn is_up(&self, node: NodeId) -> bool {
        self.shell(node).state == State::Up
    }

    /// Virtual time since the world's start.
    #[must_use]
    pub const fn now(&self) -> Duration {
        Duration::from_nanos(self.core.now)
    }

    /// What a node's clocks show.
    #[must_use]
    pub fn clock(&self, node: NodeId) -> Now {
        self.shell(node).clock.read(self.core.now)
    }

    /// The draws of this world's seed, for what a test decides by itself.
    #[must_use]
    pub const fn draws(&self) -> Draws {
        self.core.draws
    }

    /// The link of a node's connection, while there is one.
    #[must_use]
    pub fn link_of(&self, node: NodeId, conn: ConnId) -> Option<LinkId> {
        self.shell(node).conns.get(&conn).map(|(link, _)| *link)
    }

    /// The links that two nodes have with each other.
    #[must_use]
    pub fn links(&self, one: NodeId, two: NodeId) -> Vec<LinkId> {
        let links = self.core.net.links.iter();
        links.filter(|(_, link)| link.is_between(one, two)).map(|(id, _)| *id).collect()
    }
}

/// The trace.
impl<M: Subject> World<M> {
    /// The hash of all that happened so far.
    #[must_use]
    pub const fn fingerprint(&self) -> Fingerprint {
        self.core.trace.fingerprint()
    }

    /// The hash behind each 4,096 events.
    #[must_use]
    pub fn checkpoints(&self) -> &[Fingerprint] {
        self.core.trace.checkpoints()
    }

    /// How many events have happened.
    #[must_use]
    pub const fn happened(&self) -> u64 {
        self.core.trace.count()
    }

    /// Keeps a line of each of these events, counted from 0, for [`trace`](Self::trace).
    pub const fn keep_trace(&mut self, events: Range<u64>) {
        self.core.trace.keep(events);
    }

    /// The kept lines: time, node, what, about which id, how many bytes, which.
    #[must_use]
    pub fn trace(&self) -> &[String] {
        self.core.trace.lines()
    }
}

impl<M: Subject + Durable> World<M> {
    /// Cuts a node's journal behind a snapshot of its machine. Nothing, and false, while records wait to be durable.
    ///
    /// # Panics
    /// Where the node is down.
    pub fn compact(&mut self, node: NodeId) -> bool {
        let Node { host, shell, .. } = &mut self.nodes[usize::from(node.0)];
        let host = host.as_ref().expect("the node is up");
        let Inhabitant::Machine(machine) = &host.machine().inside else { return false };
        if shell.log.busy {
            return false;
        }
        let mut snapshot = Vec::new();
        machine.snapshot(&mut snapshot);
        self.core.trace.note(self.core.now, node, "snapshot", 0, &snapshot);
        let newest = shell.disk.newest();
        shell.disk.put_snapshot(newest, &snapshot).is_ok()
    }
}

impl<M: Subject> World<M> {
    pub(crate) fn shell(&self, node: NodeId) -> &Shell<M> {
        &self.nodes[usize::from(node.0)].shell
    }

    pub(crate) fn shell_mut(&mut self, node: NodeId) -> &mut Shell<M> {
        &mut self.nodes[usize::from(node.0)].shell
    }

    pub(crate) fn host(&self, node: NodeId) -> Option<&Host<crate::watch::Watched<M>>> {
        self.nodes[usize::from(node.0)].host.as_ref()
    }
}
