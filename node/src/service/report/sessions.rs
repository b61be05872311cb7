//! The sessions of this machine, as heartbeats tell of them.

use std::fs;
use std::time::{Duration, SystemTime};

use relay_core::message::RawValue;
use serde::Serialize;
use serde_json::value::to_raw_value;

use crate::sessions::{Life, MAX_SESSIONS, Session, Sessions};

/// For how long after a change of the folder it is read at every look, since its time is coarse.
const FRESH: Duration = Duration::from_secs(2);

/// The sessions that live, looked after.
#[derive(Debug)]
pub(super) struct Watched {
    sessions: Sessions,
    known: Vec<Session>,
    changed: Option<SystemTime>,
}

/// A session on the wire.
#[derive(Serialize)]
struct Told<'s> {
    session_id: &'s str,
    pid: u32,
    status: &'static str,
    project: Option<&'s str>,
    /// Not told: it says more of this machine than a lease needs.
    cwd: Option<&'s str>,
}

impl Watched {
    pub(super) fn new(sessions: Sessions) -> Self {
        let mut watched = Self { sessions, known: Vec::new(), changed: None };
        watched.look();
        watched
    }

    /// Looks which sessions there are and which have ended; says whether that changed.
    pub(super) fn look(&mut self) -> bool {
        let before = self.known.clone();
        let changed = fs::metadata(self.sessions.dir()).and_then(|meta| meta.modified()).ok();
        let is_fresh = changed.is_some_and(|at| at.elapsed().is_ok_and(|age| age < FRESH));
        if changed != self.changed || is_fresh {
            match self.sessions.list() {
                Ok(listed) => (self.known, self.changed) = (listed, changed),
                Err(failure) => tracing::warn!("{}", failure.message),
            }
        }
        // A session lives on where the system does not say.
        let (ended, known): (Vec<_>, Vec<_>) =
            self.known.drain(..).partition(|session| session.life() == Life::Ended);
        self.known = known;
        for session in &ended {
            tracing::debug!(session = session.name, "its process has ended");
            if let Err(failure) = self.sessions.end_this(session) {
                tracing::warn!("{}", failure.message);
            }
        }
        self.known.truncate(MAX_SESSIONS);
        self.known != before
    }

    /// What heartbeats say of them.
    pub(super) fn told(&self) -> Option<Box<RawValue>> {
        let told = self.known.iter().map(|session| Told {
            session_id: &session.name,
            pid: session.pid,
            status: "Processing",
            project: session.project.as_deref(),
            cwd: None,
        });
        to_raw_value(&told.collect::<Vec<_>>()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sessions::Born;

    #[test]
    fn sessions_are_told_from_their_start_until_their_process_ends() {
        let dir = tempfile::tempdir().unwrap();
        let sessions = Sessions::at(dir.path().join("sessions"));
        let mut watched = Watched::new(sessions.clone());
        assert_eq!(watched.told().unwrap().get(), "[]");
        let pid = std::process::id();
        let mut session = sessions.start("a", pid, Some("/srv/app".as_ref())).unwrap();
        assert!(watched.look() && !watched.look());
        let told =
            format!(r#"[{{"session_id":"a","pid":{pid},"status":"Processing","project":"app","cwd":null}}]"#);
        assert_eq!(watched.told().unwrap().get(), told);
        session.process_start = Born::new("another").unwrap();
        let path = fs::read_dir(sessions.dir()).unwrap().flatten().map(|entry| entry.path());
        let path = path.into_iter().find(|path| path.extension().is_some()).unwrap();
        fs::write(&path, serde_json::to_vec(&session).unwrap()).unwrap();
        assert!(watched.look());
        assert!(watched.told().unwrap().get() == "[]" && !path.exists());
    }
}
