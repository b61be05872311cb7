//! `relay send` and `relay ping`: one exchange with a peer, over a connection of its own.

use std::io::Read;
use std::thread;
use std::time::Duration;

use clap::Args;
use relay_core::message::Kind;
use relay_core::text::PeerId;
use serde::Serialize;
use serde_json::value::RawValue;

use super::Context;
use crate::failure::Failure;
use crate::home::peer_id;
use crate::service::{Pong, Reply, Request, Sent, kind, sendable};

/// The longest payload, in bytes: what the largest compressed frame holds.
const MAX_PAYLOAD: u64 = 4 << 20;

/// Send one message to a peer
///
/// It goes over a connection of its own, or over the link that stands where no address is known. What is said of it is
/// what is known: whether the peer took it, or only that it left. With --reply-within the reply's payload is printed.
#[derive(Args, Debug)]
#[command(
    after_help = "Example:\n  relay send build-2-1a2b3c4d lease_list '{\"request_id\":\"r1\"}' --reply-within 10"
)]
pub(super) struct Send {
    /// The peer's id
    #[arg(value_parser = peer_id)]
    peer: PeerId,
    /// The message type, as task_status or lease_list; --help lists them
    #[arg(value_name = "TYPE", long_help = types())]
    msg_type: String,
    /// The payload, a JSON object; - reads it from stdin
    #[arg(value_name = "JSON")]
    payload: String,
    /// Wait so long for the reply, 1 to 3600 seconds, and print it
    #[arg(long, value_name = "SECS", value_parser = clap::value_parser!(u64).range(1..=3600))]
    reply_within: Option<u64>,
}

/// Take the time of a handshake with a peer
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  relay ping build-2-1a2b3c4d --count 3")]
pub(super) struct Ping {
    /// The peer's id
    #[arg(value_parser = peer_id)]
    peer: PeerId,
    /// How often, a second apart
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    count: u32,
}

#[derive(Serialize)]
struct SentAnswer<'a> {
    peer: &'a PeerId,
    msg_type: &'a str,
    taken: bool,
    reply: Option<&'a Reply>,
}

#[derive(Serialize)]
struct PingAnswer<'a> {
    peer: &'a PeerId,
    n: u32,
    ms: f64,
}

/// Which types there are, and which have a reply.
fn types() -> String {
    let names = |with_reply: bool| {
        let fits = move |kind: &Kind| kind.answer().is_some() == with_reply;
        sendable().filter(fits).map(Kind::as_str).collect::<Vec<_>>().join(", ")
    };
    format!("The message type. With a reply: {}. Without: {}", names(true), names(false))
}

impl Send {
    pub(super) fn run(self, context: &mut Context<'_>) -> Result<(), Failure> {
        let Self { peer, msg_type, payload, reply_within } = self;
        let has_reply = kind(&msg_type)?.answer().is_some();
        if reply_within.is_some() && !has_reply {
            return Err(Failure::usage(
                format!("a {msg_type} has no reply"),
                "Send it without --reply-within.",
            ));
        }
        let payload = read(payload, context)?;
        let request = Request::Send { peer: peer.clone(), msg_type: msg_type.clone(), payload, reply_within };
        let Sent { taken, reply } = context.ask(&request)?;
        let out = &mut context.out;
        if out.is_json() {
            out.object(&SentAnswer { peer: &peer, msg_type: &msg_type, taken, reply: reply.as_ref() });
            return Ok(());
        }
        match (reply, taken) {
            (Some(reply), _) => out.line(reply.payload.get()),
            (None, true) => out.line(&format!("{peer} took the {msg_type}")),
            (None, false) => {
                out.line(&format!("the {msg_type} left"));
                out.talk(&format!("Whether {peer} took it is not known: it said nothing."));
            }
        }
        Ok(())
    }
}

impl Ping {
    pub(super) fn run(self, context: &mut Context<'_>) -> Result<(), Failure> {
        for n in 1..=self.count {
            let Pong { seconds } = context.ask(&Request::Ping { peer: self.peer.clone() })?;
            let ms = (seconds * 1e6).round() / 1e3;
            if context.out.is_json() {
                context.out.object(&PingAnswer { peer: &self.peer, n, ms });
            } else {
                context.out.line(&format!("{}: {ms:.3} ms", self.peer));
            }
            if n < self.count && context.out.is_open() {
                thread::sleep(Duration::from_secs(1));
            }
        }
        Ok(())
    }
}

/// The payload: the argument itself, or all of stdin where it is `-`.
fn read(argument: String, context: &mut Context<'_>) -> Result<Box<RawValue>, Failure> {
    let text = if argument == "-" {
        let mut text = String::new();
        let read = (&mut *context.stdin).take(MAX_PAYLOAD + 1).read_to_string(&mut text);
        read.map_err(|error| Failure::usage(format!("the payload cannot be read from stdin: {error}"), ""))?;
        text
    } else {
        argument
    };
    if text.len() as u64 > MAX_PAYLOAD {
        let message = format!("the payload is longer than {MAX_PAYLOAD} bytes");
        return Err(Failure::usage(message, "Send less at once."));
    }
    RawValue::from_string(text.trim().to_owned()).map_err(|error| {
        Failure::usage(
            format!("the payload is no JSON: {error}"),
            "Give an object, in quotes: '{\"key\":\"value\"}'.",
        )
    })
}
