//! `relay connect`: a lasting link with a peer at an address.

use core::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use clap::Args;
use relay_core::text::PeerId;

use super::Context;
use super::serve::{Engine, follow};
use crate::config::reachable_address;
use crate::failure::{Exit, Failure};
use crate::home::peer_id;
use crate::service::{Request, Service};

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
    /// Who is expected there [default: the peer that was met there, else whoever of the paired peers answers]
    #[arg(long, value_name = "ID", value_parser = peer_id)]
    peer: Option<PeerId>,
    #[command(flatten)]
    engine: Engine,
}

impl Connect {
    pub(super) fn run(self, context: &mut Context<'_>) -> Result<(), Failure> {
        let peer = match self.peer {
            Some(peer) => Some(peer),
            None => expected(self.addr, context)?,
        };
        let request = Request::Connect { addr: self.addr, peer, invite: None, keep: true };
        let mut config = context.config()?;
        self.engine.apply(&mut config);
        let setup = context.setup(config, Vec::new(), false)?;
        let service = Service::start(setup, "connect")?;
        let failed = dial(&service, request)?;
        follow(service, context)?;
        // The other thread is done: its node has ended.
        failed.lock().unwrap_or_else(PoisonError::into_inner).take().map_or(Ok(()), Err)
    }
}

/// Why the dial failed for good, where it did.
type Failed = Arc<Mutex<Option<Failure>>>;

/// Dials while the main thread says what happens. A peer that is known and cannot be reached is dialled again; any
/// other failure ends the service.
fn dial(service: &Service, request: Request) -> Result<Failed, Failure> {
    let failed = Failed::default();
    let again = matches!(&request, Request::Connect { peer: Some(_), .. });
    let (desk, stop, place) = (service.desk().clone(), service.stop(), Arc::clone(&failed));
    let started = thread::Builder::new().name("relay-connect".into()).spawn(move || {
        if let Err(failure) = desk.carry_out(request)
            && !(again && failure.exit == Exit::Unreachable)
            && stop.reason().is_none()
        {
            *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(failure);
            stop.now("the dial failed");
        }
    });
    started
        .map_err(|error| Failure::refused(format!("a thread cannot be started: {error}"), "Try again."))?;
    Ok(failed)
}

/// The peer that an address belongs to, where that is certain: the only one met there, else the only one paired.
pub(super) fn expected(addr: SocketAddr, context: &Context<'_>) -> Result<Option<PeerId>, Failure> {
    let peers = context.home.keys().list()?.peers;
    let paired = || peers.iter().filter(|peer| peer.paired);
    let only = |mut found: Vec<&crate::keys::Peer>| {
        let one = found.pop().filter(|_| found.is_empty());
        one.map(|peer| peer.id.clone())
    };
    let there = paired().filter(|peer| peer.meta.candidates().contains(&addr)).collect();
    Ok(only(there).or_else(|| only(paired().collect())))
}
