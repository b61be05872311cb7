//! What a running node tells: a line for people, or an object for programs.

use core::fmt;
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use relay_core::frame::Framing;
use relay_core::peer::{Event, LeftOut, LinkView};
use serde::Serialize;

use crate::clock;

/// Something that happened, and when.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Line {
    /// When: RFC 3339, UTC, milliseconds.
    pub ts: String,
    /// What.
    #[serde(flatten)]
    pub what: What,
}

/// What happened. The names are those of `serve --json`.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum What {
    /// A service takes connections.
    Listening {
        /// Which one: `link`.
        service: &'static str,
        /// Where, with the real port.
        addr: SocketAddr,
        /// This node.
        id: String,
        /// The event loop.
        runtime: &'static str,
    },
    /// A link stands.
    LinkUp(Link),
    /// A link ended.
    LinkDown {
        /// With whom.
        peer: String,
        /// Why.
        reason: String,
    },
    /// Somebody who connected did not prove to be a peer.
    HandshakeFailed {
        /// Whence.
        addr: Option<SocketAddr>,
        /// Who it claimed to be.
        claimed: Option<String>,
        /// Why.
        reason: String,
    },
    /// More handshakes of one address failed than were told.
    HandshakesLeftOut {
        /// The address, or the network of an IPv6 one.
        ip: Option<IpAddr>,
        /// How many were not told.
        count: u32,
    },
    /// A peer could not be reached at any address.
    DialFailed {
        /// Who.
        peer: Option<String>,
        /// The last address.
        addr: Option<SocketAddr>,
        /// Why.
        reason: String,
        /// Seconds until the next try; null for never.
        retry_in: Option<f64>,
    },
    /// A message came.
    Message {
        /// From whom.
        peer: String,
        /// What it is.
        msg_type: String,
        /// The sender's id for it.
        id: String,
    },
    /// A message type of a peer was skipped; told once a peer and type.
    UnknownType {
        /// From whom.
        peer: String,
        /// The type.
        msg_type: String,
    },
    /// An invite of this node was redeemed.
    Paired {
        /// By whom.
        peer: String,
    },
    /// A change could not be written, so that a restart undoes it.
    NotStored {
        /// Of which peer.
        peer: String,
        /// Why.
        reason: String,
    },
    /// A lease of this node, where it is the authority, was granted or ended.
    Lease {
        /// Its name.
        id: String,
        /// `kind:value`.
        resource: String,
        /// `session@peer`.
        owner: String,
        /// `granted`, `released` or `expired`.
        change: &'static str,
        /// Of two leases on one resource the later has the higher.
        fencing_token: u64,
    },
    /// The journal began to fail, or works again.
    Journal {
        /// `failing` or `working`.
        state: &'static str,
    },
    /// The node ends.
    Stopped {
        /// Why.
        reason: String,
    },
}

/// A link as it was agreed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, serde::Deserialize)]
pub struct Link {
    /// With whom.
    pub peer: String,
    /// The other end.
    pub addr: Option<SocketAddr>,
    /// `inbound` or `outbound`.
    pub direction: String,
    /// `ndjson` or `binary`.
    pub framing: String,
    /// What both ends agreed on.
    pub features: Vec<String>,
    /// The protocol version; 0 for a peer from before there was one.
    pub proto: u64,
    /// The peer's version, where it said one.
    pub version: Option<String>,
}

impl Line {
    /// It happened now.
    #[must_use]
    pub fn now(what: What) -> Self {
        Self { ts: clock::rfc3339(clock::now()).unwrap_or_default(), what }
    }
}

impl What {
    /// What a node's event says; `None` for one that this version does not know.
    #[must_use]
    pub fn of(event: &Event) -> Option<Self> {
        Some(match event {
            Event::LinkUp(link) => Self::LinkUp(link.into()),
            Event::LinkDown { peer, reason } => {
                Self::LinkDown { peer: peer.to_string(), reason: reason.to_string() }
            }
            Event::HandshakeFailed { address, claimed, reason } => Self::HandshakeFailed {
                addr: *address,
                claimed: claimed.as_ref().map(ToString::to_string),
                reason: reason.to_string(),
            },
            Event::HandshakesLeftOut(LeftOut { from, count }) => {
                Self::HandshakesLeftOut { ip: *from, count: *count }
            }
            Event::DialFailed { peer, address, reason, retry_in } => Self::DialFailed {
                peer: peer.as_ref().map(ToString::to_string),
                addr: *address,
                reason: reason.to_string(),
                retry_in: retry_in.map(seconds),
            },
            Event::Message(message) => Self::Message {
                peer: message.peer.to_string(),
                msg_type: message.kind.to_string(),
                id: message.id.clone(),
            },
            Event::UnknownType { peer, msg_type } => {
                Self::UnknownType { peer: peer.to_string(), msg_type: msg_type.clone() }
            }
            Event::Paired { peer } => Self::Paired { peer: peer.to_string() },
            Event::NotStored { peer, error } => {
                Self::NotStored { peer: peer.to_string(), reason: error.to_string() }
            }
            Event::Lease(change) => Self::Lease {
                id: change.id.clone(),
                resource: change.resource.clone(),
                owner: change.owner.clone(),
                change: change.lapse.as_str(),
                fencing_token: change.fencing_token,
            },
            Event::Journal { failing } => {
                Self::Journal { state: if *failing { "failing" } else { "working" } }
            }
            _ => return None,
        })
    }
}

