//! A world of relays and of scripted peers that speak raw bytes, so that a rule of the link is a few lines of test.
//!
//! ```
//! use relay_tests::fleet::{Fleet, wire};
//!
//! let mut fleet = Fleet::new(1);
//! let relay = fleet.relay("relay", |spec| spec.knows("raw"));
//! let raw = fleet.raw();
//! let talk = fleet.dial(&raw, relay.address());
//! let nonce = talk.nonce();
//! fleet.send(&talk, &wire::handshake("raw", "relay", &nonce, r#""proto":1"#));
//! assert_eq!(talk.ack()["status"], "ok");
//! assert_eq!(fleet.told(relay), ["up raw inbound"]);
//! ```

mod actor;
mod raw;
mod spec;
mod told;
pub mod wire;

use core::net::SocketAddr;
use core::time::Duration;

use relay_core::machine::Ticket;
use relay_core::peer::{Answer, Command, Event, PeerView};
use relay_core::text::PeerId;
use relay_sim::{NodeId, World};

pub use actor::Actor;
pub use raw::{Order, Raw, Talk};
pub use spec::{PORT, Spec, address, read};

/// Relays and raw peers in virtual time.
pub struct Fleet {
    /// The world they live in, for its faults and its clock.
    pub world: World<Actor>,
    made: u16,
}

/// A relay of a fleet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Relay {
    /// Its node in the world.
    pub node: NodeId,
}

impl Relay {
    /// Where it listens, where it does.
    #[must_use]
    pub const fn address(self) -> SocketAddr {
        self.node.at(PORT)
    }
}

