//! What a node is asked, what it answers, and what it tells.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::net::SocketAddr;
use core::time::Duration;

use super::addresses::KnownAddress;
use super::book::PeerRecord;
use super::fault::Fault;
use super::refusals::LeftOut;
use super::report::{PeerReport, Report};
use crate::frame::{EncodeError, Framing};
use crate::lease::{Answered, Ask, Change, Unanswered};
use crate::machine::{CloseReason, ConnId, Ticket};
use crate::message::{FeatureSet, Kind, RawValue};
use crate::secret::Key;
use crate::text::PeerId;
use crate::time::Wall;

/// What a node is asked.
#[derive(Debug)]
#[non_exhaustive]
pub enum Command {
    /// Know a peer, in place of what was known of it; with `store`, also in its files. [`Answer::Done`].
    Add {
        /// The peer.
        record: PeerRecord,
        /// Whether to write the key and address files.
        store: bool,
    },
    /// Know exactly these peers: what the files hold now. A peer that is gone keeps its link and is not let in again.
    /// [`Answer::Done`].
    Reload {
        /// The peers.
        peers: Vec<PeerRecord>,
        /// The key of the outstanding invite.
        pending: Option<Key>,
    },
    /// Close the link with a peer and forget it, with its files. [`Answer::Done`] or [`Answer::Failed`].
    Forget {
        /// The peer.
        peer: PeerId,
    },
    /// Let one unknown peer in that proves this key, or nobody. [`Answer::Done`].
    Pend {
        /// The key of the outstanding invite.
        key: Option<Key>,
    },
    /// Dial for a lasting link. [`Answer::Connected`] or [`Answer::Failed`].
    Connect {
        /// Where.
        address: SocketAddr,
        /// Who is expected there; `None` to try the keys of all peers, those known at that address first.
        peer: Option<PeerId>,
        /// A key from an invite, to be stored where it works; tried behind a stored one.
        invite: Option<Key>,
        /// Whether to dial again whenever the link is lost.
        keep: bool,
    },
    /// Send one message over a connection of its own, or over the link where no address is known or none can be reached;
    /// a reply that is waited for comes by the same. [`Answer::Sent`], [`Answer::Replied`] or [`Answer::Failed`].
    Send {
        /// To whom.
        peer: PeerId,
        /// What.
        kind: Kind,
        /// The payload, a JSON value.
        payload: Box<RawValue>,
        /// How long to wait for a reply, for a kind that has one; `None` not to wait.
        reply_within: Option<Duration>,
    },
    /// Answer a message on the connection that it came by. [`Answer::Done`] or [`Answer::Failed`].
    Reply {
        /// The connection of the [`Message`].
        conn: ConnId,
        /// What.
        kind: Kind,
        /// The payload, a JSON value.
        payload: Box<RawValue>,
    },
    /// Take the time of a transient handshake. [`Answer::Pong`] or [`Answer::Failed`].
    Ping {
        /// With whom.
        peer: PeerId,
    },
    /// Nobody waits any more for what a [`Send`](Self::Send) or a [`Ping`](Self::Ping) is answered with: it ends now, with
    /// [`Failure::Withdrawn`]. What has not left does not leave. Nothing where it has ended. [`Answer::Done`].
    Withdraw {
        /// What the command came under.
        ticket: Ticket,
    },
    /// Ask the fleet's lease authority. [`Answer::Lease`] or [`Answer::Failed`].
    Lease {
        /// Which peer; `None` for the one of the settings.
        authority: Option<PeerId>,
        /// What.
        ask: Ask,
    },
    /// List the peers. [`Answer::Peers`].
    Peers,
    /// What heartbeats say from now on. Where other sessions run than before, every link is told at once, at most once a
    /// second. [`Answer::Done`].
    Report(Report),
}

/// What a command is answered with.
#[derive(Debug)]
#[non_exhaustive]
pub enum Answer {
    /// It is done.
    Done,
    /// A lasting link stands with this peer.
    Connected {
        /// Who was there.
        peer: PeerId,
        /// Whether an invite's key worked and was stored.
        paired: bool,
    },
    /// The message left.
    Sent {
        /// Whether the peer took all of it and ended the connection in order. Without, it is only known that its
        /// system took it.
        taken: bool,
    },
    /// The peer replied.
    Replied(Message),
    /// The handshake took this long, from the dial to the ack.
    Pong(Duration),
    /// What the lease authority says.
    Lease {
        /// Who it is.
        authority: PeerId,
        /// What it says, or why it does not.
        result: Result<Answered, Unanswered>,
        /// Why the last attempt failed, where one did.
        failure: Option<Failure>,
    },
    /// The peers, by id.
    Peers(Vec<PeerView>),
    /// It failed.
    Failed(Failure),
}

