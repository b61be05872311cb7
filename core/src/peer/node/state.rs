//! What each connection of a node is doing.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{SocketAddr, SocketAddrV4, SocketAddrV6};

use super::dial::Dial;
use super::one_shot::{Inbound, Outbound};
use crate::frame::Cutter;
use crate::machine::{ConnId, Ticket};
use crate::message::FeatureSet;
use crate::message::connection::Handshake;
use crate::peer::admission::Origin;
use crate::peer::book::PeerIndex;
use crate::peer::command::{Direction, LinkView};
use crate::peer::life::Life;
use crate::peer::node::{FRAME_TIME, Node};
use crate::peer::settings::Settings;
use crate::secret::Key;
use crate::text::PeerId;
use crate::time::Mono;

/// A place for one connection.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) conn: ConnId,
    pub(super) state: State,
}

/// See the diagram of [`Node`].
#[derive(Debug)]
pub(super) enum State {
    Vacant,
    Greeted(Box<Greeted>),
    Storing(Box<Storing>),
    Dialling(Box<Dial>),
    /// In its slot, since most slots of a node have one.
    Link(Link),
    Inbound(Box<Inbound>),
    Outbound(Box<Outbound>),
    Closing,
}

/// Accepted and challenged.
#[derive(Debug)]
pub(super) struct Greeted {
    pub(super) nonce: [u8; 32],
    pub(super) origin: Origin,
    pub(super) address: Option<SocketAddr>,
    pub(super) cutter: Cutter,
    pub(super) deadline: Mono,
    /// What `cutter` holds, as it was counted last.
    pub(super) buffered: usize,
}

/// Proved an invite's key, which is being stored: the ack leaves when it is.
#[derive(Debug)]
pub(super) struct Storing {
    pub(super) handshake: Handshake,
    pub(super) address: Option<SocketAddr>,
    /// What came behind the handshake.
    pub(super) rest: Vec<u8>,
    pub(super) eof: bool,
}

/// A lasting link. One for each peer that is connected, so it is kept small.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) peer: PeerIndex,
    pub(super) direction: Direction,
    pub(super) features: FeatureSet,
    pub(super) proto: u8,
    /// A half-close came; what is owed still leaves.
    pub(super) eof: bool,
    pub(super) partial: bool,
    /// Requests whose answer is the owner's to give.
    pub(super) owed: u16,
    /// Heartbeats of ours since the peer's socket took a byte while some were unsent.
    pub(super) stuck: u8,
    /// The low half of how many bytes the socket had taken at the last heartbeat.
    pub(super) taken: u32,
    pub(super) cutter: Cutter,
    pub(super) life: Life,
    pub(super) next_beat: Mono,
    /// When the first byte of an unfinished frame came, where `partial` says that there is one; behind a half-close,
    /// which no frame is cut by, when that came.
    pub(super) since: Mono,
    pub(super) address: Option<Place>,
    /// One text for all links whose peers have the same version.
    pub(super) version: Option<Arc<str>>,
}

/// A socket address as a link keeps it: in half the room, where it is one of IPv4.
#[derive(Debug)]
pub(super) enum Place {
    V4(SocketAddrV4),
    V6(Box<SocketAddrV6>),
}

/// An invite that was proved, and whose key is being stored.
#[derive(Debug)]
pub(super) struct Admitting {
    /// The joiner's connections: it may have come again meanwhile.
    pub(super) conns: Vec<ConnId>,
    pub(super) peer: PeerId,
    pub(super) key: Key,
    /// What the node's count of invites was then.
    pub(super) invite: u64,
}

/// What the end of an action is for.
#[derive(Debug)]
pub(super) enum Waiting {
    /// An invite's key for a connection in [`State::Storing`], which may end before.
    Admission(Box<Admitting>),
    /// A key that a command stores: the command is answered then.
    Command(Ticket, Box<crate::peer::command::Answer>),
    /// A file that may fail; the owner is told then.
    File(PeerIndex),
    /// A peer's file of addresses.
    Addresses(PeerIndex),
}

impl Slot {
    pub(super) const fn vacant() -> Self {
        Self { conn: ConnId::new(u32::MAX, u32::MAX), state: State::Vacant }
    }
}

impl State {
    /// When the connection wants attention.
    pub(super) fn deadline(&self, settings: &Settings) -> Option<Mono> {
        match self {
            Self::Greeted(greeted) => Some(greeted.deadline),
            Self::Dialling(dial) => Some(dial.deadline),
            Self::Link(link) => link.deadline(settings),
            Self::Inbound(inbound) => Some(inbound.deadline(settings)),
            Self::Outbound(outbound) => Some(outbound.deadline),
            // A journal or a disk that takes its time is no fault of the peer's, and an end comes by itself.
            Self::Vacant | Self::Storing(_) | Self::Closing => None,
        }
    }
}

impl Link {
    /// When an unfinished frame is given up; never while we do not read.
    pub(super) fn frame_due(&self) -> Option<Mono> {
        self.partial.then(|| self.since.after(FRAME_TIME))
    }

    /// When answers that are owed are given up.
    pub(super) fn owed_due(&self, settings: &Settings) -> Option<Mono> {
        self.eof.then(|| self.since.after(settings.answer_time))
    }

    fn deadline(&self, settings: &Settings) -> Option<Mono> {
        let partial = self.frame_due();
        [Some(self.next_beat), self.life.deadline(settings.heartbeat), partial, self.owed_due(settings)]
            .into_iter()
            .flatten()
            .min()
    }
}

impl Place {
    pub(super) fn new(address: SocketAddr) -> Self {
        match address {
            SocketAddr::V4(address) => Self::V4(address),
            SocketAddr::V6(address) => Self::V6(Box::new(address)),
        }
    }

    fn get(&self) -> SocketAddr {
        match self {
            Self::V4(address) => (*address).into(),
            Self::V6(address) => (**address).into(),
        }
    }
}

impl Node {
    /// A link as the owner sees it.
    pub(super) fn view(&self, link: &Link) -> LinkView {
        LinkView {
            peer: self.book.get(link.peer).id.clone(),
            address: link.address.as_ref().map(Place::get),
            direction: link.direction,
            framing: link.cutter.framing(),
            features: link.features,
            proto: u64::from(link.proto),
            version: link.version.as_deref().map(Into::into),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_every_connected_peer_costs_is_small() {
        assert!(size_of::<Link>() <= 120, "a link takes {}", size_of::<Link>());
        // An id is marked in debug builds, and larger for it.
        let slot = size_of::<Slot>() - size_of::<ConnId>();
        assert!(slot <= 120, "a slot takes {slot} beside the id");
    }
}
