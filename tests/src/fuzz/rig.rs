//! A node in its host, without a world round it: whoever drives it says what the outside does.

use alloc::collections::{BTreeMap, VecDeque};
use core::time::Duration;

use relay_core::action::{ActError, ActId, ActOutput, Action};
use relay_core::host::Host;
use relay_core::journal::{Records, Seq};
use relay_core::machine::{CloseReason, ConnId, DialError, Endpoint, ListenerId, Refused, Target, Ticket};
use relay_core::peer::{Answer, Command, Event, Node, PeerRecord, Settings};
use relay_core::port::{Ending, Port, Wrote};
use relay_core::secret::Key;
use relay_core::time::{Mono, Now, Wall};

use crate::fleet::{id, wire};

/// The node's name.
pub(super) const NAME: &str = "node";
/// The peers that it knows: below its own name and above it.
pub(super) const PEERS: [&str; 3] = ["aaa", "mmm", "zzz"];

/// The key of the outstanding invite.
pub(super) fn invite() -> Key {
    Key::from_bytes([0x1e; 32])
}

/// All that a node showed: what it told and answered, and every byte that it wrote.
#[derive(PartialEq, Eq, Debug)]
pub struct Transcript {
    /// Events and answers as they print.
    pub told: Vec<String>,
    /// What it wrote to each connection.
    pub written: BTreeMap<ConnId, Vec<u8>>,
}

impl Transcript {
    /// Whether two runs are the same but for bytes that one had not written when it aborted a connection: what is
    /// queued in the turn of a fault is lost, and cuts decide which turn that is.
    #[must_use]
    pub fn agrees_with(&self, other: &Self) -> bool {
        let prefix = |one: &Self, two: &Self| {
            one.written.iter().all(|(conn, bytes)| {
                let others = two.written.get(conn).map_or(&[][..], Vec::as_slice);
                bytes.starts_with(others) || others.starts_with(bytes)
            })
        };
        self.told == other.told && prefix(self, other) && prefix(other, self)
    }
}

/// A node that somebody drives by hand. Laws are held at every step.
pub struct Rig {
    host: Host<Node>,
    outside: Outside,
    now: Now,
}

#[derive(Default)]
struct Outside {
    open: Vec<ConnId>,
    dials: VecDeque<(ConnId, Target)>,
    acts: VecDeque<ActId>,
    written: BTreeMap<ConnId, Vec<u8>>,
    told: Vec<String>,
    blocked: bool,
    secrets: Vec<String>,
}

impl Rig {
    /// A node that knows the `PEERS`, each at an address of its own, and has an invite out.
    #[must_use]
    pub fn new(seed: u8) -> Self {
        let mut settings = Settings::new(id(NAME));
        settings.dial_known = seed.is_multiple_of(2);
        let record = |(n, name): (usize, &&str)| PeerRecord {
            id: id(name),
            key: Some(wire::key(name, NAME)),
            addresses: [([10, 0, 0, n as u8], 9000).into()].into_iter().collect(),
        };
        let peers: Vec<_> = PEERS.iter().enumerate().map(record).collect();
        let mut secrets: Vec<_> = PEERS.iter().map(|name| wire::key(name, NAME).to_hex()).collect();
        secrets.push(invite().to_hex());
        let node = Node::new(settings, [seed; 32], peers, Some(invite()));
        let outside = Outside { secrets, ..Outside::default() };
        let now = Now { mono: Mono::from_nanos(1_000_000_000), wall: Wall::from_millis(1_700_000_000_000) };
        Self { host: Host::new(node, Seq::NONE), outside, now }
    }

    /// Somebody dials the node from this address.
    pub fn accepted(&mut self, from: u8) -> ConnId {
        let peer = Endpoint::Tcp(([10, 9, 9, from], 4000).into());
        let conn =
            self.host.accepted(self.now, ListenerId(0), &peer, None).expect("a rig opens few connections");
        self.outside.open.push(conn);
        self.settle();
        conn
    }

    /// The node dials a peer for a link, and is through to it.
    ///
    /// # Panics
    /// Where it does not dial.
    pub fn dialled(&mut self, peer: &str) -> ConnId {
        let at = PEERS.iter().position(|name| *name == peer).expect("a peer of the rig");
        let address = ([10, 0, 0, at as u8], 9000).into();
        self.command(Command::Connect { address, peer: Some(id(peer)), invite: None, keep: false });
        self.dial_succeeds().expect("the node dials")
    }

    /// The oldest dial is through.
    pub fn dial_succeeds(&mut self) -> Option<ConnId> {
        let (conn, target) = self.outside.dials.pop_front()?;
        let relay_core::machine::Address::Tcp(address) = target.address else { return None };
        self.outside.open.push(conn);
        self.host.dialled(self.now, conn, &Endpoint::Tcp(address), None);
        self.settle();
        Some(conn)
    }

    /// The oldest dial fails.
    pub fn dial_fails(&mut self) {
        if let Some((conn, _)) = self.outside.dials.pop_front() {
            self.host.closed(self.now, conn, CloseReason::DialFailed(DialError::Refused));
            self.settle();
        }
    }

    /// A connection that stands, by a number that whoever drives drew.
    #[must_use]
    pub fn pick(&self, number: u8) -> Option<ConnId> {
        let open = &self.outside.open;
        (!open.is_empty()).then(|| open[usize::from(number) % open.len()])
    }