/// What a node tells.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// A lasting link stands.
    LinkUp(LinkView),
    /// A lasting link ended.
    LinkDown {
        /// With whom.
        peer: PeerId,
        /// Why.
        reason: DownReason,
    },
    /// A handshake that was started over there failed.
    HandshakeFailed {
        /// Whence; `None` for a unix socket.
        address: Option<SocketAddr>,
        /// Who it claimed to be, where that was a possible id.
        claimed: Option<PeerId>,
        /// Why.
        reason: HandshakeFailure,
    },
    /// As many more handshakes of one address failed, of which nothing was told: of each address a few are, see
    /// [`Refusals`](super::Refusals).
    HandshakesLeftOut(LeftOut),
    /// A dial for a lasting link failed at every address.
    DialFailed {
        /// To whom, where it is known.
        peer: Option<PeerId>,
        /// The last address.
        address: Option<SocketAddr>,
        /// Why.
        reason: Failure,
        /// When it is tried again; `None` for never.
        retry_in: Option<Duration>,
    },
    /// A message came.
    Message(Message),
    /// A peer's message type that this version does not know was skipped: told once a peer and type.
    UnknownType {
        /// Who sent it.
        peer: PeerId,
        /// The type, clipped.
        msg_type: String,
    },
    /// A lease of this authority was granted or ended.
    Lease(Change),
    /// The journal began to fail, or works again. While it fails no lease is granted or given back, and all else goes on.
    Journal {
        /// Whether it fails.
        failing: bool,
    },
    /// An invite was redeemed, and the peer's key is stored.
    Paired {
        /// By whom.
        peer: PeerId,
    },
    /// A file could not be written, so that the change would not survive a restart.
    NotStored {
        /// Of which peer.
        peer: PeerId,
        /// Why.
        error: crate::action::ActError,
    },
}

/// A message of an authenticated peer.
#[derive(Debug)]
#[non_exhaustive]
pub struct Message {
    /// Who sent it: the authenticated id, whatever the message says.
    pub peer: PeerId,
    /// The connection it came by, to reply to.
    pub conn: ConnId,
    /// The sender's id for it, clipped to [`Message::MAX_ID`] bytes.
    pub id: String,
    /// What it is.
    pub kind: Kind,
    /// Whether it came over a connection of its own.
    pub one_shot: bool,
    /// Whether its id came before: a request that was repeated because its answer was lost.
    pub repeated: bool,
    /// The sender's clock.
    pub timestamp: Wall,
    /// The payload, a JSON value.
    pub payload: Box<RawValue>,
}

impl Message {
    /// The longest id that is passed on, in bytes.
    pub const MAX_ID: usize = 128;
}

/// A link as it was agreed.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct LinkView {
    /// With whom.
    pub peer: PeerId,
    /// The other end; `None` for a unix socket.
    pub address: Option<SocketAddr>,
    /// Which end dialled.
    pub direction: Direction,
    /// How frames are told apart.
    pub framing: Framing,
    /// What both ends agreed on.
    pub features: FeatureSet,
    /// The protocol version: 0 for a peer from before there was one.
    pub proto: u64,
    /// The peer's version, where it said one.
    pub version: Option<String>,
}

/// Which end dialled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(clippy::exhaustive_enums)]
pub enum Direction {
    /// The peer.
    Inbound,
    /// We.
    Outbound,
}

impl Direction {
    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Inbound => "inbound",
            Self::Outbound => "outbound",
        }
    }
}

/// A peer as it stands.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PeerView {
    /// Who.
    pub id: PeerId,
    /// Whether there is a key.
    pub paired: bool,
    /// Its addresses, the best first.
    pub addresses: Vec<KnownAddress>,
    /// The link that stands.
    pub link: Option<LinkView>,
    /// Whether a dial is under way.
    pub dialling: bool,
    /// When it will be dialled again, from now.
    pub retry_in: Option<Duration>,
    /// What its heartbeats say, and how old the newest is.
    pub report: Option<(Duration, PeerReport)>,
}

/// Why a link ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum DownReason {
    /// The connection ended.
    Closed(CloseReason),
    /// The peer ended it.
    PeerClosed,
    /// The peer was silent for three intervals.
    Silent,
    /// The peer does not read what it is sent.
    NotReading,
    /// The peer broke the protocol.
    Fault(Fault),
    /// A newer link of the same direction took its place.
    Replaced,
    /// The pair's other link, dialled by the end with the lower id, took its place.
    Collision,
    /// The peer was forgotten.
    Forgotten,
    /// This node ends.
    Stopped,
}

