//! The lines of the control socket.

use core::net::SocketAddr;

use relay_core::secret::Key;
use relay_core::text::PeerId;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use zeroize::Zeroizing;

use super::VERSION;
use crate::failure::{Exit, Failure};
use crate::home::peer_id;
use crate::service::{InviteKey, Line, Request};

/// What a client asks.
#[derive(Debug)]
pub(super) enum Asked {
    /// A question with one answer.
    Request(Request),
    /// Everything that the node tells from now on.
    Watch,
}

/// A request as it stands on its line. Every field is there or not; which ones a command needs is checked behind.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    #[serde(default)]
    v: Option<u64>,
    #[serde(default)]
    id: u64,
    cmd: String,
    #[serde(default)]
    peer: Option<String>,
    #[serde(default)]
    addr: Option<SocketAddr>,
    #[serde(default)]
    invite: Option<String>,
    #[serde(default)]
    keep: bool,
    #[serde(default)]
    msg_type: Option<String>,
    #[serde(default)]
    payload: Option<Box<RawValue>>,
    #[serde(default)]
    reply_within: Option<u64>,
    #[serde(default)]
    authority: Option<String>,
    #[serde(default)]
    lease_id: Option<String>,
    #[serde(default)]
    session: Option<String>,
    #[serde(default)]
    resource: Option<String>,
    #[serde(default)]
    mode: Option<String>,
    #[serde(default)]
    ttl: Option<u64>,
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    wait: bool,
    #[serde(default)]
    wait_within: Option<u64>,
}

/// Every command, as an unknown one is told.
const COMMANDS: [&str; 12] = [
    "status",
    "peers",
    "reload",
    "pending",
    "forget",
    "ping",
    "connect",
    "send",
    "lease_claim",
    "lease_release",
    "lease_list",
    "watch",
];

/// Reads a line: its id, 0 where there is none, and what it asks.
pub(super) fn read(line: &[u8]) -> (u64, Result<Asked, Failure>) {
    let fields: Fields = match serde_json::from_slice(line) {
        Ok(fields) => fields,
        // The text of the error could repeat what was sent, which may hold a key.
        Err(error) => {
            let place = format!("byte {}", error.column());
            return (
                0,
                Err(bad(&format!("the request is no object of the control protocol (near {place})"))),
            );
        }
    };
    (fields.id, fields.into_asked())
}

impl Fields {
    fn into_asked(self) -> Result<Asked, Failure> {
        let version = self.v.unwrap_or(VERSION);
        if version != VERSION {
            return Err(version_mismatch(version, VERSION));
        }
        let peer = self.peer.as_deref().map(peer_id).transpose().map_err(|rule| bad(&rule))?;
        let need = |peer: Option<PeerId>| peer.ok_or_else(|| bad("\"peer\" is missing"));
        let authority = self.authority.as_deref().map(peer_id).transpose().map_err(|rule| bad(&rule))?;
        let text =
            |text: Option<String>, name: &str| text.ok_or_else(|| bad(&format!("{name:?} is missing")));
        let request = match self.cmd.as_str() {
            "watch" => return Ok(Asked::Watch),
            "status" => Request::Status,
            "peers" => Request::Peers,
            "reload" => Request::Reload,
            "pending" => Request::Pending,
            "forget" => Request::Forget { peer: need(peer)? },
            "ping" => Request::Ping { peer: need(peer)? },
            "connect" => {
                let key =
                    |text: Zeroizing<String>| Key::from_hex(&text).ok_or_else(|| bad("\"invite\" is no key"));
                let invite = self.invite.map(Zeroizing::new).map(key).transpose()?.map(InviteKey);
                let addr = self.addr.ok_or_else(|| bad("\"addr\" is missing"))?;
                Request::Connect { addr, peer, invite, keep: self.keep }
            }
            "send" => Request::Send {
                peer: need(peer)?,
                msg_type: self.msg_type.ok_or_else(|| bad("\"msg_type\" is missing"))?,
                payload: self.payload.ok_or_else(|| bad("\"payload\" is missing"))?,
                reply_within: self.reply_within,
            },
            "lease_claim" => Request::LeaseClaim {
                authority,
                lease_id: text(self.lease_id, "lease_id")?,
                session: text(self.session, "session")?,
                resource: text(self.resource, "resource")?,
                mode: self.mode.unwrap_or_else(|| "exclusive".to_owned()),
                ttl: self.ttl.ok_or_else(|| bad("\"ttl\" is missing"))?,
                reason: self.reason.unwrap_or_default(),
                wait: self.wait,
                wait_within: self.wait_within,
            },
            "lease_release" => Request::LeaseRelease {
                authority,
                lease_id: text(self.lease_id, "lease_id")?,
                session: text(self.session, "session")?,
            },
            "lease_list" => Request::LeaseList { authority },
            other => {
                let near = crate::config::nearest(other, COMMANDS.into_iter());
                let hint = near.map_or_else(|| COMMANDS.join(", "), |near| format!("did you mean {near}?"));
                return Err(bad(&format!("unknown command: {hint}")));
            }
        };
        Ok(Asked::Request(request))
    }
}

