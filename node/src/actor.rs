//! Carries out what a machine wants done with files: below the home, whole or not at all.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use relay_core::action::{ActError, ActOutput, Acted, Action, Contents, FilePath};
use relay_runtime::Actor;

use crate::atomic;
use crate::held::Held;

/// The mode of a file that anybody may read; the folders above it still say who gets there.
const PUBLIC: u32 = 0o644;

/// Does what actions say, below one folder.
///
/// A [`FilePath`] cannot lead out of it by its text; links inside it are the owner's own.
#[derive(Clone, Debug)]
pub struct HomeActor {
    dir: PathBuf,
    turn: Turn,
    held: Option<Arc<Held>>,
}

/// Held while files change, and while they are read together with what follows from them: so that nobody acts on what
/// they held before a change that came meanwhile.
pub type Turn = Arc<Mutex<()>>;

impl HomeActor {
    /// An actor for the home in `dir`.
    #[must_use]
    pub fn at(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into(), turn: Turn::default(), held: None }
    }

    /// An actor that takes turns with others at these files.
    #[must_use]
    pub fn in_turn(self, turn: Turn) -> Self {
        Self { turn, ..self }
    }

    /// An actor that does nothing any more once the home was moved away: what stands at its place is another's.
    #[must_use]
    pub fn while_held(self, held: Arc<Held>) -> Self {
        Self { held: Some(held), ..self }
    }

    fn place(&self, path: &FilePath) -> PathBuf {
        self.dir.join(path.as_str())
    }
}

impl Actor for HomeActor {
    fn act(&mut self, action: Action) -> Acted {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        if self.held.as_ref().is_some_and(|held| !held.is_in_place()) {
            return Err(ActError::Failed);
        }
        let done = match action {
            Action::WriteFile { path, contents } => write(&self.place(&path), &contents),
            Action::RemoveFile { path } => atomic::remove(&self.place(&path)).map(|_| ActOutput::Done),
            Action::ReadFile { path, limit } => read(&self.place(&path), limit)?,
            _ => return Err(ActError::Unsupported),
        };
        done.map_err(|error| what_it_means(&error))
    }
}

fn write(path: &Path, contents: &Contents) -> io::Result<ActOutput> {
    if let Some(dir) = path.parent() {
        atomic::make_dir(dir)?;
    }
    let mode = if contents.is_secret() { atomic::PRIVATE } else { PUBLIC };
    atomic::write(path, contents.as_bytes(), mode)?;
    Ok(ActOutput::Done)
}

fn read(path: &Path, limit: usize) -> Result<io::Result<ActOutput>, ActError> {
    match atomic::read_bytes(path, limit) {
        Ok(Some(bytes)) => Ok(Ok(ActOutput::Contents(Contents::secret(bytes.to_vec())))),
        Ok(None) => Err(ActError::NotFound),
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => Err(ActError::TooLarge),
        Err(error) => Ok(Err(error)),
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the system's errors are not our enum")]
fn what_it_means(error: &io::Error) -> ActError {
    match error.kind() {
        io::ErrorKind::NotFound => ActError::NotFound,
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => ActError::Denied,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ActError::Full,
        _ => ActError::Failed,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn path(text: &str) -> FilePath {
        FilePath::new(text).unwrap()
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn files_are_written_with_their_modes_read_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        let mut actor = HomeActor::at(dir.path().join("home"));
        let key = path("peers/a.key");
        let write = |contents| Action::WriteFile { path: key.clone(), contents };
        assert_eq!(actor.act(write(Contents::public(b"one".to_vec()))), Ok(ActOutput::Done));
        let file = dir.path().join("home/peers/a.key");
        assert_eq!((mode(&file), mode(&dir.path().join("home/peers"))), (0o644, 0o700));
        assert_eq!(actor.act(write(Contents::secret(b"two".to_vec()))), Ok(ActOutput::Done));
        assert_eq!(mode(&file), 0o600);
        let read = |limit| Action::ReadFile { path: key.clone(), limit };
        let Ok(ActOutput::Contents(contents)) = actor.act(read(3)) else { panic!("it can be read") };
        assert_eq!(contents.as_bytes(), b"two");
        assert_eq!(actor.act(read(2)), Err(ActError::TooLarge));
        for _ in 0..2 {
            assert_eq!(actor.act(Action::RemoveFile { path: key.clone() }), Ok(ActOutput::Done));
        }
        assert_eq!(actor.act(read(3)), Err(ActError::NotFound));
    }

    #[test]
    fn what_the_system_refuses_is_told_and_leaves_the_old_file() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("peers"), "a file where the folder should be").unwrap();
        let mut actor = HomeActor::at(dir.path());
        let action = Action::WriteFile { path: path("peers/a.key"), contents: Contents::secret(vec![1]) };
        assert!(actor.act(action).is_err());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
