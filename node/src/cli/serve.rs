//! `relay serve`: the node, until it is stopped.

use core::net::SocketAddr;
use core::time::Duration;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use relay_core::text::PeerId;

use super::Context;
use crate::config::{self, Runtime, listen_address};
use crate::failure::Failure;
use crate::home::peer_id;
use crate::service::signals::{self, Caught};
use crate::service::{Service, What};

/// Run this node: take links from peers, dial those that are known and keep the links alive
///
/// It needs no configuration and makes its identity on first use. It runs until SIGINT or SIGTERM. Other relay
/// commands in the same home find it and work through it.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  relay serve --listen 0.0.0.0:9847")]
pub(super) struct Serve {
    /// Where to listen, instead of the configured address; more than once for more. Port 0 takes a free one
    /// [default: 127.0.0.1:9847]
    #[arg(long, value_name = "IP:PORT", value_parser = listen_address)]
    listen: Vec<SocketAddr>,
    /// The peer that keeps the fleet's leases, instead of the configured one; this machine's own id for itself
    /// [default: itself]
    #[arg(long, value_name = "PEER", value_parser = peer_id)]
    authority: Option<PeerId>,
    #[command(flatten)]
    engine: Engine,
}

/// How a node runs.
#[derive(Args, Clone, Copy, Debug)]
pub(super) struct Engine {
    /// The event loop [default: smol]
    #[arg(long, value_enum, value_name = "smol|mio", hide_possible_values = true)]
    runtime: Option<Loop>,
    /// Seconds between two heartbeats, 1 to 300 [default: 30]
    #[arg(long, value_name = "SECS", value_parser = clap::value_parser!(u16).range(1..=300))]
    heartbeat: Option<u16>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Loop {
    /// smol.
    Smol,
    /// mio.
    Mio,
}

impl Engine {
    /// Puts what the command line says over what the file says.
    pub(super) fn apply(self, config: &mut config::Config) {
        match self.runtime {
            Some(Loop::Smol) => config.runtime = Runtime::Smol,
            Some(Loop::Mio) => config.runtime = Runtime::Mio,
            None => {}
        }
        if let Some(secs) = self.heartbeat {
            config.heartbeat = Duration::from_secs(secs.into());
        }
    }

    /// Says which of its flags count for nothing, and why.
    pub(super) fn ignored(self, why: &str, context: &mut Context<'_>) {
        let flags = [("--runtime", self.runtime.is_some()), ("--heartbeat", self.heartbeat.is_some())];
        let given: Vec<_> = flags.into_iter().filter(|(_, given)| *given).map(|(flag, _)| flag).collect();
        if !given.is_empty() {
            context.out.warn(&format!("{} ignored: {why}", given.join(" and ")));
        }
    }
}

impl Serve {
    pub(super) fn run(self, context: &mut Context<'_>) -> Result<(), Failure> {
        let mut config = context.config()?;
        self.engine.apply(&mut config);
        config.authority = self.authority.or(config.authority);
        context.log(&config);
        let listen = if self.listen.is_empty() { config.listen.clone() } else { self.listen };
        for addr in listen.iter().filter(|addr| !addr.ip().is_loopback()) {
            context.out.warn(&format!(
                "{addr} can be reached from other machines, and protocol version 1 is not encrypted: \
                 use it inside a network that you trust, or through a tunnel"
            ));
        }
        let signals = signals::catch()?;
        let setup = context.setup(config, listen, true)?;
        let limit = relay_runtime::raise_descriptor_limit();
        context.out.detail(
            1,
            &match limit {
                Some(limit) => format!("descriptors: at most {limit}"),
                None => "descriptors: no limit".to_owned(),
            },
        );
        let service = Service::start(setup, "serve")?;
        follow(service, signals, context, |_| {})
    }
}

/// Prints what a service tells until it ends, each line after `mend` has seen it.
pub(super) fn follow(
    mut service: Service,
    signals: Caught,
    context: &mut Context<'_>,
    mut mend: impl FnMut(&mut What),
) -> Result<(), Failure> {
    let lines = service.take_lines();
    let stop = service.stop();
    signals.end(stop.clone());
    for warning in service.warnings() {
        context.out.warn(warning);
    }
    for line in service.listening() {
        context.out.event(&line);
    }
    if !service.addresses().is_empty() && context.home.keys().list()?.peers.is_empty() {
        context.out.talk("No peer is known yet. Invite another machine: relay invite");
    }
    for line in lines {
        let mut line = Arc::unwrap_or_clone(line);
        mend(&mut line.what);
        context.out.event(&line);
        if !context.out.is_open() {
            stop.now("nobody reads its output");
        }
    }
    service.join()
}