/// The two programs are of different versions.
pub(super) fn version_mismatch(client: u64, serve: u64) -> Failure {
    Failure::refused(
        format!(
            "this command speaks control protocol {client}, and the relay serve that runs here speaks {serve}"
        ),
        "Restart relay serve, so that both are of one version.",
    )
}

fn bad(why: &str) -> Failure {
    Failure::usage(why, "docs/cli.md describes the control socket.")
}

/// A request on its way out.
#[derive(Serialize)]
pub(super) struct Outgoing<'a> {
    pub(super) v: u64,
    pub(super) id: u64,
    #[serde(flatten)]
    pub(super) request: &'a Request,
}

/// A line on its way back.
#[derive(Serialize, Deserialize)]
pub(super) struct Back {
    pub(super) id: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) answer: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<Refusal>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) event: Option<Box<RawValue>>,
}

/// A failure on the wire.
#[derive(Serialize, Deserialize)]
pub(super) struct Refusal {
    code: String,
    message: String,
    hint: String,
}

impl Back {
    pub(super) fn of(id: u64, outcome: Result<Box<RawValue>, Failure>) -> Self {
        let (answer, error) = match outcome {
            Ok(answer) => (Some(answer), None),
            Err(failure) => (None, Some(failure.into())),
        };
        Self { id, answer, error, event: None }
    }

    /// The answer that says no more than that.
    pub(super) fn done(id: u64) -> Self {
        let empty = RawValue::from_string("{}".to_owned()).expect("an empty object is JSON");
        Self::of(id, Ok(empty))
    }

    pub(super) fn event(id: u64, line: &Line) -> Self {
        Self { id, answer: None, error: None, event: serde_json::value::to_raw_value(line).ok() }
    }

    /// The line's bytes.
    pub(super) fn to_line(&self) -> Vec<u8> {
        let mut bytes = serde_json::to_vec(self).expect("an answer has string keys only");
        bytes.push(b'\n');
        bytes
    }
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        Self { code: failure.exit.word().to_owned(), message: failure.message, hint: failure.hint }
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        let exit = Exit::from_word(&refusal.code).unwrap_or(Exit::Refused);
        Self::new(exit, refusal.message, refusal.hint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(line: &str) -> String {
        read(line.as_bytes()).1.unwrap_err().message
    }

    #[test]
    fn every_request_reads_back() {
        let peer = || PeerId::parse("a").unwrap();
        let requests = [
            Request::Status,
            Request::Peers,
            Request::Reload,
            Request::Pending,
            Request::Forget { peer: peer() },
            Request::Ping { peer: peer() },
            Request::Connect {
                addr: "[::1]:9".parse().unwrap(),
                peer: Some(peer()),
                invite: Some(InviteKey(Key::from_bytes([7; 32]))),
                keep: true,
            },
            Request::Send {
                peer: peer(),
                msg_type: "lease_list".to_owned(),
                payload: RawValue::from_string(r#"{"a":1,"a":1.0e0}"#.to_owned()).unwrap(),
                reply_within: Some(3),
            },
            Request::LeaseClaim {
                authority: Some(peer()),
                lease_id: "l".to_owned(),
                session: "s".to_owned(),
                resource: "res:x".to_owned(),
                mode: "advisory".to_owned(),
                ttl: 60,
                reason: "why".to_owned(),
                wait: true,
                wait_within: Some(9),
            },
            Request::LeaseRelease { authority: None, lease_id: "l".to_owned(), session: "s".to_owned() },
            Request::LeaseList { authority: None },
        ];
        for request in requests {
            let line =
                |request: &Request| serde_json::to_string(&Outgoing { v: VERSION, id: 9, request }).unwrap();
            let text = line(&request);
            let (id, asked) = read(text.as_bytes());
            let Asked::Request(back) = asked.unwrap() else { panic!("{text}") };
            assert_eq!((id, line(&back)), (9, text));
        }
    }

    #[test]
    fn what_is_no_request_is_told_without_repeating_it() {
        let secret = "0123456789abcdef0123456789abcdef";
        for line in [
            "",
            "[]",
            "{",
            "{\"cmd\":1}",
            &format!("{{\"cmd\":\"{secret}\"}}"),
            &format!("{{\"cmd\":\"connect\",\"addr\":\"1.2.3.4:5\",\"invite\":\"{secret}\"}}"),
            &format!("{{\"cmd\":\"connect\",\"{secret}\":1}}"),
            &format!("{{\"cmd\":\"ping\",\"peer\":\"{secret}/\"}}"),
        ] {
            let message = error(line);
            assert!(!message.contains(secret), "{message}");
        }
        assert_eq!(error(r#"{"cmd":"ping"}"#), "\"peer\" is missing");
        assert_eq!(error(r#"{"cmd":"peer"}"#), "unknown command: did you mean peers?");
    }

    #[test]
    fn another_version_is_named_beside_ones_own() {
        let message = error(r#"{"v":7,"cmd":"status"}"#);
        assert!(message.contains("protocol 7") && message.contains("speaks 1"), "{message}");
    }
}
