//! What every command works with: the home, the configuration, the output and the machine.

use core::net::{IpAddr, SocketAddr};
use std::ffi::OsString;
use std::io::Read;
use std::path::PathBuf;
use std::time::SystemTime;

use relay_core::peer::pairing::PairingCode;
use relay_core::secret::encode_hex;
use relay_core::text::PeerId;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use zeroize::Zeroizing;

use super::{Globals, Output, System, World, log};
use crate::config::{self, Config};
use crate::control::Client;
use crate::failure::Failure;
use crate::home::Home;
use crate::service::report::is_reachable;
use crate::service::{Brief, Request, Setup, Status};

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
    globals: Globals,
    colour: bool,
    runtime_dir: Option<OsString>,
    /// Whether any of the three streams is a terminal.
    on_a_terminal: bool,
    /// What the command ends with where nothing failed.
    code: u8,
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
        let runtime_dir = world.var("XDG_RUNTIME_DIR").map(ToOwned::to_owned);
        let mut out =
            Output::new(globals, world.terminals.stdout, colour, &mut *world.stdout, &mut *world.stderr);
        out.detail(1, &format!("home: {}", home.dir().display()));
        Ok(Self {
            config_place: config::place(globals.config.as_deref(), home.config_path()),
            home,
            out,
            stdin: &mut *world.stdin,
            stdin_is_terminal: world.terminals.stdin,
            globals: globals.clone(),
            colour,
            runtime_dir,
            on_a_terminal: world.terminals.stdin || world.terminals.stdout || world.terminals.stderr,
            code: 0,
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

    /// A word that nobody has used: 16 hex digits.
    ///
    /// # Errors
    /// If the machine gives no random bytes.
    pub fn fresh_word(&mut self) -> Result<String, Failure> {
        let mut bytes = [0; 8];
        self.random(&mut bytes)?;
        Ok(encode_hex(&bytes))
    }

    /// A session of this command's own: one name for two commands would be one owner.
    ///
    /// # Errors
    /// If the machine gives no random bytes.
    pub fn own_session(&mut self) -> Result<String, Failure> {
        let host = self.system.host_name();
        let short = host.split('.').next().unwrap_or_default();
        let clean = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
        let short: String = short.chars().take(64).map(clean).collect();
        Ok(format!("cli-{short}-{}", &self.fresh_word()?[..8]))
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
        let runtime_dir = self.runtime_dir.clone();
        Ok(Setup { home: self.home.clone(), id, config, listen, dial_known, runtime_dir, seed })
    }

    /// Starts the log of a service.
    pub(super) fn log(&self, config: &Config) {
        log::start(&self.globals, config, self.colour);
    }

    /// The node that runs in this home, where one does.
    ///
    /// # Errors
    /// There is a control socket that cannot be used.
    pub fn serve(&self) -> Result<Option<Client>, Failure> {
        Client::find(&self.home)
    }

    /// Who and where the node is that runs in this home, where one does.
    ///
    /// # Errors
    /// It does not say.
    pub fn status(&self) -> Result<Option<Status>, Failure> {
        let Some(mut serve) = self.serve()? else { return Ok(None) };
        read(&serve.ask(&Request::Status)?).map(Some)
    }

    /// Asks the node that runs in this home; else one that is started for this question alone.
    ///
    /// # Errors
    /// What the node refused.
    pub fn ask<T: DeserializeOwned>(&mut self, request: &Request) -> Result<T, Failure> {
        let answer = match self.serve()? {
            Some(mut serve) => {
                self.out.detail(1, "through the relay serve that runs here");
                serve.ask(request)?
            }
            None => {
                let config = self.config()?;
                let setup = self.setup(config, Vec::new(), false)?;
                Brief::start(setup)?.ask(request.clone())?
            }
        };
        read(&answer)
    }

    /// Has the node that runs in this home, where one does, read the key files again before anything is said.
    ///
    /// # Errors
    /// It did not.
    pub fn keys_changed(&mut self) -> Result<(), Failure> {
        self.tell(&Request::Reload)
    }

    /// As [`keys_changed`](Self::keys_changed), where it is the key of the open invite alone.
    ///
    /// # Errors
    /// As for [`keys_changed`](Self::keys_changed).
    pub fn invite_changed(&mut self) -> Result<(), Failure> {
        self.tell(&Request::Pending)
    }

    fn tell(&mut self, request: &Request) -> Result<(), Failure> {
        match self.serve()? {
            Some(mut serve) => serve.ask(request).map(|_| ()),
            None => Ok(()),
        }
    }

    /// Whether somebody sits at a terminal that this command reads or writes.
    #[must_use]
    pub(super) const fn is_on_a_terminal(&self) -> bool {
        self.on_a_terminal
    }

    /// Has this command end with a code that is not its own.
    pub(super) const fn end_with(&mut self, code: u8) {
        self.code = code;
    }

    pub(super) const fn code(&self) -> u8 {
        self.code
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

fn read<T: DeserializeOwned>(answer: &RawValue) -> Result<T, Failure> {
    serde_json::from_str(answer.get()).map_err(|_| {
        Failure::refused("the relay serve that runs here answered something else", "Restart relay serve.")
    })
}
