//! What a node's heartbeats say of its machine: tools, addresses and room, looked at again every interval.

mod addresses;
mod headroom;
mod tools;

use core::net::SocketAddr;
use core::time::Duration;
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;

use relay_core::message::heartbeat::Capabilities;
use relay_core::peer::{Command, Report};

use super::NodeHandle;

pub use addresses::{interfaces, is_reachable, told};

/// Keeps a node's heartbeats true until it is dropped.
#[derive(Debug)]
pub(super) struct Reporter {
    _stop: Sender<()>,
}

/// What a report is made from.
#[derive(Debug)]
pub(super) struct Sources {
    /// The folder whose disk counts.
    pub(super) dir: PathBuf,
    /// Where the node listens.
    pub(super) listening: Vec<SocketAddr>,
    /// Where it says that it can be reached, in place of its interfaces' addresses.
    pub(super) advertise: Vec<SocketAddr>,
    /// How often to look again.
    pub(super) interval: Duration,
}

impl Reporter {
    pub(super) fn start(handle: NodeHandle, sources: Sources) -> io::Result<Self> {
        let (stop, stopped) = channel();
        thread::Builder::new().name("relay-report".into()).spawn(move || {
            // At once, what is known at once: a program that is asked for its version takes its time.
            tell(&handle, &sources, None);
            let capabilities = Capabilities {
                claudectl_version: env!("CARGO_PKG_VERSION").to_owned(),
                os: std::env::consts::OS.to_owned(),
                arch: std::env::consts::ARCH.to_owned(),
                tools: tools::probe(),
            };
            loop {
                tell(&handle, &sources, Some(&capabilities));
                match stopped.recv_timeout(sources.interval) {
                    Err(RecvTimeoutError::Timeout) => {}
                    Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
                }
            }
        })?;
        Ok(Self { _stop: stop })
    }
}

fn tell(handle: &NodeHandle, sources: &Sources, capabilities: Option<&Capabilities>) {
    let report = Report {
        sessions: None,
        capabilities: capabilities.cloned(),
        listen_addrs: told(&sources.listening, &sources.advertise, &interfaces().unwrap_or_default()),
        headroom: Some(headroom::read(&sources.dir)),
    };
    // A node that has too much to do hears it the next time.
    let _ = handle.command(Command::Report(report));
}