impl Fleet {
    /// An empty fleet.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { world: World::new(seed), made: 0 }
    }

    /// Adds a relay, which listens unless its spec says otherwise, and starts it.
    pub fn relay(&mut self, id: &str, specify: impl FnOnce(&mut Spec)) -> Relay {
        let mut spec = Spec::new(id, address(self.made));
        specify(&mut spec);
        self.made += 1;
        let (listens, draws) = (spec.listens, self.world.draws());
        let node = self.world.node(move |node, boot, disk| {
            if boot == 0 {
                spec.install(disk);
            }
            Actor::relay(spec.boot(disk, draws.entropy(node.number(), boot)))
        });
        if listens {
            self.world.listen(node, node.at(PORT));
        }
        Relay { node }
    }

    /// Adds a raw peer, which listens at the same port of its own address.
    pub fn raw(&mut self) -> Raw {
        let raw = Raw::join(&mut self.world);
        self.made += 1;
        raw
    }

    /// The address that the next relay or raw peer will have.
    #[must_use]
    pub fn next_address(&self) -> SocketAddr {
        address(self.made)
    }

    /// Lets a raw peer dial, and waits until all is still.
    pub fn dial(&mut self, raw: &Raw, to: SocketAddr) -> Talk {
        let talk = raw.next_talk();
        self.order(raw, Order::Dial(to));
        talk
    }

    /// Sends raw bytes, and waits until all is still.
    pub fn send(&mut self, talk: &Talk, bytes: &[u8]) {
        self.order(talk.raw(), Order::Send(talk.index(), bytes.to_vec()));
    }

    /// Sends raw bytes and half-closes right behind them.
    pub fn send_last(&mut self, talk: &Talk, bytes: &[u8]) {
        talk.raw().push(Order::Send(talk.index(), bytes.to_vec()));
        self.order(talk.raw(), Order::Finish(talk.index()));
    }

    /// Half-closes.
    pub fn finish(&mut self, talk: &Talk) {
        self.order(talk.raw(), Order::Finish(talk.index()));
    }

    /// Ends a connection so that the other end sees a reset.
    pub fn reset(&mut self, talk: &Talk) {
        let raw = talk.raw().clone();
        if let Some(link) = talk.conn().and_then(|conn| self.world.link_of(raw.node(), conn)) {
            self.world.reset(link);
        }
        self.world.settle();
    }

    /// Gives orders without waiting for what comes of them.
    pub fn order_later(&mut self, raw: &Raw, order: Order) {
        raw.push(order);
        self.world.command(raw.node(), Command::Peers);
    }

    fn order(&mut self, raw: &Raw, order: Order) {
        self.order_later(raw, order);
        self.world.settle();
    }

    /// Dials a relay as `id` and proves it; `extra` are further members of the handshake's payload.
    pub fn join(&mut self, raw: &Raw, relay: Relay, id: &str, extra: &str) -> Talk {
        let talk = self.dial(raw, relay.address());
        let (nonce, name) = (talk.nonce(), self.name(relay));
        self.send(&talk, &wire::handshake(id, &name, &nonce, extra));
        talk
    }

    /// Gives a relay a command.
    pub fn tell(&mut self, relay: Relay, command: Command) -> Ticket {
        self.world.command(relay.node, command)
    }

    /// Gives a relay a command and waits until all is still. Without an answer by then, `None`.
    pub fn ask(&mut self, relay: Relay, command: Command) -> Option<&Answer> {
        let ticket = self.tell(relay, command);
        self.world.settle();
        self.answer(relay, ticket)
    }

    /// A command's answer, where it has come.
    #[must_use]
    pub fn answer(&self, relay: Relay, ticket: Ticket) -> Option<&Answer> {
        self.world.answer(relay.node, ticket).and_then(|answer| answer.as_ref().ok())
    }

    /// Lets virtual time pass.
    pub fn pass(&mut self, secs: u64) {
        self.world.run_for(Duration::from_secs(secs));
    }

    /// What a relay told, a short line each.
    #[must_use]
    pub fn told(&self, relay: Relay) -> Vec<String> {
        self.world.events(relay.node).iter().map(|(_, event)| told::line(event)).collect()
    }

    /// The lines of [`told`](Self::told) that begin so.
    #[must_use]
    pub fn told_of(&self, relay: Relay, what: &str) -> Vec<String> {
        self.told(relay).into_iter().filter(|line| line.starts_with(what)).collect()
    }

    /// What a relay told, with its times.
    #[must_use]
    pub fn events(&self, relay: Relay) -> &[(Duration, Event)] {
        self.world.events(relay.node)
    }

    /// A relay's peers as it lists them.
    pub fn peers(&mut self, relay: Relay) -> Vec<PeerView> {
        match self.ask(relay, Command::Peers) {
            Some(Answer::Peers(peers)) => peers.clone(),
            other => panic!("peers are listed at once, not {other:?}"),
        }
    }

    /// One of a relay's peers.
    pub fn peer(&mut self, relay: Relay, id: &str) -> Option<PeerView> {
        self.peers(relay).into_iter().find(|peer| peer.id.as_str() == id)
    }

    /// A gauge of a relay.
    #[must_use]
    pub fn gauge(&self, relay: Relay, name: &str) -> u64 {
        self.world.gauge(relay.node, name).unwrap_or_else(|| panic!("there is a gauge {name}"))
    }

    /// Holds that a relay has nothing open and nothing under way.
    ///
    /// # Panics
    /// Where it has.
    pub fn assert_nothing_left(&self, relay: Relay) {
        for name in [
            "connections",
            "links",
            "dials",
            "one_shots",
            "handshakes_under_way",
            "unproven_bytes",
            "connection_timers",
            "actions_under_way",
            "held_emissions",
            "unanswered_commands",
            "overdue_deadlines",
        ] {
            assert_eq!(self.gauge(relay, name), 0, "{name}");
        }
    }

    fn name(&self, relay: Relay) -> String {
        match self.world.machine(relay.node) {
            Some(Actor::Relay(node)) => node.settings().id.as_str().to_owned(),
            Some(Actor::Raw(_)) | None => panic!("{relay:?} is a relay that runs"),
        }
    }
}

/// A peer id that is one.
///
/// # Panics
/// Where it is none.
#[must_use]
pub fn id(text: &str) -> PeerId {
    PeerId::parse(text).expect("a possible peer id")
}