    /// The nonce that the node challenged a connection with.
    #[must_use]
    pub fn nonce(&self, conn: ConnId) -> Option<String> {
        let written = self.outside.written.get(&conn)?;
        let first = wire::read(written).into_iter().next()?;
        Some(first.payload["nonce"].as_str()?.to_owned())
    }

    /// Bytes come.
    pub fn receive(&mut self, conn: ConnId, bytes: &[u8]) {
        self.host.received(self.now, conn, bytes);
        self.settle();
    }

    /// The other end half-closes.
    pub fn eof(&mut self, conn: ConnId) {
        self.host.eof(self.now, conn);
        self.settle();
    }

    /// The other end resets.
    pub fn reset(&mut self, conn: ConnId) {
        self.outside.open.retain(|open| *open != conn);
        self.host.closed(self.now, conn, CloseReason::Reset);
        self.settle();
    }

    /// The owner asks.
    pub fn command(&mut self, command: Command) {
        self.host.command(self.now, command);
        self.settle();
    }

    /// The oldest action ends.
    pub fn acted(&mut self, well: bool) {
        if let Some(act) = self.outside.acts.pop_front() {
            let result = if well { Ok(ActOutput::Done) } else { Err(ActError::Full) };
            self.host.acted(self.now, act, result);
            self.settle();
        }
    }

    /// Sockets take nothing, or take again.
    pub fn block(&mut self, blocked: bool) {
        self.outside.blocked = blocked;
        if !blocked {
            for conn in self.outside.open.clone() {
                self.host.writable(conn);
            }
        }
        self.settle();
    }

    /// The node is to end.
    pub fn drain(&mut self) {
        self.host.drain(self.now, self.now.mono.after(Duration::from_secs(5)));
        self.settle();
    }

    /// Time passes, with every deadline on its way.
    ///
    /// # Panics
    /// Where deadlines do not come to rest.
    pub fn pass(&mut self, span: Duration) {
        let end = self.now.mono.after(span);
        for step in 0.. {
            assert!(step < 100_000, "deadlines come to rest");
            let Some(due) = self.host.deadline().filter(|due| *due <= end) else { break };
            self.advance(due.max(self.now.mono));
            self.host.timer(self.now);
            self.settle();
            if self.host.deadline().is_some_and(|next| next <= self.now.mono) {
                // The host's own deadline of a drain that is over stays.
                break;
            }
        }
        self.advance(end);
    }

    /// Ends all and holds that nothing is left.
    ///
    /// # Panics
    /// Where something is.
    pub fn finish(mut self) -> Transcript {
        while let Some((conn, _)) = self.outside.dials.pop_front() {
            self.host.closed(self.now, conn, CloseReason::Stopped);
        }
        self.drain();
        self.host.stop(self.now, &mut self.outside);
        for name in [
            "connections",
            "links",
            "one_shots",
            "handshakes_under_way",
            "unproven_bytes",
            "connection_timers",
            "dials",
        ] {
            assert_eq!(self.gauge(name), 0, "{name}");
        }
        while !self.outside.acts.is_empty() {
            self.acted(true);
        }
        assert_eq!(self.gauge("actions_under_way"), 0);
        assert_eq!(self.gauge("unanswered_commands"), 0);
        Transcript { told: self.outside.told, written: self.outside.written }
    }

    fn gauge(&self, name: &str) -> u64 {
        let mut found = None;
        self.host.gauges(&mut |known, value| found = if known == name { Some(value) } else { found });
        found.unwrap_or_else(|| panic!("there is a gauge {name}"))
    }

    fn advance(&mut self, to: Mono) {
        let span = to.since(self.now.mono);
        let wall = self.now.wall.as_millis() + span.as_millis() as u64;
        self.now = Now { mono: to, wall: Wall::from_millis(wall) };
    }

    fn settle(&mut self) {
        for round in 0.. {
            assert!(round < 1000, "a turn ends");
            if !self.host.settle(self.now, &mut self.outside) {
                break;
            }
        }
        assert!(self.gauge("links") <= PEERS.len() as u64 + 1, "one link a peer");
    }
}

impl Outside {
    fn tell(&mut self, text: String) {
        for secret in &self.secrets {
            assert!(!text.contains(secret), "a secret is printed");
        }
        self.told.push(text);
    }
}

impl Port<Node> for Outside {
    fn append(&mut self, _: Records) {}

    fn write(&mut self, conn: ConnId, bytes: &[u8]) -> Wrote {
        if self.blocked {
            return Wrote::Blocked;
        }
        self.written.entry(conn).or_default().extend_from_slice(bytes);
        Wrote::Bytes(bytes.len())
    }

    fn finish(&mut self, _: ConnId) {}

    fn reading(&mut self, _: ConnId, _: bool) {}

    fn accepting(&mut self, _: ListenerId, _: bool) {}

    fn close(&mut self, conn: ConnId, _: Ending) {
        self.open.retain(|open| *open != conn);
        self.dials.retain(|(dial, _)| *dial != conn);
    }

    fn dial(&mut self, conn: ConnId, target: &Target) {
        self.dials.push_back((conn, target.clone()));
    }

    fn act(&mut self, id: ActId, action: Action) {
        self.tell(format!("{action:?}"));
        self.acts.push_back(id);
    }

    fn event(&mut self, event: Event) {
        self.tell(format!("{event:?}"));
    }

    fn answer(&mut self, ticket: Ticket, answer: Result<Answer, Refused>) {
        self.tell(format!("{ticket:?} {answer:?}"));
    }
}
