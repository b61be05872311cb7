//! What a command sees of the world: its streams, its variables and the machine it runs on. All of it can be
//! replaced in a test.

use core::net::IpAddr;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal, Read, Write};
use std::time::SystemTime;

use super::When;

/// The surroundings of one run.
pub struct World<'w> {
    /// The environment variables.
    pub vars: BTreeMap<OsString, OsString>,
    /// Which streams are terminals.
    pub terminals: Terminals,
    /// Where secrets may come from.
    pub stdin: &'w mut dyn Read,
    /// Where the answer goes.
    pub stdout: &'w mut dyn Write,
    /// Where the talk goes.
    pub stderr: &'w mut dyn Write,
    /// The machine.
    pub system: &'w mut dyn System,
}

impl core::fmt::Debug for World<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        // Variables may hold secrets.
        f.debug_struct("World").field("terminals", &self.terminals).finish_non_exhaustive()
    }
}

impl World<'_> {
    /// A variable; an empty one counts as none.
    #[must_use]
    pub fn var(&self, name: &str) -> Option<&OsStr> {
        self.vars.get(OsStr::new(name)).map(OsString::as_os_str).filter(|value| !value.is_empty())
    }

    /// Whether to use colour on a stream.
    #[must_use]
    pub fn colour(&self, when: When, terminal: bool) -> bool {
        match when {
            When::Always => true,
            When::Never => false,
            When::Auto => terminal && self.var("NO_COLOR").is_none(),
        }
    }
}

/// Which streams are terminals.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Terminals {
    /// stdin.
    pub stdin: bool,
    /// stdout.
    pub stdout: bool,
    /// stderr.
    pub stderr: bool,
}

impl Terminals {
    /// Those of this process.
    #[must_use]
    pub fn of_this_process() -> Self {
        Self {
            stdin: io::stdin().is_terminal(),
            stdout: io::stdout().is_terminal(),
            stderr: io::stderr().is_terminal(),
        }
    }
}

/// The addresses of a machine's network interfaces, in the system's order.
pub type Addresses = Vec<IpAddr>;

/// What a command asks of the machine it runs on.
pub trait System {
    /// The wall clock.
    fn now(&self) -> SystemTime;
    /// Fills `bytes` with random ones, fit for keys.
    ///
    /// # Errors
    /// If the system has none to give.
    fn random(&mut self, bytes: &mut [u8]) -> io::Result<()>;
    /// The machine's name.
    fn host_name(&self) -> String;
    /// The addresses of its network interfaces.
    ///
    /// # Errors
    /// What the operating system said.
    fn addresses(&self) -> io::Result<Addresses>;
}

/// The machine that this process runs on.
#[derive(Clone, Copy, Debug)]
pub struct ThisSystem;

impl System for ThisSystem {
    fn now(&self) -> SystemTime {
        SystemTime::now()
    }

    fn random(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        getrandom::fill(bytes).map_err(|error| io::Error::other(error.to_string()))
    }

    fn host_name(&self) -> String {
        rustix::system::uname().nodename().to_string_lossy().into_owned()
    }

    fn addresses(&self) -> io::Result<Addresses> {
        crate::service::report::interfaces()
    }
}
