//! claudectl, a relay that other people wrote and run.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tempfile::TempDir;

use super::{Idler, Lines, PATIENCE, free_address};
use serde_json::json;

/// Which release.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Version {
    /// 0.92.4: protocol version 1.
    Current,
    /// 0.80.0, from before there was a protocol version.
    BeforeProto,
}

impl Version {
    const fn number(self) -> &'static str {
        match self {
            Self::Current => "0.92.4",
            Self::BeforeProto => "0.80.0",
        }
    }

    /// The program, where `tests/peers/install` has put it.
    #[must_use]
    pub fn program(self) -> Option<PathBuf> {
        let cache = std::env::var_os("RELAY_CACHE").map(PathBuf::from).or_else(|| {
            let xdg = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
            let home = || std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache"));
            Some(xdg.or_else(home)?.join("relay"))
        })?;
        let program = cache.join(format!("peers/claudectl-{}/bin/claudectl", self.number()));
        program.is_file().then_some(program)
    }
}

/// A home of claudectl, and the address that its relay listens on.
pub struct ClaudectlHome {
    dir: TempDir,
    program: PathBuf,
    /// Who lives here.
    pub id: String,
    /// Where its `relay serve` listens.
    pub address: SocketAddr,
}

impl ClaudectlHome {
    /// A home with an identity, heartbeats every `heartbeat` seconds and nothing that leaves loopback.
    ///
    /// # Panics
    /// Where the program is not installed or the home cannot be made.
    #[must_use]
    pub fn new(version: Version, id: &str, heartbeat: u32) -> Self {
        let program = version.program().expect("tests that need the peer run only where it is installed");
        let dir = TempDir::new().expect("a home can be made");
        let address = free_address();
        let home = Self { dir, program, id: id.into(), address };
        let config = home.path().join(".config/claudectl");
        std::fs::create_dir_all(&config).expect("a folder for its config can be made");
        std::fs::create_dir_all(home.peers()).expect("a folder for its keys can be made");
        std::fs::write(home.peers().join("../identity"), format!("{id}\n"))
            .expect("an identity can be written");
        let text = format!(
            "[relay]\nlisten_port = {}\nlisten_addr = \"127.0.0.1\"\nlan_announce = false\n\
             heartbeat_interval_secs = {heartbeat}\nmax_peers = 255\n",
            address.port()
        );
        std::fs::write(config.join("config.toml"), text).expect("a config can be written");
        home
    }

    /// Asks this peer for the fleet's leases; its own id makes it the one that keeps them.
    ///
    /// # Panics
    /// Where its config cannot be written.
    #[must_use]
    pub fn authority(self, peer: &str) -> Self {
        let path = self.path().join(".config/claudectl/config.toml");
        let text = std::fs::read_to_string(&path).expect("its config can be read");
        std::fs::write(path, format!("{text}lease_authority = \"{peer}\"\n"))
            .expect("its config can be written");
        self
    }

    /// A session of a process of its own, as its own programs make them.
    ///
    /// # Panics
    /// Where the file of it cannot be written.
    #[must_use]
    pub fn session(&self, name: &str) -> Idler {
        let process = Idler::start();
        let dir = self.path().join(".claude/sessions");
        std::fs::create_dir_all(&dir).expect("a folder for its sessions can be made");
        let started = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is past 1970");
        let millis = u64::try_from(started.as_millis()).expect("the clock is before the year 500000000");
        let session =
            json!({"pid": process.pid(), "sessionId": name, "cwd": self.path(), "startedAt": millis});
        std::fs::write(dir.join(format!("{}.json", process.pid())), session.to_string())
            .expect("a session can be written");
        process
    }

    /// Knows a peer's key, and where it is.
    ///
    /// # Panics
    /// Where the files cannot be written.
    pub fn knows(&self, peer: &str, key: &str, address: Option<SocketAddr>) {
        std::fs::write(self.peers().join(format!("{peer}.key")), key).expect("a key can be written");
        if let Some(address) = address {
            let entry = format!("\"addr\":\"{address}\",\"last_seen\":1");
            let meta = format!("{{{entry},\"addrs\":[{{{entry}}}]}}");
            std::fs::write(self.peers().join(format!("{peer}.meta")), meta)
                .expect("an address can be written");
        }
    }

    /// Starts `claudectl relay serve` and waits until it listens.
    ///
    /// # Panics
    /// Where it does not.
    #[must_use]
    pub fn serve(&self) -> Claudectl {
        let mut peer = self.start(&["relay", "serve"]);
        peer.says("Relay listening on");
        peer
    }

    /// Starts a command that goes on until it is stopped.
    ///
    /// # Panics
    /// Where it cannot be started.
    #[must_use]
    pub fn start(&self, args: &[&str]) -> Claudectl {
        let (child, lines) = Lines::of(&mut self.command(args));
        Claudectl { child, lines }
    }

    /// Runs a command to its end.
    ///
    /// # Panics
    /// Where it cannot be started.
    #[must_use]
    pub fn run(&self, args: &[&str]) -> Output {
        self.command(args).stdin(Stdio::null()).output().expect("the peer can be started")
    }

    /// A file that it keeps of a peer: `key`, `meta`, `caps`, `headroom`, `beat`.
    #[must_use]
    pub fn file(&self, peer: &str, kind: &str) -> Option<String> {
        std::fs::read_to_string(self.peers().join(format!("{peer}.{kind}"))).ok()
    }

    /// Waits until `holds` gives something. Its files are all that it shows, so they are looked at again and again.
    ///
    /// # Panics
    /// Where that does not come about in time.
    pub fn until<T>(&self, what: &str, mut holds: impl FnMut(&Self) -> Option<T>) -> T {
        let (_keep, pause) = channel::<()>();
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            if let Some(found) = holds(self) {
                return found;
            }
            let _ = pause.recv_timeout(Duration::from_millis(50));
        }
        panic!("the peer never showed {what}");
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn peers(&self) -> PathBuf {
        self.path().join(".claudectl/relay/peers")
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(args).env("HOME", self.path()).env_remove("XDG_CONFIG_HOME").current_dir(self.path());
        command
    }
}

/// A running command of claudectl, killed when dropped.
pub struct Claudectl {
    child: Child,
    lines: Lines,
}

impl Claudectl {
    /// Waits for a line that has this text in it, and gives the line.
    ///
    /// # Panics
    /// Where none comes in time.
    pub fn says(&mut self, text: &str) -> String {
        self.says_within(PATIENCE, text)
    }

    /// As [`says`](Self::says), within a time.
    ///
    /// # Panics
    /// Where none comes in time.
    pub fn says_within(&mut self, patience: Duration, text: &str) -> String {
        let found = self.lines.find(patience, |line| line.contains(text).then(|| line.to_owned()));
        found.unwrap_or_else(|| panic!("the peer never said {text:?}; it said:\n{}", self.lines.seen()))
    }

    /// Ends it as a crash does.
    ///
    /// # Panics
    /// Where it has ended already.
    pub fn kill(mut self) {
        self.child.kill().expect("the peer still runs");
        let _ = self.child.wait();
    }
}

impl Drop for Claudectl {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