impl fmt::Display for DownReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Closed(reason) => return reason.fmt(f),
            Self::PeerClosed => "closed by the peer",
            Self::Silent => "nothing heard for three heartbeat intervals",
            Self::NotReading => "the peer does not read what it is sent",
            Self::Fault(fault) => return fault.fmt(f),
            Self::Replaced => "replaced by a newer link",
            Self::Collision => "the link dialled from the other end is kept",
            Self::Forgotten => "the peer was forgotten here",
            Self::Stopped => "this node stops",
        })
    }
}

/// Why a handshake that was started over there failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum HandshakeFailure {
    /// Nobody is known by that id, or by an id at all.
    UnknownPeer,
    /// The proof is not by the peer's key.
    WrongProof,
    /// The first message was no handshake.
    Unexpected(Kind),
    /// As many lasting links stand as may.
    TooManyLinks,
    /// It did not end in time.
    TimedOut,
    /// The bytes were no handshake.
    Fault(Fault),
    /// The invite's key could not be stored.
    NotStored,
    /// The address failed too often and is shut out for a while.
    LockedOut,
    /// Too many handshakes are under way.
    Full,
}

impl fmt::Display for HandshakeFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnknownPeer => "unknown peer",
            Self::WrongProof => "wrong proof: the two ends have different keys",
            Self::Unexpected(kind) => return write!(f, "a {kind} came in place of a handshake"),
            Self::TooManyLinks => "as many links stand as may",
            Self::TimedOut => "the handshake did not end within 10 s",
            Self::Fault(fault) => return fault.fmt(f),
            Self::NotStored => "the new peer's key could not be stored",
            Self::LockedOut => "locked out after five failed proofs in a minute",
            Self::Full => "too many handshakes under way",
        })
    }
}

/// Why a command failed.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Failure {
    /// Nobody is known by that id.
    UnknownPeer,
    /// The peer is known and there is no key for it, or no peer has one.
    NotPaired,
    /// No address is known, and no link stands.
    NoAddress,
    /// The connection failed or ended before the handshake did.
    Connection(CloseReason),
    /// The listener closed without a word: it is full, has locked this address out, or is no relay.
    NoHandshake,
    /// The listener refused the proof.
    Denied {
        /// Who refused, where it said a possible id.
        by: Option<PeerId>,
    },
    /// Another peer answers at that address.
    WrongPeer {
        /// Who answers.
        answered: Option<PeerId>,
    },
    /// A challenge that this very node issued came back: somebody reflects handshakes.
    Reflected,
    /// It did not end in time.
    TimedOut,
    /// The peer broke the protocol.
    Fault(Fault),
    /// The message is too large for a frame.
    Unsendable(EncodeError),
    /// The peer closed before it replied or took the message.
    NotTaken,
    /// The connection to reply to has ended.
    Gone,
    /// The key could not be stored.
    NotStored(crate::action::ActError),
    /// The payload is no JSON object, or the kind is not for commands.
    BadRequest(&'static str),
    /// Who asked takes it back.
    Withdrawn,
    /// The peer did not agree to speak of leases, so nothing was sent.
    NoLeases,
    /// Too many dials are under way.
    Busy,
    /// This node is about to end.
    Stopping,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnknownPeer => "unknown peer",
            Self::NotPaired => "not paired: there is no key",
            Self::NoAddress => "no address is known and no link stands",
            Self::Connection(reason) => return reason.fmt(f),
            Self::NoHandshake => "closed without a handshake: it is full, locked out, or no relay",
            Self::Denied { by: Some(by) } => return write!(f, "\"{by}\" refused the handshake"),
            Self::Denied { by: None } => "the handshake was refused",
            Self::WrongPeer { answered: Some(peer) } => {
                return write!(f, "another peer answers there: \"{peer}\"");
            }
            Self::WrongPeer { answered: None } => "another peer answers there",
            Self::Reflected => "the challenge is one that this node issued: somebody reflects handshakes",
            Self::TimedOut => "no answer in time",
            Self::Fault(fault) => return fault.fmt(f),
            Self::Unsendable(error) => return error.fmt(f),
            Self::NotTaken => "the peer closed before it took the message",
            Self::Gone => "the connection has ended",
            Self::NotStored(error) => return write!(f, "the key could not be stored: {error}"),
            Self::BadRequest(why) => why,
            Self::Withdrawn => "who asked took it back",
            Self::NoLeases => "the peer does not speak of fleet leases (feature lease-fleet)",
            Self::Busy => "too many dials under way",
            Self::Stopping => "the node is about to end",
        })
    }
}
