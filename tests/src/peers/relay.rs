//! Our own program.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use super::{Idler, Lines, PATIENCE};

/// Which driver runs the node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Runtime {
    /// smol.
    Smol,
    /// mio.
    Mio,
}

impl Runtime {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Smol, Self::Mio];

    /// Its name on the command line.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Smol => "smol",
            Self::Mio => "mio",
        }
    }
}

/// A home of `relay`, and how its `serve` is started.
pub struct RelayHome {
    dir: TempDir,
    program: PathBuf,
    /// Who lives here.
    pub id: String,
    runtime: Runtime,
    heartbeat: u32,
    config: String,
    listen: SocketAddr,
}

impl RelayHome {
    /// A home of the program at `program` for a node of this id.
    ///
    /// # Panics
    /// Where it cannot be made.
    #[must_use]
    pub fn new(program: impl Into<PathBuf>, id: &str, runtime: Runtime) -> Self {
        let dir = TempDir::new().expect("a home can be made");
        std::fs::create_dir_all(dir.path().join("peers")).expect("a folder for keys can be made");
        std::fs::write(dir.path().join("identity"), format!("{id}\n")).expect("an identity can be written");
        let listen = ([127, 0, 0, 1], 0).into();
        Self {
            dir,
            program: program.into(),
            id: id.into(),
            runtime,
            heartbeat: 1,
            config: String::new(),
            listen,
        }
    }

    /// Heartbeats at this interval, in seconds.
    #[must_use]
    pub const fn heartbeat(mut self, seconds: u32) -> Self {
        self.heartbeat = seconds;
        self
    }

    /// Advertises only these features.
    #[must_use]
    pub fn features(mut self, features: &[&str]) -> Self {
        let _ = writeln!(self.config, "features = {features:?}");
        self
    }

    /// Listens here, also after a restart.
    #[must_use]
    pub const fn listen(mut self, address: SocketAddr) -> Self {
        self.listen = address;
        self
    }

    /// A session of a process of its own.
    ///
    /// # Panics
    /// Where the program refuses.
    #[must_use]
    pub fn session(&self, name: &str) -> Idler {
        let process = Idler::start();
        let output = self.run(&["session", "start", name, "--pid", &process.pid().to_string()]);
        assert!(output.status.success(), "session {name}: {output:?}");
        process
    }

    /// Knows a peer's key, and where it is.
    ///
    /// # Panics
    /// Where the program refuses.
    pub fn knows(&self, peer: &str, key: &str, address: Option<SocketAddr>) {
        let mut args = vec!["peers".into(), "add".into(), peer.to_owned(), "--key".into(), key.to_owned()];
        if let Some(address) = address {
            args.extend(["--addr".into(), address.to_string()]);
        }
        let output = self.run(&args.iter().map(String::as_str).collect::<Vec<_>>());
        assert!(output.status.success(), "relay {args:?}: {output:?}");
    }

    /// Runs a command to its end.
    ///
    /// # Panics
    /// Where it cannot be started.
    #[must_use]
    pub fn run(&self, args: &[&str]) -> Output {
        self.command(args).stdin(Stdio::null()).output().expect("the program can be started")
    }

    /// Runs a command that must succeed, with `--json`, and gives the last object that it prints.
    ///
    /// # Panics
    /// Where it fails or prints no object.
    #[must_use]
    pub fn ask(&self, args: &[&str]) -> Value {
        let output = self.run(&[&["--json"], args].concat());
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "relay {args:?}: {output:?}");
        let line = text.lines().last().unwrap_or_else(|| panic!("relay {args:?} printed nothing"));
        serde_json::from_str(line).unwrap_or_else(|error| panic!("relay {args:?} printed {line:?}: {error}"))
    }

    /// Starts `relay serve` and waits until it listens.
    ///
    /// # Panics
    /// Where it does not.
    #[must_use]
    pub fn serve(&self) -> Relay {
        let (listen, heartbeat) = (self.listen.to_string(), self.heartbeat.to_string());
        std::fs::write(self.path().join("config.toml"), &self.config).expect("a config can be written");
        let args = ["--json", "serve", "--listen", &listen, "--heartbeat", &heartbeat];
        self.start(&[&args[..], &["--runtime", self.runtime.as_str()]].concat(), |relay| {
            let listening = relay.event("listening", |_| true);
            let address = listening["addr"].as_str().and_then(|address| address.parse().ok());
            relay.address = address.unwrap_or_else(|| panic!("serve says where it listens: {listening}"));
        })
    }

    /// Starts a command that goes on until it is stopped.
    ///
    /// # Panics
    /// Where it cannot be started.
    #[must_use]
    pub fn start(&self, args: &[&str], ready: impl FnOnce(&mut Relay)) -> Relay {
        let (child, lines) = Lines::of(&mut self.command(args));
        let mut relay = Relay { child, lines, address: ([0, 0, 0, 0], 0).into() };
        ready(&mut relay);
        relay
    }

    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(args).env("RELAY_HOME", self.path()).env("HOME", self.path()).env_remove("NO_COLOR");
        command
    }
}

/// A running `relay serve`, killed when dropped.
pub struct Relay {
    child: Child,
    lines: Lines,
    /// Where it listens.
    pub address: SocketAddr,
}

impl Relay {
    /// The next event of this name that `holds`.
    ///
    /// # Panics
    /// Where none comes in time.
    pub fn event(&mut self, name: &str, holds: impl FnMut(&Value) -> bool) -> Value {
        self.event_within(PATIENCE, name, holds)
            .unwrap_or_else(|| panic!("no {name} came; there was:\n{}", self.lines.seen()))
    }

    /// As [`event`](Self::event), within a time.
    pub fn event_within(
        &mut self,
        patience: Duration,
        name: &str,
        mut holds: impl FnMut(&Value) -> bool,
    ) -> Option<Value> {
        self.lines.find(patience, |line| {
            let event: Value = serde_json::from_str(line).ok()?;
            (event["event"] == name && holds(&event)).then_some(event)
        })
    }

    /// Waits for a line that has this text in it, and gives the line.
    ///
    /// # Panics
    /// Where none comes in time.
    pub fn says(&mut self, text: &str) -> String {
        let found = self.lines.find(PATIENCE, |line| line.contains(text).then(|| line.to_owned()));
        found.unwrap_or_else(|| panic!("it never said {text:?}; it said:\n{}", self.lines.seen()))
    }

    /// All that it printed so far.
    #[must_use]
    pub fn seen(&self) -> String {
        self.lines.seen()
    }

    /// Ends it as a service is ended, and waits.
    ///
    /// # Panics
    /// Where it does not end in order.
    pub fn terminate(mut self) {
        let pid = i32::try_from(self.child.id()).expect("a process id is small");
        let pid = rustix::process::Pid::from_raw(pid).expect("a process id is not 0");
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it still runs");
        let status = self.child.wait().expect("it can be waited for");
        assert!(status.success(), "serve ended with {status}:\n{}", self.lines.seen());
    }

    /// Ends it as a crash does.
    ///
    /// # Panics
    /// Where it has ended already.
    pub fn kill(mut self) {
        self.child.kill().expect("it still runs");
        let _ = self.child.wait();
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
