//! A running node: the peer link of one home, with all that stands round it.
//!
//! [`Service::start`] takes the home's lock, binds, starts the node on its event loop, and opens the control socket
//! through which every other command of the home reaches it. What the node tells is handed to everybody who listens
//! on its [`Feed`]. [`Brief`] is the small form for one command: the same node, without listeners, for one question.

mod brief;
mod desk;
mod durable;
mod engine;
mod explain;
mod feed;
mod lease;
mod line;
mod lock;
mod records;
pub mod report;
mod request;
mod resource;
pub mod signals;
mod watch;

use core::net::SocketAddr;
use core::time::Duration;
use std::ffi::OsString;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, OnceLock};
use std::thread;

use relay_core::journal::{Journal, Seq};
use relay_core::peer::{Event, Node, Report, Settings};
use relay_core::text::PeerId;
use relay_runtime::{Listener, Options};
use zeroize::Zeroizing;

pub use brief::Brief;
pub use desk::{Desk, kind, sendable};
pub use engine::{NodeEvents, NodeHandle};
pub use feed::Feed;
pub use lease::{Claimed, Granted, LeaseView, Leases, Released, keeps_none, not_found};
pub use line::{Line, Link, What};
pub use lock::Lock;
pub use records::Records;
pub use request::{Connected, Forgotten, InviteKey, Live, Pong, Reply, Request, Sent, Status};
pub use resource::Resource;

use self::report::{First, Reporter, Sources};
use self::watch::Watcher;
use crate::actor::{HomeActor, Turn};
use crate::config::Config;
use crate::control::Server;
use crate::failure::Failure;
use crate::held::Held;
use crate::home::Home;
use crate::journal::SqliteJournal;

/// Why a service ends whose home is no longer where it was.
const HOME_LOST: &str = "its home was moved away or replaced";

/// How long an answer that nobody has given yet may take once its peer has half-closed, or gone away: nobody who runs
/// this program gives one, so it is but the courtesy of a moment.
const ANSWER_TIME: Duration = Duration::from_secs(2);

/// How long a node has to end its links.
const GRACE: Duration = Duration::from_millis(1500);

/// What a node is started with.
#[derive(Debug)]
pub struct Setup {
    /// Where its identity, keys and state are.
    pub home: Home,
    /// Who it is.
    pub id: PeerId,
    /// How it behaves.
    pub config: Config,
    /// Where it listens; nowhere for a node that only dials.
    pub listen: Vec<SocketAddr>,
    /// Whether it dials the peers that it has addresses of, unasked.
    pub dial_known: bool,
    /// `XDG_RUNTIME_DIR`: where the control socket is if the home's path is too long for one.
    pub runtime_dir: Option<OsString>,
    /// Randomness that nobody else has.
    pub seed: Zeroizing<[u8; 32]>,
}

/// A running node and all round it.
#[derive(Debug)]
pub struct Service {
    desk: Desk,
    feed: Feed,
    lines: Option<Receiver<Arc<Line>>>,
    stop: Stop,
    id: PeerId,
    runtime: &'static str,
    addresses: Vec<SocketAddr>,
    warnings: Vec<String>,
    _reporter: Reporter,
    // In this order when dropped: the socket goes before the lock.
    _control: Server,
    _lock: Lock,
}

/// Ends a service, from any thread; the first reason counts.
#[derive(Clone, Debug)]
pub struct Stop {
    handle: NodeHandle,
    reason: Arc<OnceLock<String>>,
}

