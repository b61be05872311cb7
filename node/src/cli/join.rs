//! `relay join`: follow another machine's invite.

use clap::Args;
use relay_core::peer::invite::{Invite, InviteError};
use serde::Serialize;

use super::serve::Engine;
use super::{Context, connect, secret};
use crate::failure::Failure;
use crate::service::{Connected, InviteKey, Request};

/// Join the machine that made an invite: a link or a relay code
///
/// A key that is stored for that machine already is tried first, then the invite's. The one that works is stored, with
/// the address. Where relay serve runs in this home it keeps the link; otherwise the link is closed again, unless
/// --stay is given.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  relay join cctl://build-2-1a2b3c4d@192.168.1.20:9847/k/0123456789abcdef")]
pub(super) struct Join {
    /// The link or the code; - reads it from stdin
    #[arg(value_name = "LINK|CODE")]
    invite: String,
    /// Keep the link and say what happens, until interrupted
    #[arg(long)]
    stay: bool,
    #[command(flatten)]
    engine: Engine,
}

#[derive(Serialize)]
struct Joined<'a> {
    peer: &'a str,
    addr: String,
    paired: bool,
    kept: bool,
}

impl Join {
    pub(super) fn run(self, context: &mut Context<'_>) -> Result<(), Failure> {
        let text = secret::argument(&self.invite, "invite", context)?;
        let Invite { peer, addr, code } = Invite::parse(&text).map_err(explain)?;
        let own = context.identity()?;
        if peer.as_ref() == Some(&own) {
            return Err(Failure::refused(
                "this invite was made on this machine",
                "Run relay join with it on the other one.",
            ));
        }
        let running = context.status()?.map(|status| status.command);
        let keep = running.is_some() || self.stay;
        let request = Request::Connect { addr, peer, invite: Some(InviteKey(code.key())), keep };
        match &running {
            None if self.stay => return connect::stay(request, self.engine, "join --stay", context),
            None => self.engine.ignored("without --stay no link is kept", context),
            Some(command) => {
                self.engine.ignored(&format!("relay {command}, which runs here, has its own"), context);
            }
        }
        let Connected { peer, paired } = context.ask(&request)?;
        let out = &mut context.out;
        if out.is_json() {
            out.object(&Joined { peer: &peer, addr: addr.to_string(), paired, kept: keep });
        } else if paired {
            out.line(&format!("joined {peer} at {addr}"));
        } else {
            out.line(&format!("joined {peer} at {addr}, with the key that was known already"));
        }
        match running {
            Some(command) => out.talk(&format!("relay {command}, which runs here, keeps the link.")),
            None => out.talk("Keep a link with it: relay serve. Or send it something: relay send."),
        }
        Ok(())
    }
}

/// What is wrong with the text, and what to do with what it is instead.
fn explain(error: InviteError) -> Failure {
    let hint = match error {
        InviteError::Phrase => "On the other machine: relay invite shows both.",
        InviteError::HiveLink => "Ask for an invite to the relay itself: relay invite (there).",
        InviteError::PairingCode => "Use it so: relay accept CODE PEER.",
        InviteError::LinkShape | InviteError::LinkPeer | InviteError::LinkAddress | InviteError::LinkKey => {
            "Copy the whole link from relay invite on the other machine, in quotes."
        }
        InviteError::CodeCharacter | InviteError::CodeLength | InviteError::CodeMistyped => {
            "Compare it with what relay invite shows on the other machine."
        }
    };
    Failure::usage(error.to_string(), hint)
}
