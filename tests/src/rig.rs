//! Drivers as the suite sees them.

mod mio;
mod smol;

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use relay_core::journal::Seq;
use relay_core::machine::Target;
use relay_mio::{Events, Handle, Listener, Options, RecvError};
use tempfile::TempDir;

pub use self::mio::Mio;
pub use self::smol::Smol;

use crate::client::Client;
use crate::disk::Disk;
use crate::probe::{Ask, Probe, Seen};

/// How long anything may take before a test says that it does not happen.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A driver.
pub trait Rig: Send + Sync {
    /// What it is called.
    fn name(&self) -> &'static str;

    /// The driver's own `start`.
    ///
    /// # Errors
    /// As the driver says.
    fn start(
        &self,
        probe: Probe,
        newest: Seq,
        listeners: Vec<Listener>,
        options: Options,
    ) -> io::Result<(Handle<Probe>, Events<Seen>)>;
}

/// Every driver there is.
pub const RIGS: [&dyn Rig; 2] = [&Mio, &Smol];

/// What connections run over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(clippy::exhaustive_enums)]
pub enum Over {
    /// TCP on the loopback.
    Tcp,
    /// A unix socket.
    Unix,
}

/// Where something listens.
#[derive(Clone, Debug)]
#[allow(clippy::exhaustive_enums)]
pub enum Place {
    /// A TCP address.
    Tcp(SocketAddr),
    /// The path of a unix socket.
    Unix(PathBuf),
}

impl Place {
    /// The same, to be dialled.
    #[must_use]
    pub fn target(&self) -> Target {
        match self {
            Self::Tcp(address) => Target::tcp(*address),
            Self::Unix(path) => Target::unix(path.to_str().expect("the suite makes its own paths")),
        }
    }
}

/// A probe under a driver, with its journal. It ends with the value.
pub struct Running {
    /// The owner's handle.
    pub handle: Handle<Probe>,
    /// What the probe tells.
    pub events: Events<Seen>,
    /// Where it listens.
    pub place: Place,
    /// Its journal.
    pub disk: Disk,
    name: &'static str,
    _home: TempDir,
}

impl Running {
    /// Starts a probe.
    ///
    /// # Panics
    /// Where the system has no socket or thread left.
    #[must_use]
    pub fn start(rig: &dyn Rig, over: Over) -> Self {
        Self::with(rig, over, Options::default())
    }

    /// Starts a probe, its journal excepted as `options` say.
    ///
    /// # Panics
    /// As for [`start`](Self::start).
    #[must_use]
    pub fn with(rig: &dyn Rig, over: Over, mut options: Options) -> Self {
        relay_mio::raise_descriptor_limit();
        let home = TempDir::new().expect("the system has a place for temporary files");
        let (listener, place) = listen(over, &home);
        let disk = Disk::default();
        options.journal = Some(Box::new(disk.clone()));
        let (handle, events) = rig
            .start(Probe::default(), Seq::NONE, vec![listener], options)
            .expect("the system has a thread and a descriptor for a driver");
        Self { handle, events, place, disk, name: rig.name(), _home: home }
    }

    /// Connects.
    #[must_use]
    pub fn client(&self) -> Client {
        Client::connect(&self.place)
    }

    /// Asks the probe.
    ///
    /// # Panics
    /// Where there is no answer.
    pub fn ask(&self, ask: Ask) -> u64 {
        self.handle.call(ask, PATIENCE).expect("the driver runs")
    }

    /// A gauge.
    ///
    /// # Panics
    /// Where there is none of that name.
    #[must_use]
    pub fn gauge(&self, name: &str) -> u64 {
        let gauges = self.handle.gauges(PATIENCE).expect("the driver runs");
        gauges.iter().find(|(other, _)| *other == name).expect("the suite asks for gauges that there are").1
    }

    /// Reads events up to the first for which `last` holds, and returns that one.
    ///
    /// # Panics
    /// Where it does not come.
    pub fn until(&self, last: impl Fn(&Seen) -> bool) -> Seen {
        let mut before = VecDeque::new();
        loop {
            match self.events.recv_timeout(PATIENCE) {
                Ok(seen) if last(&seen) => return seen,
                Ok(seen) => {
                    before.push_front(seen);
                    before.truncate(10);
                }
                Err(error @ (RecvError::Empty | RecvError::Ended)) => {
                    panic!("{}: {error:?}; the last told, newest first: {before:?}", self.name)
                }
            }
        }
    }

    /// Asks until `there` holds of a gauge.
    ///
    /// # Panics
    /// Where it never does.
    pub fn until_gauge(&self, name: &str, there: impl Fn(u64) -> bool) {
        let until = Instant::now() + PATIENCE;
        while !there(self.gauge(name)) {
            assert!(Instant::now() < until, "{}: {name} stays at {}", self.name, self.gauge(name));
            thread::yield_now();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.disk.fill(false);
        self.disk.release();
        self.handle.shutdown(Duration::ZERO);
        let orderly = self.handle.join();
        assert!(orderly || thread::panicking(), "the thread of {} panicked", self.name);
    }
}

/// Listens at a place of its own.
///
/// # Panics
/// Where the system has no socket left.
#[must_use]
pub fn listen(over: Over, home: &TempDir) -> (Listener, Place) {
    match over {
        Over::Tcp => {
            let listener = Listener::tcp(SocketAddr::from(([127, 0, 0, 1], 0)));
            let listener = listener.expect("the loopback has a free port");
            let address = listener.tcp_address().expect("it is a TCP listener");
            (listener, Place::Tcp(address))
        }
        Over::Unix => {
            let path = home.path().join("probe.sock");
            (Listener::unix(&path).expect("the directory is new"), Place::Unix(path))
        }
    }
}
