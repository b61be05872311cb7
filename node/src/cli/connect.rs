//! `relay connect`: a lasting link with a peer at an address.

use core::net::SocketAddr;
use std::thread::{self, JoinHandle};

use clap::Args;
use relay_core::text::PeerId;
use serde::Serialize;

use super::Context;
use super::serve::{Engine, follow};
use crate::config::reachable_address;
use crate::failure::{Exit, Failure};
use crate::home::peer_id;
use crate::keys::Peer;
use crate::service::{Connected, Request, Service, Status, What, signals};

/// Keep a link with the peer at an address
///
/// Where relay serve runs in this home it is asked to keep the link, also after a loss. Otherwise this command is the
/// node: it dials, says what happens, dials again when the link is lost, and runs until it is interrupted.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  relay connect 192.168.1.20:9847")]
pub(super) struct Connect {
    /// Where the peer listens
    #[arg(value_name = "ADDR", value_parser = reachable_address)]
    addr: SocketAddr,
    /// Who is expected there [default: the only peer met there, else the only one paired]
    #[arg(long, value_name = "ID", value_parser = peer_id)]
    peer: Option<PeerId>,
    #[command(flatten)]
    engine: Engine,
}

#[derive(Serialize)]
struct Answer<'a> {
    peer: &'a str,
    addr: SocketAddr,
}

impl Connect {
    pub(super) fn run(self, context: &mut Context<'_>) -> Result<(), Failure> {
        let peer = match self.peer {
            Some(peer) => Some(peer),
            None => expected(self.addr, context)?,
        };
        let again = peer.is_some();
        let request = Request::Connect { addr: self.addr, peer, invite: None, keep: true };
        let Some(Status { command, .. }) = context.status()? else {
            return stay(request, self.engine, "connect", context);
        };
        self.engine.ignored(&format!("relay {command}, which runs here, has its own"), context);
        let Connected { peer, paired: _ } = context.ask(&request).map_err(|mut failure| {
            if again && failure.exit == Exit::Unreachable {
                failure.hint = format!("relay {command}, which runs here, goes on trying. {}", failure.hint);
            }
            failure
        })?;
        if context.out.is_json() {
            context.out.object(&Answer { peer: &peer, addr: self.addr });
        } else {
            context.out.line(&format!("linked with {peer} at {}", self.addr));
            context.out.talk(&format!("relay {command}, which runs here, keeps the link."));
        }
        Ok(())
    }
}

/// Is the node itself: dials, and says what happens until it is stopped.
pub(super) fn stay(
    request: Request,
    engine: Engine,
    what: &str,
    context: &mut Context<'_>,
) -> Result<(), Failure> {
    let mut config = context.config()?;
    engine.apply(&mut config);
    context.log(&config);
    let signals = signals::catch()?;
    let setup = context.setup(config, Vec::new(), false)?;
    let service = Service::start(setup, what)?;
    let mut dialling = Dialling::Under(dial(&service, request)?);
    follow(service, signals, context, |what| {
        // The node answers the dial before it tells of it, and does not know that the answer ends it.
        if let What::DialFailed { retry_in, .. } = what
            && dialling.failed()
        {
            *retry_in = None;
        }
    })?;
    match dialling.end() {
        Some(failure) => Err(failure),
        None => Ok(()),
    }
}

/// The dial that a service began with.
enum Dialling {
    /// A thread has the answer, or waits for it.
    Under(JoinHandle<Option<Failure>>),
    /// It is over; it failed for good where there is a failure.
    Over(Option<Failure>),
}

impl Dialling {
    /// Waits for its end, and says whether it failed for good.
    fn failed(&mut self) -> bool {
        let dialling = core::mem::replace(self, Self::Over(None));
        *self = Self::Over(dialling.end());
        matches!(self, Self::Over(Some(_)))
    }

    fn end(self) -> Option<Failure> {
        match self {
            Self::Under(thread) => thread.join().ok().flatten(),
            Self::Over(failure) => failure,
        }
    }
}

/// Dials while the main thread says what happens. A peer that is known and cannot be reached is dialled again; any
/// other failure ends the service.
fn dial(service: &Service, request: Request) -> Result<JoinHandle<Option<Failure>>, Failure> {
    let again = matches!(&request, Request::Connect { peer: Some(_), invite: None, .. });
    let (desk, stop) = (service.desk().clone(), service.stop());
    let started = thread::Builder::new().name("relay-connect".into()).spawn(move || {
        let failure = desk.carry_out(request).err()?;
        if (again && failure.exit == Exit::Unreachable) || stop.reason().is_some() {
            return None;
        }
        stop.now(&failure.message);
        Some(failure)
    });
    started.map_err(|error| Failure::refused(format!("a thread cannot be started: {error}"), "Try again."))
}

/// The peer that an address belongs to, where that is certain: the only one met there, else the only one paired.
fn expected(addr: SocketAddr, context: &Context<'_>) -> Result<Option<PeerId>, Failure> {
    let peers = context.home.keys().list()?.peers;
    let paired = || peers.iter().filter(|peer| peer.is_paired());
    let only = |mut found: Vec<&Peer>| found.pop().filter(|_| found.is_empty()).map(|peer| peer.id.clone());
    let there = paired().filter(|peer| peer.addresses.contains(addr)).collect();
    Ok(only(there).or_else(|| only(paired().collect())))
}
