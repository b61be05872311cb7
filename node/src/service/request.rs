//! What a node is asked by the command line, whether over a control socket or in one process.

use core::fmt;
use core::net::SocketAddr;

use relay_core::message::RawValue;
use relay_core::peer::{Direction, PeerView};
use relay_core::secret::Key;
use relay_core::text::PeerId;
use serde::{Deserialize, Serialize, Serializer};

use super::line::{Link, seconds};
use crate::clock;

/// What is asked.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "cmd", rename_all = "snake_case")]
pub enum Request {
    /// Who and where the node is: [`Status`].
    Status,
    /// Every peer as it stands: a list of [`Live`].
    Peers,
    /// Read the key files again: `{}`.
    Reload,
    /// Read the key of the open invite again: an empty object.
    Pending,
    /// Forget a peer, with its link and its files: [`Forgotten`].
    Forget {
        /// Whom.
        peer: PeerId,
    },
    /// Dial for a lasting link: [`Connected`].
    Connect {
        /// Where.
        addr: SocketAddr,
        /// Who is expected there.
        peer: Option<PeerId>,
        /// The key of an invite.
        invite: Option<InviteKey>,
        /// Whether to dial again whenever the link is lost.
        keep: bool,
    },
    /// Send one message: [`Sent`].
    Send {
        /// To whom.
        peer: PeerId,
        /// What.
        msg_type: String,
        /// The payload; what it says is not for a log.
        payload: Box<RawValue>,
        /// Seconds to wait for a reply; absent not to wait.
        reply_within: Option<u64>,
    },
    /// Take the time of a handshake: [`Pong`].
    Ping {
        /// With whom.
        peer: PeerId,
    },
    /// Claim a lease, or repeat a claim: [`Claimed`](super::Claimed).
    LeaseClaim {
        /// The peer that keeps the leases; absent for the one of the configuration, else this node.
        authority: Option<PeerId>,
        /// The name that the lease will have; the same for every repeat of a claim.
        lease_id: String,
        /// The session that is to hold it.
        session: String,
        /// `kind:value`, or a path alone.
        resource: String,
        /// `exclusive` or `advisory`.
        mode: String,
        /// Seconds that it holds without a renewal.
        ttl: u64,
        /// For people; may be empty.
        reason: String,
        /// Whether to wait where it is held.
        wait: bool,
        /// Seconds to wait at most; absent for no end.
        wait_within: Option<u64>,
    },
    /// Give a lease back: [`Released`](super::Released).
    LeaseRelease {
        /// As for a claim.
        authority: Option<PeerId>,
        /// The lease.
        lease_id: String,
        /// The session that holds it.
        session: String,
    },
    /// All leases: [`Leases`](super::Leases).
    LeaseList {
        /// As for a claim.
        authority: Option<PeerId>,
    },
}

/// A key on its way through the control socket, which the owner alone can open.
#[derive(Clone)]
pub struct InviteKey(pub Key);

/// Who and where a node is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Status {
    /// This node's id.
    pub id: String,
    /// Where it listens.
    pub listen: Vec<SocketAddr>,
    /// Its event loop.
    pub runtime: String,
    /// Its process.
    pub pid: u32,
    /// The command that it runs for: `serve`, `connect` or `join --stay`.
    #[serde(default = "serve")]
    pub command: String,
}

/// What a service runs for that does not say so.
fn serve() -> String {
    "serve".to_owned()
}

/// A peer as it stands with a running node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Live {
    /// Who.
    pub id: String,
    /// Whether there is a key.
    pub paired: bool,
    /// The link that stands.
    pub link: Option<Link>,
    /// Whether a dial is under way.
    pub dialling: bool,
    /// Seconds until the next dial.
    pub retry_in: Option<f64>,
    /// Seconds since its last heartbeat.
    pub heartbeat_age: Option<f64>,
    /// When its last heartbeat came.
    pub heartbeat_at: Option<String>,
    /// What its machine has, as it says.
    pub capabilities: Option<Box<RawValue>>,
    /// Where it says that it can be reached.
    pub listen_addrs: Vec<SocketAddr>,
    /// What its machine has to spare, as it says.
    pub headroom: Option<Box<RawValue>>,
}

/// A peer was forgotten.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Forgotten {
    /// The files that are gone.
    pub removed: Vec<String>,
}

/// A link stands.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Connected {
    /// With whom.
    pub peer: String,
    /// Whether an invite's key worked and was stored.
    pub paired: bool,
}

/// A message left.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sent {
    /// Whether the peer took all of it and ended the connection in order; a reply says so too.
    pub taken: bool,
    /// What it replied.
    pub reply: Option<Reply>,
}

/// A reply.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Reply {
    /// What it is.
    pub msg_type: String,
    /// The peer's id for it.
    pub id: String,
    /// The payload.
    pub payload: Box<RawValue>,
}

/// The time of a handshake.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Pong {
    /// From the dial to the ack, in seconds.
    pub seconds: f64,
}

impl Request {
    /// Whether its answer may be long in coming, since it is a peer's to give, or waits for a lease.
    #[must_use]
    pub const fn waits(&self) -> bool {
        match self {
            Self::Connect { .. }
            | Self::Send { .. }
            | Self::Ping { .. }
            | Self::LeaseClaim { .. }
            | Self::LeaseRelease { .. }
            | Self::LeaseList { .. } => true,
            Self::Status | Self::Peers | Self::Reload | Self::Pending | Self::Forget { .. } => false,
        }
    }

    /// The command's name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::Peers => "peers",
            Self::Reload => "reload",
            Self::Pending => "pending",
            Self::Forget { .. } => "forget",
            Self::Connect { .. } => "connect",
            Self::Send { .. } => "send",
            Self::Ping { .. } => "ping",
            Self::LeaseClaim { .. } => "lease_claim",
            Self::LeaseRelease { .. } => "lease_release",
            Self::LeaseList { .. } => "lease_list",
        }
    }
}

impl From<&PeerView> for Live {
    fn from(view: &PeerView) -> Self {
        let report = view.report.as_ref();
        let raw = |value: Result<Box<RawValue>, serde_json::Error>| value.ok();
        Self {
            id: view.id.to_string(),
            paired: view.paired,
            link: view.link.as_ref().map(Link::from),
            dialling: view.dialling,
            retry_in: view.retry_in.map(seconds),
            heartbeat_age: report.map(|(age, _)| seconds(*age)),
            heartbeat_at: report.and_then(|(_, report)| clock::rfc3339(report.beat_wall)),
            capabilities: report
                .and_then(|(_, report)| raw(serde_json::value::to_raw_value(report.capabilities.as_ref()?))),
            listen_addrs: report.map(|(_, report)| report.listen_addrs.clone()).unwrap_or_default(),
            headroom: report
                .and_then(|(_, report)| raw(serde_json::value::to_raw_value(&report.headroom.as_ref()?.1))),
        }
    }
}

impl Live {
    /// The link's direction, or what is done to have one.
    #[must_use]
    pub fn state(&self) -> String {
        match (&self.link, self.dialling, self.retry_in) {
            (Some(link), _, _) if link.direction == Direction::Inbound.as_str() => "linked (in)".to_owned(),
            (Some(_), _, _) => "linked (out)".to_owned(),
            (None, true, _) => "dialling".to_owned(),
            (None, false, Some(wait)) => format!("retry in {wait:.0} s"),
            (None, false, None) => "no link".to_owned(),
        }
    }
}

impl fmt::Debug for InviteKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InviteKey(..)")
    }
}

impl Serialize for InviteKey {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&zeroize::Zeroizing::new(self.0.to_hex()))
    }
}