impl Service {
    /// Starts it. `what` is the command that it runs for.
    ///
    /// # Errors
    /// The home is taken, an address cannot be had, or the system refuses something else.
    pub fn start(setup: Setup, what: &str) -> Result<Self, Failure> {
        let held = Arc::new(Held::take(&setup.home)?);
        let lock = Lock::take(&setup.home, what)?;
        let listeners = setup.listen.iter().map(|addr| bind(*addr)).collect::<Result<Vec<_>, _>>()?;
        let addresses: Vec<_> = listeners.iter().filter_map(Listener::tcp_address).collect();
        let (id, runtime, home) = (setup.id.clone(), setup.config.runtime.as_str(), setup.home.clone());
        let runtime_dir = setup.runtime_dir.clone();
        let sources = Sources {
            dir: home.dir().to_owned(),
            listening: addresses.clone(),
            advertise: setup.config.advertise.clone(),
            interval: setup.config.heartbeat,
        };
        let keys = home.keys();
        // Before the keys are read, so that no change is missed.
        let watcher = Watcher::new(keys.dir()).map_err(|error| Failure::io("watch", keys.dir(), &error))?;
        keys.close_redeemed()?;
        let first = First::look(home.sessions());
        let (launched, events) =
            launch(setup, listeners, &addresses, &held, Keeping::Journal, &first.report())?;
        let status = Status {
            id: id.to_string(),
            listen: addresses.clone(),
            runtime: runtime.to_owned(),
            pid: std::process::id(),
            command: what.to_owned(),
        };
        let desk = Desk::new(&launched, keys, held, status);
        let Launched { handle, warnings, .. } = launched;
        let stop = Stop { handle: handle.clone(), reason: Arc::default() };
        let feed = Feed::new();
        let control = Server::start(&home, runtime_dir.as_deref(), desk.clone(), feed.clone())
            .inspect_err(|_| stop.now("no control socket"))?;
        let reporter = Reporter::start(handle, sources, first).map_err(|error| thread_failed(&error))?;
        watcher.start(desk.clone(), stop.clone()).map_err(|error| thread_failed(&error))?;
        // Before the first event is passed on, so that none is missed.
        let lines = Some(feed.listen());
        let service = Self {
            desk,
            feed,
            lines,
            stop,
            id,
            runtime,
            addresses,
            warnings,
            _reporter: reporter,
            _control: control,
            _lock: lock,
        };
        service.pass_on(events).map_err(|error| thread_failed(&error))?;
        Ok(service)
    }

