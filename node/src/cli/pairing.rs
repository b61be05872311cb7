//! `relay pair` and `relay accept`: two machines agree on a key through a code that a person carries.

use clap::Args;
use relay_core::peer::pairing::PairingCode;
use relay_core::text::PeerId;
use serde::Serialize;

use super::{Context, secret};
use crate::failure::Failure;
use crate::home::peer_id;
use crate::keys::Stored;
use crate::service::Status;

/// Make a pairing code for one other machine
///
/// The key of the code becomes this node's one pending key: the next unknown peer that proves to hold it is paired,
/// and it takes the place of any earlier code or invite that was not used.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  relay pair")]
pub(super) struct Pair {}

/// Accept a pairing code that another machine made
///
/// The code's key is stored under the peer's id, and tried with the next connection. A code or invite of this node's
/// own that is still open stays open. The peer's address is not part of a code: give it with relay connect, or use an
/// invite. A peer that has another key here keeps it, unless --replace is given.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  relay accept 0123-4567-89ab-cdef build-2-1a2b3c4d")]
pub(super) struct Accept {
    /// The code, as the other machine shows it; - reads it from stdin
    code: String,
    /// The other machine's peer id
    #[arg(value_parser = peer_id)]
    peer: PeerId,
    /// Put the code's key in the place of another that the peer has here; that one is gone then
    #[arg(long)]
    replace: bool,
}

#[derive(Serialize)]
struct Offered<'a> {
    id: &'a PeerId,
    code: &'a str,
}

#[derive(Serialize)]
struct Accepted<'a> {
    id: &'a PeerId,
    peer: &'a PeerId,
    replaced: bool,
}

impl Pair {
    pub(super) fn run(self, context: &mut Context<'_>) -> Result<(), Failure> {
        let Self {} = self;
        let id = context.identity()?;
        let running = taker(context)?;
        let code = context.new_code()?;
        open(&code, running.as_ref(), context)?;
        let shown = code.shown();
        if context.out.is_json() {
            context.out.object(&Offered { id: &id, code: &shown });
        } else {
            context.out.facts(&[("id", id.as_str()), ("code", &shown)]);
            context.out.talk(&format!("On the other machine: relay accept CODE {id}"));
        }
        Ok(())
    }
}

impl Accept {
    pub(super) fn run(self, context: &mut Context<'_>) -> Result<(), Failure> {
        let text = secret::argument(&self.code, "code", context)?;
        let Some(code) = PairingCode::parse(&text) else {
            return Err(Failure::usage(
                "that is no pairing code: it has 16 hex digits",
                "Copy it from relay pair on the other machine. A link or relay code goes to: relay join.",
            ));
        };
        let id = context.identity()?;
        if self.peer == id {
            return Err(Failure::refused(
                format!("{id} is this machine itself"),
                "Run relay accept on the other machine, with this one's id.",
            ));
        }
        let (keys, key) = (context.home.keys(), code.key());
        if keys.pending()? == Stored::Paired(key.clone()) {
            return Err(Failure::refused(
                "that code was made on this machine",
                format!("Run on the other one: relay accept CODE {id}."),
            ));
        }
        let other = matches!(keys.key(&self.peer)?, Stored::Paired(old) if old != key);
        if other && !self.replace {
            return Err(Failure::refused(
                format!("peer \"{}\" has another key here, which stays as it is", self.peer),
                format!("If that one is of no use any more: relay accept CODE {} --replace.", self.peer),
            ));
        }
        let replaced = keys.add(&self.peer, &key)?;
        context.keys_changed()?;
        let out = &mut context.out;
        if replaced {
            out.warn(&format!("the earlier key of {} is gone; the way back is to pair again", self.peer));
        }
        if out.is_json() {
            out.object(&Accepted { id: &id, peer: &self.peer, replaced });
        } else {
            out.line(&format!("stored the key of {}", self.peer));
            out.talk(&format!(
                "It is not tried yet. Try it: relay connect IP:PORT --peer {}. Or have the other machine dial.",
                self.peer
            ));
        }
        Ok(())
    }
}

/// The node that runs here and takes whoever redeems a code; `None` where none runs.
///
/// # Errors
/// One runs that listens nowhere.
pub(super) fn taker(context: &Context<'_>) -> Result<Option<Status>, Failure> {
    let running = context.status()?;
    match running {
        Some(Status { listen, command, pid, .. }) if listen.is_empty() => Err(Failure::refused(
            format!("relay {command}, which runs here (process {pid}), does not listen, so nobody can come"),
            "Stop it and start relay serve, which listens and dials the same peers.",
        )),
        running => Ok(running),
    }
}

/// Makes the key of `code` the pending one. It is stored before anything is shown.
pub(super) fn open(
    code: &PairingCode,
    running: Option<&Status>,
    context: &mut Context<'_>,
) -> Result<(), Failure> {
    let keys = context.home.keys();
    // An unreadable one is replaced as well.
    let earlier = !matches!(keys.pending(), Ok(Stored::Absent));
    keys.set_pending(&code.key())?;
    context.invite_changed()?;
    if earlier {
        context.out.talk("The earlier code or invite, which nobody used, no longer works.");
    }
    if running.is_none() {
        context
            .out
            .talk("Nothing listens here until relay serve runs: start it before the other machine comes.");
    }
    Ok(())
}