impl From<&LinkView> for Link {
    fn from(view: &LinkView) -> Self {
        let framing = match view.framing {
            Framing::Ndjson => "ndjson",
            Framing::Binary => "binary",
        };
        Self {
            peer: view.peer.to_string(),
            addr: view.address,
            direction: view.direction.as_str().to_owned(),
            framing: framing.to_owned(),
            features: view.features.iter().map(|feature| feature.as_str().to_owned()).collect(),
            proto: view.proto,
            version: view.version.clone(),
        }
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listening { addr, id, .. } => write!(f, "listening on {addr} as {id}"),
            Self::LinkUp(link) => link.fmt(f),
            Self::LinkDown { peer, reason } => write!(f, "link down: {peer} ({reason})"),
            Self::HandshakeFailed { addr, claimed, reason } => {
                f.write_str("handshake failed")?;
                addr.iter().try_for_each(|addr| write!(f, " from {addr}"))?;
                claimed.iter().try_for_each(|claimed| write!(f, " as {claimed}"))?;
                write!(f, ": {reason}")
            }
            Self::HandshakesLeftOut { ip, count } => {
                write!(f, "{count} more handshakes failed")?;
                ip.iter().try_for_each(|ip| write!(f, " from {ip}"))
            }
            Self::DialFailed { peer, addr, reason, retry_in } => {
                f.write_str("dial failed")?;
                peer.iter().try_for_each(|peer| write!(f, " to {peer}"))?;
                addr.iter().try_for_each(|addr| write!(f, " at {addr}"))?;
                write!(f, ": {reason}")?;
                retry_in.iter().try_for_each(|span| write!(f, "; next try in {span:.0} s"))
            }
            Self::Message { peer, msg_type, id } => write!(f, "message from {peer}: {msg_type} {id}"),
            Self::UnknownType { peer, msg_type } => {
                write!(f, "skipped from {peer}: unknown message type {msg_type:?}")
            }
            Self::Paired { peer } => write!(f, "paired with {peer}"),
            Self::NotStored { peer, reason } => {
                write!(f, "not stored of {peer}: {reason}; a restart undoes the change")
            }
            Self::Lease { id, resource, owner, change, fencing_token } => {
                write!(f, "lease {change}: {resource} of {owner} ({id}, token {fencing_token})")
            }
            Self::Journal { state: "failing" } => {
                f.write_str("the journal fails: no lease is granted or released until it works again")
            }
            Self::Journal { .. } => f.write_str("the journal works again"),
            Self::Stopped { reason } => write!(f, "stopped: {reason}"),
        }
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "link up: {}", self.peer)?;
        self.addr.iter().try_for_each(|addr| write!(f, " at {addr}"))?;
        write!(f, " ({}, {}", self.direction, self.framing)?;
        if self.features.is_empty() {
            f.write_str(", no features)")
        } else {
            write!(f, ", {})", self.features.join(" "))
        }
    }
}

/// A span in seconds, to the millisecond.
#[must_use]
pub(super) fn seconds(span: Duration) -> f64 {
    (span.as_secs_f64() * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_line_is_one_flat_object_with_its_time() {
        let what = What::DialFailed {
            peer: Some("a".to_owned()),
            addr: Some("10.0.0.1:9847".parse().unwrap()),
            reason: "no".to_owned(),
            retry_in: Some(seconds(Duration::from_micros(1_234_567))),
        };
        let mut line = Line::now(what);
        line.ts = "T".to_owned();
        let object = json!({"ts": "T", "event": "dial_failed", "peer": "a", "addr": "10.0.0.1:9847",
            "reason": "no", "retry_in": 1.235});
        assert_eq!(serde_json::to_value(&line).unwrap(), object);
        assert_eq!(line.what.to_string(), "dial failed to a at 10.0.0.1:9847: no; next try in 1 s");
    }
}
