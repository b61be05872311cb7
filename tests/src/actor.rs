//! An actor that keeps files below a folder.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use relay_core::action::{ActError, ActOutput, Acted, Action, Contents};
use relay_mio::Actor;

/// Carries out what the suite's machine asks for: small, plain, and not meant to survive a crash.
#[derive(Clone, Debug)]
pub struct Folder {
    home: PathBuf,
    gate: Arc<Mutex<()>>,
}

impl Folder {
    /// An actor whose paths lie below `home`.
    #[must_use]
    pub fn new(home: &Path) -> Self {
        Self { home: home.to_owned(), gate: Arc::default() }
    }

    /// What every action passes: none is done while it is locked.
    #[must_use]
    pub fn gate(&self) -> Arc<Mutex<()>> {
        Arc::clone(&self.gate)
    }
}

impl Actor for Folder {
    fn act(&mut self, action: Action) -> Acted {
        // A test that panicked with the gate locked holds nothing up any more.
        drop(self.gate.lock());
        match action {
            Action::WriteFile { path, contents } => {
                let path = self.home.join(path.as_str());
                if let Some(folder) = path.parent() {
                    fs::create_dir_all(folder).map_err(|error| act_error(&error))?;
                }
                fs::write(path, contents.as_bytes()).map_err(|error| act_error(&error))?;
                Ok(ActOutput::Done)
            }
            Action::RemoveFile { path } => match fs::remove_file(self.home.join(path.as_str())) {
                Err(error) if error.kind() != ErrorKind::NotFound => Err(act_error(&error)),
                Ok(()) | Err(_) => Ok(ActOutput::Done),
            },
            Action::ReadFile { path, limit } => {
                let bytes = fs::read(self.home.join(path.as_str())).map_err(|error| act_error(&error))?;
                if bytes.len() > limit {
                    return Err(ActError::TooLarge);
                }
                Ok(ActOutput::Contents(Contents::public(bytes)))
            }
            _ => Err(ActError::Unsupported),
        }
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the system's errors are not our enum")]
fn act_error(error: &io::Error) -> ActError {
    match error.kind() {
        ErrorKind::NotFound => ActError::NotFound,
        ErrorKind::PermissionDenied => ActError::Denied,
        ErrorKind::StorageFull => ActError::Full,
        _ => ActError::Failed,
    }
}
