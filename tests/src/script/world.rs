//! Deeds in the simulator's world, where nothing is a socket and time is virtual.
//!
//! What stands for what:
//! - A client is a stranger whose reader is stalled but while a deed reads: so its window fills as a socket's buffers do,
//!   and what it never read is answered with a reset when it leaves. It leaves as a process does that is killed.
//! - The journal that waits is a disk that hangs, the full one is the world's full disk.
//! - The event channel is a driver's, of which a world has none: it keeps all events. The rule of that channel is kept
//!   here instead, in the order in which events were told and taken: the newest is dropped where so many wait.
//! - The owner's command channel is not there at all. Deeds never fill it.

use std::cell::Cell;
use std::collections::VecDeque;
use std::ops::Range;

use relay_core::machine::{Address, Refused, Target, Ticket, Transport};
use relay_sim::{DiskFault, NodeId, Stranger, World};

use super::Stage;
use crate::probe::{Ask, Probe, Seen};
use crate::rig::{Over, PATIENCE};

/// A world with a probe, and its clients.
pub struct InWorld {
    world: World<Probe>,
    node: NodeId,
    clients: Vec<Visitor>,
    tickets: Vec<Ticket>,
    channel: Channel,
    over: Over,
    seed: u64,
}

struct Visitor {
    stranger: Stranger,
    /// How much of what it heard was taken.
    taken: usize,
    left: bool,
}

/// A driver's event channel.
struct Channel {
    capacity: usize,
    waiting: VecDeque<Seen>,
    /// How many of the world's events were offered to it.
    offered: usize,
    dropped: u64,
}

impl InWorld {
    const PATH: &str = "probe.sock";
    const PORT: u16 = 7000;

    /// A probe in the world of a seed, as if behind an event channel that holds so many.
    #[must_use]
    pub fn new(seed: u64, over: Over, events: usize) -> Self {
        let mut world = World::new(seed);
        let node = world.node(|_, _, _| Probe::default());
        match over {
            Over::Tcp => world.listen(node, node.at(Self::PORT)),
            Over::Unix => world.listen_unix(node, Self::PATH),
        };
        let channel = Channel { capacity: events, waiting: VecDeque::new(), offered: 0, dropped: 0 };
        Self { world, node, clients: Vec::new(), tickets: Vec::new(), channel, over, seed }
    }

    /// Lets a client read until `enough` holds of what it has not taken, or its connection has ended.
    fn read(&mut self, client: usize, enough: impl Fn(&[u8]) -> bool) {
        let Visitor { stranger, taken, .. } = self.clients[client];
        self.world.stall_reader(stranger.node(), false);
        self.world.run_until(|world| {
            enough(&world.heard(stranger)[taken..])
                || world.heard_end(stranger)
                || world.ended(stranger).is_some()
        });
        self.world.stall_reader(stranger.node(), true);
    }

    fn untaken(&self, client: usize) -> &[u8] {
        let Visitor { stranger, taken, .. } = &self.clients[client];
        &self.world.heard(*stranger)[*taken..]
    }

    fn stranger(&self, client: usize) -> Stranger {
        self.clients[client].stranger
    }
}

impl Stage for InWorld {
    fn name(&self) -> String {
        format!("the world of seed {} over {:?}", self.seed, self.over)
    }

    fn connect(&mut self) {
        let stranger = match self.over {
            Over::Tcp => self.world.stranger(self.node.at(Self::PORT)),
            Over::Unix => self.world.stranger(Self::PATH),
        };
        self.world.stall_reader(stranger.node(), true);
        self.world.run_until(|world| world.is_connected(stranger));
        self.clients.push(Visitor { stranger, taken: 0, left: false });
    }

    fn send(&mut self, client: usize, bytes: &[u8]) {
        self.world.say(self.stranger(client), bytes);
    }

