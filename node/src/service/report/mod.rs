//! What a node's heartbeats say of its machine: tools, addresses and room, looked at again every interval, and the
//! sessions that live, looked at all the time.

mod addresses;
mod headroom;
mod sessions;
mod tools;

use core::net::SocketAddr;
use core::time::Duration;
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Instant;

use relay_core::message::heartbeat::Capabilities;
use relay_core::peer::{Command, Report};

use self::sessions::Watched;
use super::NodeHandle;
use crate::sessions::Sessions;

pub use addresses::{interfaces, is_reachable, told};

/// How long the start or the end of a session may go unnoticed.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How often the node is told of sessions that are the same: often enough that what they hold here is renewed long before
/// it ends, since a session renews for 90 s.
const RENEW_EVERY: Duration = Duration::from_secs(5);

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
    /// How often to look at the machine again.
    pub(super) interval: Duration,
}

/// What a node is told before it starts, so that its first heartbeat says it.
#[derive(Debug)]
pub(super) struct First {
    watched: Watched,
}

impl First {
    /// Looks at the sessions of a home.
    pub(super) fn look(sessions: Sessions) -> Self {
        Self { watched: Watched::new(sessions) }
    }

    /// What is known at once.
    pub(super) fn report(&self) -> Report {
        Report { sessions: self.watched.told(), ..Report::default() }
    }
}

impl Reporter {
    pub(super) fn start(handle: NodeHandle, sources: Sources, first: First) -> io::Result<Self> {
        let (stop, stopped) = channel();
        let probed = probe()?;
        let run = move || follow(&handle, &sources, first.watched, &probed, &stopped);
        thread::Builder::new().name("relay-report".into()).spawn(run)?;
        Ok(Self { _stop: stop })
    }
}

/// Tells the node what changes, until it is stopped.
fn follow(
    handle: &NodeHandle,
    sources: &Sources,
    mut watched: Watched,
    probed: &Receiver<Capabilities>,
    stopped: &Receiver<()>,
) {
    let mut report = Report { sessions: watched.told(), ..Report::default() };
    look(&mut report, sources);
    let mut is_news = !tell(handle, &report);
    let (mut told, mut looked) = (Instant::now(), Instant::now());
    while stopped.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
        if watched.look() {
            report.sessions = watched.told();
            is_news = true;
        }
        if let Ok(capabilities) = probed.try_recv() {
            report.capabilities = Some(capabilities);
            is_news = true;
        }
        if looked.elapsed() >= sources.interval {
            look(&mut report, sources);
            (looked, is_news) = (Instant::now(), true);
        }
        if is_news || told.elapsed() >= RENEW_EVERY {
            is_news = !tell(handle, &report);
            told = Instant::now();
        }
    }
}

/// Asks programs for their versions, which takes its time.
fn probe() -> io::Result<Receiver<Capabilities>> {
    let (found, probed) = channel();
    thread::Builder::new().name("relay-tools".into()).spawn(move || {
        // Nobody listens any more where the node has ended meanwhile.
        let _ = found.send(Capabilities {
            claudectl_version: env!("CARGO_PKG_VERSION").to_owned(),
            os: std::env::consts::OS.to_owned(),
            arch: std::env::consts::ARCH.to_owned(),
            tools: tools::probe(),
        });
    })?;
    Ok(probed)
}

/// Looks at the machine.
fn look(report: &mut Report, sources: &Sources) {
    let interfaces = interfaces().unwrap_or_default();
    report.listen_addrs = told(&sources.listening, &sources.advertise, &interfaces);
    report.headroom = Some(headroom::read(&sources.dir));
}

/// Tells the node; one that has too much to do is to hear it the next time.
fn tell(handle: &NodeHandle, report: &Report) -> bool {
    handle.command(Command::Report(report.clone())).is_ok()
}
