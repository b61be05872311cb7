//! The sessions of this machine: who is alive here, each a name that a process holds for as long as it runs.
//!
//! A session is a file in `sessions/` in the home, so that it is known whether a service runs or not, and again after
//! that was restarted. It ends with its process, known by its number and its start, or when somebody ends it by name.

mod process;

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use relay_core::message::lease::is_session;
use relay_core::secret::encode_hex;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

pub use process::{Born, Life, born, family, life};

use crate::atomic;
use crate::clock;
use crate::failure::Failure;

/// Sessions of one machine at once: as many as a peer remembers of one that hold nothing.
pub const MAX_SESSIONS: usize = 512;
/// Longest file that is read, in bytes.
const MAX_FILE: usize = 8 << 10;
/// Longest name of a project that is kept, in bytes.
const MAX_PROJECT: usize = 128;

/// A session.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Session {
    /// What it is called: 1 to 128 bytes without control characters or `@`.
    pub name: String,
    /// The process that it ends with.
    pub pid: u32,
    /// When that started.
    pub process_start: Born,
    /// When the session was started, RFC 3339.
    pub started_at: String,
    /// The name of the folder in which it was started, where that has one.
    pub project: Option<String>,
}

impl Session {
    /// Whether its process is there.
    #[must_use]
    pub fn life(&self) -> Life {
        life(self.pid, &self.process_start)
    }
}

/// Checks the name of a session.
///
/// # Errors
/// The rule, in a line for people.
pub fn session_name(text: &str) -> Result<String, String> {
    let rule = "a session is 1 to 128 bytes without control characters and @";
    if is_session(text) { Ok(text.to_owned()) } else { Err(rule.to_owned()) }
}

/// The sessions of one home.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sessions {
    dir: PathBuf,
}

impl Sessions {
    /// Those whose files are in `dir`; it need not exist yet.
    #[must_use]
    pub fn at(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    /// Their folder.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Starts a session of the process `pid`. A name whose process has ended is free.
    ///
    /// # Errors
    /// The name is against the rule or taken, the process is not there, there are too many sessions, or the system
    /// refuses something.
    pub fn start(&self, name: &str, pid: u32, project: Option<&Path>) -> Result<Session, Failure> {
        let name = session_name(name).map_err(|rule| Failure::usage(rule, "Give it another name."))?;
        let looked = born(pid).map_err(|error| {
            Failure::refused(
                format!("process {pid} cannot be looked at: {error}"),
                "Name a process of yours: --pid N.",
            )
        })?;
        let process_start = looked.ok_or_else(|| {
            Failure::refused(
                format!("there is no process {pid}, so it can hold no session"),
                "Name one that runs: --pid N.",
            )
        })?;
        let _turn = self.turn()?;
        let holders = self.list()?;
        if let Some(holder) = holders.iter().find(|session| session.name == name)
            && holder.life() != Life::Ended
        {
            return Err(taken(holder));
        }
        if holders.iter().filter(|session| session.life() != Life::Ended).count() >= MAX_SESSIONS {
            return Err(Failure::refused(
                format!("{MAX_SESSIONS} sessions are alive here, which is the most"),
                "End one that is not needed: relay session list, relay session end NAME.",
            ));
        }
        let project =
            project.and_then(|dir| dir.file_name()?.to_str()).filter(|name| name.len() <= MAX_PROJECT);
        let session = Session {
            name,
            pid,
            process_start,
            started_at: clock::rfc3339(clock::wall(SystemTime::now())).unwrap_or_default(),
            project: project.map(ToOwned::to_owned),
        };
        let path = self.path(&session.name);
        let text = serde_json::to_vec(&session)
            .map_err(|error| Failure::refused(format!("the session is no JSON: {error}"), ""))?;
        atomic::write(&path, &text, atomic::PRIVATE).map_err(|error| Failure::io("write", &path, &error))?;
        Ok(session)
    }

    /// Ends a session, whether its process runs or not.
    ///
    /// # Errors
    /// There is none of that name, or its file cannot be removed.
    pub fn end(&self, name: &str) -> Result<Session, Failure> {
        let missing = || {
            Failure::refused(
                format!("there is no session {name:?} here"),
                "Those that there are: relay session list.",
            )
        };
        if !self.dir.exists() {
            return Err(missing());
        }
        let _turn = self.turn()?;
        let session = self.list()?.into_iter().find(|session| session.name == name).ok_or_else(missing)?;
        self.remove(name)?;
        Ok(session)
    }

    /// Ends a session unless another has its name meanwhile; says whether it did.
    ///
    /// # Errors
    /// Its file cannot be read or removed.
    pub fn end_this(&self, session: &Session) -> Result<bool, Failure> {
        let _turn = self.turn()?;
        if self.list()?.contains(session) { self.remove(&session.name) } else { Ok(false) }
    }

    /// All of them, the oldest first, those whose process has ended among them; a file that is none is passed over.
    ///
    /// # Errors
    /// The folder is there and cannot be read.
    pub fn list(&self) -> Result<Vec<Session>, Failure> {
        let failed = |error: &io::Error| Failure::io("read", &self.dir, error);
        let entries = match fs::read_dir(&self.dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed(&error)),
        };
        let mut sessions = Vec::new();
        for entry in entries {
            let path = entry.map_err(|error| failed(&error))?.path();
            if path.extension().is_some_and(|ending| ending == "json") {
                sessions.extend(self.read(&path));
            }
        }
        sessions.sort_by(|a, b| (&a.started_at, &a.name).cmp(&(&b.started_at, &b.name)));
        Ok(sessions)
    }

    fn read(&self, path: &Path) -> Option<Session> {
        let text = atomic::read_text(path, MAX_FILE).ok()??;
        let session: Session = serde_json::from_str(&text).ok()?;
        let is_one = session_name(&session.name).is_ok()
            && self.path(&session.name) == path
            && Born::new(&session.process_start.to_string()).is_some()
            && session.project.as_ref().is_none_or(|project| project.len() <= MAX_PROJECT);
        is_one.then_some(session)
    }

    fn remove(&self, name: &str) -> Result<bool, Failure> {
        let path = self.path(name);
        atomic::remove(&path).map_err(|error| Failure::io("remove", &path, &error))
    }

    /// A name may hold what a file's may not, and be longer.
    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{}.json", encode_hex(&Sha256::digest(name)[..16])))
    }

    /// Waits until nobody else changes sessions; until it is dropped, nobody does.
    fn turn(&self) -> Result<File, Failure> {
        let path = self.dir.join(".lock");
        let open = || -> io::Result<File> {
            atomic::make_dir(&self.dir)?;
            let mut options = OpenOptions::new();
            let file = options.write(true).create(true).truncate(false).mode(atomic::PRIVATE).open(&path)?;
            flock(&file, FlockOperation::LockExclusive)?;
            Ok(file)
        };
        open().map_err(|error| Failure::io("lock", &path, &error))
    }
}

fn taken(holder: &Session) -> Failure {
    Failure::refused(
        format!(
            "the session \"{}\" is alive: process {} has it since {}",
            holder.name, holder.pid, holder.started_at
        ),
        format!("Take another name, or end it: relay session end '{}'.", holder.name),
    )
}

#[cfg(test)]
mod tests;
