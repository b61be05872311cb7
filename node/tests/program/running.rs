//! A program that runs, its event lines read with a deadline.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::{Home, Ran};

/// How long anything may take before a test fails: far longer than it does.
pub(crate) const PATIENCE: Duration = Duration::from_secs(40);

/// A running `relay` that tells its events.
pub(crate) struct Running {
    child: Option<Child>,
    lines: Receiver<String>,
    /// Every line so far, for what failed.
    seen: Vec<String>,
}

impl Home {
    /// Starts a service with `--json`; its lines are read from the start.
    pub(crate) fn start(&self, args: &[&str]) -> Running {
        self.start_with(args, |_| {})
    }

    pub(crate) fn start_with(&self, args: &[&str], prepare: impl FnOnce(&mut Command)) -> Running {
        let mut command = self.command(&[args, &["--json"]].concat());
        prepare(&mut command);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = lines(child.stdout.take().unwrap());
        Running { child: Some(child), lines, seen: Vec::new() }
    }

    /// Starts `serve` on a free port and waits until it listens; gives its address.
    pub(crate) fn serve(&self, args: &[&str]) -> (Running, String) {
        let mut serve =
            self.start(&[&["serve", "--listen", "127.0.0.1:0", "--heartbeat", "1"], args].concat());
        let addr = serve.event("listening")["addr"].as_str().unwrap().to_owned();
        (serve, addr)
    }

    pub(crate) fn id(&self) -> String {
        self.run(&["identity"]).out.trim().to_owned()
    }

    /// Pairs this home, whose serve listens at `addr`, with another one through an invite.
    pub(crate) fn invite(&self, addr: &str) -> String {
        let invited = self.json(&["invite", "--addr", addr]);
        invited[0]["link"].as_str().unwrap().to_owned()
    }

    /// What the running node of this home says of a peer.
    pub(crate) fn live(&self, peer: &str) -> Value {
        let shown = self.run(&["peers", "show", peer, "--json"]);
        serde_json::from_str(&shown.out).unwrap_or_default()
    }
}

impl Running {
    /// The next event of this name; others are passed over.
    pub(crate) fn event(&mut self, name: &str) -> Value {
        self.event_where(name, |_| true)
    }

    pub(crate) fn event_where(&mut self, name: &str, fits: impl Fn(&Value) -> bool) -> Value {
        loop {
            let event = self.read(name);
            assert!(event["ts"].as_str().unwrap().ends_with('Z'), "{event}");
            if event["event"] == name && fits(&event) {
                return event;
            }
        }
    }

    /// The next line, whatever it says.
    pub(crate) fn line(&mut self) -> Value {
        self.read("line")
    }

    fn read(&mut self, wanted: &str) -> Value {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => {
                self.seen.push(line.clone());
                serde_json::from_str(&line).unwrap()
            }
            Err(RecvTimeoutError::Timeout) => panic!("no {wanted} came: {:#?}", self.seen),
            Err(RecvTimeoutError::Disconnected) => {
                let ran = self.ended();
                panic!("it ended before {wanted} came ({}): {}\n{:#?}", ran.code, ran.err, self.seen)
            }
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(self.child.as_ref().unwrap()), signal).unwrap();
    }

    /// Stops reading what it says.
    pub(crate) fn stop_reading(&mut self) {
        // The thread that reads ends with its next line, and closes the pipe with it.
        self.lines = channel().1;
    }

    /// Ends it in order.
    pub(crate) fn terminate(mut self) -> Ran {
        self.signal(Signal::TERM);
        self.ended()
    }

    /// Ends it without a word.
    pub(crate) fn kill(mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Waits for its end.
    pub(crate) fn ended(&mut self) -> Ran {
        let mut child = self.child.take().unwrap();
        let until = Instant::now() + PATIENCE;
        while child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < until, "it does not end: {:#?}", self.seen);
            std::thread::yield_now();
        }
        let mut ran = Ran::of(child.wait_with_output().unwrap());
        let rest: Vec<String> = self.lines.iter().collect();
        self.seen.extend(rest);
        ran.out = self.seen.join("\n");
        ran
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Asks again and again until it is so.
pub(crate) fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = ask() {
            return found;
        }
        assert!(Instant::now() < until, "never: {what}");
    }
}

fn lines(stdout: ChildStdout) -> Receiver<String> {
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    lines
}