    fn line(&mut self, client: usize) -> String {
        let looked = Cell::new(0);
        self.read(client, |untaken| untaken[looked.replace(untaken.len())..].contains(&b'\n'));
        let untaken = self.untaken(client);
        let end = untaken.iter().position(|byte| *byte == b'\n').expect("a line comes before the end");
        let line = String::from_utf8_lossy(&untaken[..end]).into_owned();
        self.clients[client].taken += end + 1;
        line
    }

    fn rest(&mut self, client: usize) -> Option<Vec<u8>> {
        self.read(client, |_| false);
        if !self.world.heard_end(self.stranger(client)) {
            return None;
        }
        let rest = self.untaken(client).to_vec();
        self.clients[client].taken += rest.len();
        Some(rest)
    }

    fn finish(&mut self, client: usize) {
        self.world.hang_up(self.stranger(client));
    }

    fn reset(&mut self, client: usize) {
        let stranger = self.stranger(client);
        match self.over {
            Over::Tcp => {
                for link in self.world.links(self.node, stranger.node()) {
                    self.world.reset(link);
                }
            }
            Over::Unix => self.world.leave(stranger),
        }
        self.clients[client].left = true;
    }

    fn leave(&mut self, client: usize) {
        if !std::mem::replace(&mut self.clients[client].left, true) {
            self.world.kill(self.stranger(client).node());
        }
    }

    fn order(&mut self, ask: Ask) -> usize {
        self.tickets.push(self.world.command(self.node, ask));
        self.tickets.len() - 1
    }

    fn answer(&mut self, number: usize) -> Result<u64, Refused> {
        let (node, ticket) = (self.node, self.tickets[number]);
        // Also behind the probe's end, so that it is looked for among all that there ever were: the node starts once.
        let find = |world: &World<Probe>| {
            world.answers(node).find(|(_, other, _)| *other == ticket).map(|(.., answer)| *answer)
        };
        self.world.run_until(|world| find(world).is_some());
        find(&self.world).expect("it was waited for")
    }

    fn target(&self) -> Target {
        let address = match self.over {
            Over::Tcp => Address::Tcp(self.node.at(Self::PORT)),
            Over::Unix => Address::Unix(Self::PATH.into()),
        };
        Target { address, transport: Transport::Plain }
    }

    fn hold(&mut self, held: bool) {
        self.world.stall_disk(self.node, held);
    }

    fn fill(&mut self, full: bool) {
        self.world.disk_fault(self.node, full.then_some(DiskFault::Full));
    }

    fn event(&mut self) -> Seen {
        loop {
            self.channel.offer(self.world.events(self.node).iter().map(|(_, seen)| seen));
            if let Some(seen) = self.channel.waiting.pop_front() {
                return seen;
            }
            let (node, offered) = (self.node, self.channel.offered);
            self.world.run_until(|world| world.events(node).len() > offered);
        }
    }

    fn until_gauge(&mut self, name: &str, values: Range<u64>) {
        let node = self.node;
        self.world.run_until(|world| {
            values.contains(&world.gauge(node, name).expect("the suite asks for gauges that there are"))
        });
    }

    fn shutdown(&mut self) {
        self.world.drain(self.node, PATIENCE);
    }

    fn end(&mut self) -> Vec<Seen> {
        let node = self.node;
        self.world.run_until(|world| !world.is_up(node));
        self.channel.offer(self.world.events(node).iter().map(|(_, seen)| seen));
        self.channel.waiting.drain(..).collect()
    }

    fn dropped(&self) -> u64 {
        self.channel.dropped
    }

    fn records(&self) -> Vec<String> {
        let records = self.world.disk(self.node).records();
        records.map(|(_, record)| String::from_utf8_lossy(record).into_owned()).collect()
    }
}

impl Channel {
    /// Takes what was told since the last time.
    fn offer<'a>(&mut self, told: impl Iterator<Item = &'a Seen>) {
        for seen in told.skip(self.offered) {
            self.offered += 1;
            if self.waiting.len() < self.capacity {
                self.waiting.push_back(seen.clone());
            } else {
                self.dropped += 1;
            }
        }
    }
}