    /// What it was asked to say once it takes connections: a line for each listener.
    pub fn listening(&self) -> impl Iterator<Item = Line> {
        self.addresses.iter().map(|addr| {
            Line::now(What::Listening {
                service: "link",
                addr: *addr,
                id: self.id.to_string(),
                runtime: self.runtime,
            })
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// What was odd about the key files, each a line for people.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// What it tells, from its first moment on; nothing the second time.
    pub fn take_lines(&mut self) -> impl Iterator<Item = Arc<Line>> + use<> {
        self.lines.take().into_iter().flatten()
    }

    /// What it tells, from now on.
    #[must_use]
    pub const fn feed(&self) -> &Feed {
        &self.feed
    }

    /// What carries requests out.
    #[must_use]
    pub const fn desk(&self) -> &Desk {
        &self.desk
    }

    /// What ends it.
    #[must_use]
    pub fn stop(&self) -> Stop {
        self.stop.clone()
    }

    /// Waits until the node has ended; the last of its lines says why.
    ///
    /// # Errors
    /// Its loop failed, or its home went away.
    pub fn join(self) -> Result<(), Failure> {
        if self.stop.handle.join() {
            return if self.stop.reason() == Some(HOME_LOST) { self.desk.hold() } else { Ok(()) };
        }
        Err(Failure::refused("the node's event loop failed", "Start it again; relay serve -vv says more."))
    }

    /// Hands the node's events to everybody who listens, on a thread of its own.
    fn pass_on(&self, events: NodeEvents) -> std::io::Result<()> {
        let (feed, stop, desk) = (self.feed.clone(), self.stop.clone(), self.desk.clone());
        thread::Builder::new().name("relay-events".into()).spawn(move || {
            while let Some(event) = events.recv() {
                log(&event);
                if let Event::Journal { failing } = event {
                    desk.journal(failing);
                }
                if let Some(what) = What::of(&event) {
                    feed.tell(Line::now(what));
                }
            }
            desk.stopped();
            if events.dropped() > 0 {
                tracing::warn!(dropped = events.dropped(), "events were lost, since they came too fast");
            }
            let reason = stop.reason().unwrap_or("the event loop ended").to_owned();
            feed.tell(Line::now(What::Stopped { reason }));
            feed.end();
        })?;
        Ok(())
    }
}

impl Stop {
    /// Ends the service in order.
    pub fn now(&self, reason: &str) {
        let _ = self.reason.set(reason.to_owned());
        self.handle.shutdown(GRACE);
    }

    /// Why it was ended, where it was.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        self.reason.get().map(String::as_str)
    }
}

/// What happens goes to the log as well: messages one by one for those who trace.
fn log(event: &Event) {
    match What::of(event) {
        Some(what @ What::Message { .. }) => tracing::trace!("{what}"),
        Some(what @ (What::NotStored { .. } | What::Journal { state: "failing" })) => {
            tracing::error!("{what}")
        }
        Some(what @ What::Journal { .. }) => tracing::warn!("{what}"),
        Some(what) => tracing::debug!("{what}"),
        None => {}
    }
}

/// What a node keeps over its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Keeping {
    /// Nothing: it answers one command, and is no lease authority.
    Nothing,
    /// What the journal of its home holds.
    Journal,
}

struct Launched {
    handle: NodeHandle,
    turn: Turn,
    authority: Option<PeerId>,
    warnings: Vec<String>,
}

/// Makes the node and starts it on its loop.
fn launch(
    setup: Setup,
    listeners: Vec<Listener>,
    addresses: &[SocketAddr],
    held: &Arc<Held>,
    keeping: Keeping,
    first: &Report,
) -> Result<(Launched, NodeEvents), Failure> {
    let Setup { home, id, config, listen: _, dial_known, runtime_dir: _, seed } = setup;
    let Records { peers, pending, warnings } = Records::read(&home.keys())?;
    let mut settings = Settings::new(id);
    settings.features = config.features;
    settings.heartbeat = config.heartbeat;
    settings.max_links = config.max_peers.into();
    settings.dial_known = dial_known;
    settings.answer_time = ANSWER_TIME;
    // A wildcard can be dialled back from anywhere, so it says most.
    let wildcard = addresses.iter().find(|addr| addr.ip().is_unspecified());
    settings.listening = wildcard.or_else(|| addresses.first()).copied();
    let authority = config.authority.filter(|authority| *authority != settings.id);
    settings.authority.clone_from(&authority);
    settings.boot = durable::boot();
    let mut node = Node::new(settings, *seed, peers, pending).reporting(first);
    let journal = match keeping {
        Keeping::Nothing => None,
        Keeping::Journal => Some(durable::restore(&mut node, &home)?),
    };
    let turn = Turn::default();
    let actor = HomeActor::at(home.dir()).in_turn(Turn::clone(&turn)).while_held(Arc::clone(held));
    let newest = journal.as_ref().map_or(Seq::NONE, Journal::newest);
    let epoch = journal.as_ref().map_or(1, SqliteJournal::epoch);
    let journal = journal.map(|journal| Box::new(journal) as Box<dyn Journal>);
    let options = Options { actor: Box::new(actor), journal, epoch, ..Options::default() };
    let started = config.runtime.start(node, newest, listeners, options);
    let (handle, events) = started.map_err(|error| {
        let what = format!("the event loop {} cannot be started: {error}", config.runtime.as_str());
        Failure::refused(what, "Try the other one: --runtime smol|mio.")
    })?;
    Ok((Launched { handle, turn, authority, warnings }, events))
}

fn bind(addr: SocketAddr) -> Result<Listener, Failure> {
    Listener::tcp(addr).map_err(|error| {
        let hint = if error.kind() == std::io::ErrorKind::AddrInUse {
            "Another program listens there. Name another port: --listen IP:PORT (port 0 takes a free one)."
        } else {
            "Name an address of this machine: --listen IP:PORT."
        };
        Failure::refused(format!("cannot listen on {addr}: {error}"), hint)
    })
}

fn thread_failed(error: &std::io::Error) -> Failure {
    Failure::refused(
        format!("a thread cannot be started: {error}"),
        "This machine is short of something; try again.",
    )
}
