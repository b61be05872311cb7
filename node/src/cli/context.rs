//! What every command works with: the home, the configuration, the output and the machine.

use core::net::{IpAddr, SocketAddr};
use std::io::Read;
use std::path::PathBuf;
use std::time::SystemTime;

use relay_core::peer::pairing::PairingCode;
use relay_core::text::PeerId;
use zeroize::Zeroizing;

use super::{Globals, Output, System, World};
use crate::config::{self, Config};
use crate::failure::Failure;
use crate::home::Home;
use crate::service::Setup;

/// The surroundings of one command, after the global options were read.
pub struct Context<'c> {
    /// The home that it works on.
    pub home: Home,
    /// The configuration file, and whether the user named it.
    pub config_place: (PathBuf, bool),
    /// Its answer and its talk.
    pub out: Output<'c>,
    /// Where secrets may come from.
    pub stdin: &'c mut dyn Read,
    /// Whether that is a terminal.
    pub stdin_is_terminal: bool,
    system: &'c mut dyn System,
}

impl core::fmt::Debug for Context<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Context").field("home", &self.home).finish_non_exhaustive()
    }
}

impl<'c> Context<'c> {
    pub(super) fn new(globals: &Globals, world: &'c mut World<'_>) -> Result<Self, Failure> {
        let home = Home::locate(globals.home.as_deref(), |name| world.var(name))?;
        let colour = world.colour(globals.color, world.terminals.stderr);
        let mut out =
            Output::new(globals, world.terminals.stdout, colour, &mut *world.stdout, &mut *world.stderr);
        out.detail(1, &format!("home: {}", home.dir().display()));
        Ok(Self {
            config_place: config::place(globals.config.as_deref(), home.config_path()),
            home,
            out,
            stdin: &mut *world.stdin,
            stdin_is_terminal: world.terminals.stdin,
            system: &mut *world.system,
        })
    }

    /// The configuration.
    ///
    /// # Errors
    /// If the file is wrong, or named and missing.
    pub fn config(&mut self) -> Result<Config, Failure> {
        let (path, named) = &self.config_place;
        self.out.detail(1, &format!("configuration: {}", path.display()));
        Config::load(path, *named)
    }

    /// This node's peer id, made now if it had none.
    ///
    /// # Errors
    /// If it cannot be read or made.
    pub fn identity(&mut self) -> Result<PeerId, Failure> {
        if let Some(id) = self.home.identity()? {
            return Ok(id);
        }
        let mut fresh = [0; 4];
        self.random(&mut fresh)?;
        let id = self.home.identity_or_new(&self.system.host_name(), fresh)?;
        self.out.detail(1, &format!("this node is now known as {id}"));
        Ok(id)
    }

    /// A new pairing code.
    ///
    /// # Errors
    /// If the machine gives no random bytes.
    pub fn new_code(&mut self) -> Result<PairingCode, Failure> {
        let mut bytes = Zeroizing::new([0; PairingCode::BYTES]);
        self.random(&mut *bytes)?;
        Ok(PairingCode::from_bytes(*bytes))
    }

    /// What a node of this home is started with.
    ///
    /// # Errors
    /// There is no identity and none can be made, or the machine gives no random bytes.
    pub fn setup(
        &mut self,
        config: Config,
        listen: Vec<SocketAddr>,
        dial_known: bool,
    ) -> Result<Setup, Failure> {
        let id = self.identity()?;
        let mut seed = Zeroizing::new([0; 32]);
        self.random(&mut *seed)?;
        Ok(Setup { home: self.home.clone(), id, config, listen, dial_known, seed })
    }

    /// The wall clock.
    #[must_use]
    pub fn now(&self) -> SystemTime {
        self.system.now()
    }

    /// The addresses of this machine that others may dial, IPv4 first: no loopback, link-local or multicast ones.
    ///
    /// # Errors
    /// If the machine does not tell them.
    pub fn reachable_addresses(&self) -> Result<Vec<IpAddr>, Failure> {
        let all = self.system.addresses().map_err(|error| {
            Failure::refused(
                format!("the network interfaces cannot be listed: {error}"),
                "Name the address: --addr IP:PORT.",
            )
        })?;
        let mut reachable: Vec<_> = all.into_iter().filter(|ip| is_reachable(*ip)).collect();
        // Stable: within a family the system's order stays.
        reachable.sort_by_key(IpAddr::is_ipv6);
        Ok(reachable)
    }

    fn random(&mut self, bytes: &mut [u8]) -> Result<(), Failure> {
        self.system.random(bytes).map_err(|error| {
            Failure::refused(format!("this machine gives no random bytes: {error}"), "Try again.")
        })
    }
}

fn is_reachable(ip: IpAddr) -> bool {
    let link_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    !(link_local || ip.is_loopback() || ip.is_multicast() || ip.is_unspecified())
}
