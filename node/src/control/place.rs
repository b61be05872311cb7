//! Where the control socket is: in the home, or at a shorter path where the home's is too long for a socket.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use relay_core::secret::encode_hex;
use rustix::process::geteuid;
use sha2::{Digest, Sha256};

use crate::atomic;
use crate::failure::Failure;
use crate::home::Home;

/// Longest path of a socket, in bytes: every system takes at least this much.
const MAX_PATH: usize = 100;

/// Longest content of `link.path` that is read, in bytes.
const MAX_NOTE: usize = 4096;

/// A control socket's place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    socket: PathBuf,
    /// Where it is written that the socket is elsewhere.
    note: PathBuf,
    elsewhere: bool,
}

impl Place {
    /// The place for a node that is about to listen; its folder is made. `runtime_dir` is `XDG_RUNTIME_DIR`.
    ///
    /// # Errors
    /// The folder cannot be made, or another user could get into it.
    pub fn make(home: &Home, runtime_dir: Option<&OsStr>) -> Result<Self, Failure> {
        let (own, note) = (home.run_path("link.sock"), home.run_path("link.path"));
        let run = home.run_path("");
        atomic::make_dir(&run).map_err(|error| Failure::io("make", &run, &error))?;
        if own.as_os_str().len() <= MAX_PATH {
            private(&run)?;
            atomic::remove(&note).map_err(|error| Failure::io("remove", &note, &error))?;
            return Ok(Self { socket: own, note, elsewhere: false });
        }
        let dir = short_folder(runtime_dir);
        atomic::make_dir(&dir).map_err(|error| Failure::io("make", &dir, &error))?;
        private(&dir)?;
        let full = fs::canonicalize(&run).map_err(|error| Failure::io("find", &run, &error))?;
        let hash = encode_hex(&Sha256::digest(full.as_os_str().as_bytes())[..8]);
        let socket = dir.join(format!("{hash}.sock"));
        let text = socket.as_os_str().as_bytes();
        atomic::write(&note, text, atomic::PRIVATE).map_err(|error| Failure::io("write", &note, &error))?;
        Ok(Self { socket, note, elsewhere: true })
    }

    /// The socket of a node that may run in a home; `None` where there is none that can be trusted.
    ///
    /// # Errors
    /// The note of a socket elsewhere cannot be read, or leads where another user could be.
    pub fn find(home: &Home) -> Result<Option<PathBuf>, Failure> {
        let (own, note) = (home.run_path("link.sock"), home.run_path("link.path"));
        let text = atomic::read_text(&note, MAX_NOTE).map_err(|error| Failure::io("read", &note, &error))?;
        let Some(text) = text else {
            return Ok((own.as_os_str().len() <= MAX_PATH).then_some(own));
        };
        let socket = PathBuf::from(text.trim());
        match socket.parent().map(private) {
            Some(Ok(())) => Ok(Some(socket)),
            Some(Err(failure)) if socket.exists() => Err(failure),
            Some(Err(_)) | None => Ok(None),
        }
    }

    /// The socket.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Removes the socket, and the note that leads to it.
    pub(super) fn remove(&self) {
        let _ = fs::remove_file(&self.socket);
        if self.elsewhere {
            let _ = fs::remove_file(&self.note);
        }
    }
}

fn short_folder(runtime_dir: Option<&OsStr>) -> PathBuf {
    let given =
        runtime_dir.map(Path::new).filter(|dir| dir.is_absolute() && dir.as_os_str().len() <= MAX_PATH - 32);
    given.map_or_else(|| PathBuf::from(format!("/tmp/relay-{}", geteuid().as_raw())), |dir| dir.join("relay"))
}

/// Checks that a folder is this user's and nobody else's, and no link to another.
fn private(dir: &Path) -> Result<(), Failure> {
    let meta = fs::symlink_metadata(dir).map_err(|error| Failure::io("find", dir, &error))?;
    if meta.is_dir() && meta.uid() == geteuid().as_raw() && meta.mode() & 0o077 == 0 {
        return Ok(());
    }
    // A home that somebody made by hand may be open; only its run folder must not be.
    let mine = meta.is_dir() && meta.uid() == geteuid().as_raw();
    let closed =
        mine && fs::set_permissions(dir, std::os::unix::fs::PermissionsExt::from_mode(0o700)).is_ok();
    if closed { Ok(()) } else { Err(foreign(dir)) }
}

fn foreign(dir: &Path) -> Failure {
    let error = io::Error::new(io::ErrorKind::PermissionDenied, "it is not a folder of this user alone");
    Failure::io("use", dir, &error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_home_has_its_socket_elsewhere_and_says_where() {
        let dir = tempfile::tempdir().unwrap();
        let short = Home::at(dir.path().join("home"));
        let place = Place::make(&short, None).unwrap();
        assert_eq!(Place::find(&short).unwrap().as_deref(), Some(place.socket()));
        assert_eq!(place.socket(), short.run_path("link.sock"));

        let long = Home::at(dir.path().join("x".repeat(200)));
        assert_eq!(Place::find(&long).unwrap(), None);
        let place = Place::make(&long, Some(dir.path().as_os_str())).unwrap();
        assert!(
            place.socket().starts_with(dir.path().join("relay"))
                && place.socket().as_os_str().len() <= MAX_PATH
        );
        assert_eq!(Place::find(&long).unwrap().as_deref(), Some(place.socket()));
        assert_eq!(fs::metadata(dir.path().join("relay")).unwrap().mode() & 0o777, 0o700);
        place.remove();
        assert!(!long.run_path("link.path").exists());
    }

    #[test]
    fn a_folder_that_is_a_link_is_not_trusted() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("real")).unwrap();
        std::os::unix::fs::symlink(dir.path().join("real"), dir.path().join("relay")).unwrap();
        let long = Home::at(dir.path().join("x".repeat(200)));
        let failure = Place::make(&long, Some(dir.path().as_os_str())).unwrap_err();
        assert!(failure.message.contains("relay"), "{failure}");
    }
}
