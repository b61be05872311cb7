//! The command of a guard: a process that is there from the start, so that it can hold the session that claims, and
//! becomes the command once the lease is held.
//!
//! It is this very program under a hidden name. It waits on its stdin, which is one end of a socket pair; the word to go
//! carries the stdin that the command is to have. Where the socket closes without that word, because nobody got the lease
//! or nobody is left to watch it, the process ends and the command has never run.

use std::ffi::{OsStr, OsString};
use std::io::{self, IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::Sender;
use std::thread;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid};
use serde::{Deserialize, Serialize};

use super::Event;
use crate::sessions::{Born, Life, born, family, life};

/// The hidden name under which this program waits to become a command.
const HIDDEN: &str = "__become";
/// Longest word to go, in bytes.
const MAX_WORD: usize = 4096;
/// What shells end with where a command is not there, and where it cannot be run.
const NOT_FOUND: u8 = 127;
const NOT_RUN: u8 = 126;

/// The variables that a command finds about its lease.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Papers {
    /// `RELAY_LEASE_ID`.
    pub lease_id: String,
    /// `RELAY_FENCING_TOKEN`; unset where the authority gives none.
    pub fencing_token: Option<u64>,
}

impl Papers {
    /// Puts them into a command's environment.
    pub(super) fn put(&self, command: &mut Command) {
        command.env("RELAY_LEASE_ID", &self.lease_id);
        match self.fencing_token {
            Some(token) => command.env("RELAY_FENCING_TOKEN", token.to_string()),
            // One of a guard outside is not ours.
            None => command.env_remove("RELAY_FENCING_TOKEN"),
        };
    }
}

/// A process that waits to become the command, or is it.
#[derive(Debug)]
pub struct Held {
    child: Child,
    /// Until the word to go.
    gate: Option<UnixStream>,
    own_group: bool,
}

impl Held {
    /// Starts it: in a process group of its own, or in the terminal's where there is one, so that job control works.
    ///
    /// # Errors
    /// No process can be started.
    pub fn start(command: &[OsString], own_group: bool) -> io::Result<Self> {
        let (gate, theirs) = UnixStream::pair()?;
        let mut become_it = Command::new(this_program()?);
        become_it.arg0("relay").arg(HIDDEN).args(command).stdin(OwnedFd::from(theirs));
        if own_group {
            become_it.process_group(0);
        }
        Ok(Self { child: become_it.spawn()?, gate: Some(gate), own_group })
    }

    /// Its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Tells when it has ended. It is waited for later, so that its number stays its own until then.
    pub(super) fn watch(&self, told: Sender<Event>) -> io::Result<()> {
        let pid = self.number();
        let run = move || {
            let until_it_ends = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            while matches!(waitid(WaitId::Pid(pid), until_it_ends), Err(rustix::io::Errno::INTR)) {}
            // Nobody listens where the guard has ended.
            let _ = told.send(Event::Ended);
        };
        thread::Builder::new().name("relay-child".into()).spawn(run)?;
        Ok(())
    }

    /// Lets it become the command.
    ///
    /// # Errors
    /// It is not there any more.
    pub(super) fn go(&mut self, papers: &Papers) -> io::Result<()> {
        let Some(gate) = self.gate.take() else { return Ok(()) };
        let word = serde_json::to_vec(papers)?;
        debug_assert!(word.len() <= MAX_WORD, "a lease's id is short");
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut carried = SendAncillaryBuffer::new(&mut space);
        let stdin = [io::stdin()];
        let fds = stdin.each_ref().map(AsFd::as_fd);
        let fits = carried.push(SendAncillaryMessage::ScmRights(&fds));
        debug_assert!(fits, "there is room for one descriptor");
        sendmsg(&gate, &[IoSlice::new(&word)], &mut carried, SendFlags::empty())?;
        Ok(())
    }

    /// Sends a signal to all of it: its group, or where it shares the terminal's, it and what it started.
    pub(super) fn signal(&self, signal: Signal) {
        if self.own_group {
            let _ = kill_process_group(self.number(), signal);
        } else {
            for pid in family(self.pid()).into_iter().filter_map(|pid| Pid::from_raw(pid.cast_signed())) {
                let _ = kill_process(pid, signal);
            }
        }
    }

    /// The processes of it that run, known again by their start.
    pub(super) fn family(&self) -> Family {
        let with_start = |pid| born(pid).ok().flatten().map(|born| (pid, born));
        Family(family(self.pid()).into_iter().filter_map(with_start).collect())
    }

    /// Takes its end in; at once where it has ended.
    pub(super) fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait()
    }

    fn number(&self) -> Pid {
        Pid::from_child(&self.child)
    }
}

impl Drop for Held {
    /// One that never went ends without having run anything.
    fn drop(&mut self) {
        if self.gate.take().is_some() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Processes as they were at one moment.
#[derive(Debug)]
pub(super) struct Family(Vec<(u32, Born)>);

impl Family {
    /// Those of them that still run.
    pub(super) fn left(&self) -> usize {
        self.0.iter().filter(|(pid, born)| life(*pid, born) == Life::Alive).count()
    }

    /// Sends a signal to those of them that still run.
    pub(super) fn signal(&self, signal: Signal) {
        for (pid, _) in self.0.iter().filter(|(pid, born)| life(*pid, born) == Life::Alive) {
            if let Some(pid) = Pid::from_raw(pid.cast_signed()) {
                let _ = kill_process(pid, signal);
            }
        }
    }
}

/// What a process ended with, as shells have it.
pub(super) fn code(status: ExitStatus) -> u8 {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    u8::try_from(code).unwrap_or(u8::MAX)
}

/// Where this process was started to become a command: becomes it, or returns the code to end with.
pub(crate) fn become_command(args: &[OsString]) -> Option<u8> {
    if args.get(1).map(OsString::as_os_str) != Some(OsStr::new(HIDDEN)) {
        return None;
    }
    let (program, rest) = args.get(2..)?.split_first()?;
    die_with_parent();
    let Ok(Some((papers, stdin))) = the_word() else { return Some(0) };
    if rustix::stdio::dup2_stdin(&stdin).is_err() {
        return Some(NOT_RUN);
    }
    drop(stdin);
    let mut command = Command::new(program);
    command.args(rest);
    papers.put(&mut command);
    let error = command.exec();
    let code = if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_RUN };
    let _ = writeln!(io::stderr(), "relay: cannot run {}: {error}.", program.display());
    Some(code)
}

/// A guard that is killed leaves no command behind that nobody watches. A command that changes its user loses this.
fn die_with_parent() {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
}

/// Waits for the word to go; `None` where the socket closes without one.
fn the_word() -> io::Result<Option<(Papers, OwnedFd)>> {
    let mut word = [0; MAX_WORD];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut carried = RecvAncillaryBuffer::new(&mut space);
    let taken = loop {
        match recvmsg(io::stdin(), &mut [IoSliceMut::new(&mut word)], &mut carried, RecvFlags::empty()) {
            Ok(taken) => break taken.bytes,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    };
    let stdin = carried.drain().find_map(|message| {
        if let RecvAncillaryMessage::ScmRights(mut fds) = message { fds.next() } else { None }
    });
    let Some(stdin) = stdin else { return Ok(None) };
    Ok(Some((serde_json::from_slice(&word[..taken])?, stdin)))
}

/// This program, though its file was replaced meanwhile.
fn this_program() -> io::Result<OsString> {
    if cfg!(any(target_os = "linux", target_os = "android")) {
        return Ok("/proc/self/exe".into());
    }
    Ok(std::env::current_exe()?.into_os_string())
}
