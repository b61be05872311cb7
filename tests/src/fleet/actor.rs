//! One machine type for a world with relays and raw peers in it.

use relay_core::machine::{Input, Machine};
use relay_core::outbox::Outbox;
use relay_core::peer::{Answer, Command, Event, Node};
use relay_core::time::{Mono, Now};

use super::raw::RawMachine;

/// A relay, or a raw peer. Both take commands of relays; a raw peer takes any as the sign that it has orders.
pub enum Actor {
    /// A whole relay.
    Relay(Box<Node>),
    /// A scripted peer.
    Raw(RawMachine),
}

impl Actor {
    pub(super) fn relay(node: Node) -> Self {
        Self::Relay(Box::new(node))
    }
}

impl Machine for Actor {
    type Command = Command;
    type Answer = Answer;
    type Event = Event;

    fn step(&mut self, now: Now, input: Input<'_, Command>, out: &mut Outbox<Event, Answer>) {
        match self {
            Self::Relay(node) => node.step(now, input, out),
            Self::Raw(raw) => raw.step(input, out),
        }
    }

    fn deadline(&self) -> Option<Mono> {
        match self {
            Self::Relay(node) => node.deadline(),
            Self::Raw(_) => None,
        }
    }

    fn idle(&self) -> bool {
        match self {
            Self::Relay(node) => node.idle(),
            Self::Raw(_) => true,
        }
    }

    fn gauges(&self, sink: &mut dyn FnMut(&'static str, u64)) {
        match self {
            Self::Relay(node) => node.gauges(sink),
            Self::Raw(_) => {}
        }
    }
}
