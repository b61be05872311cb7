//! The home that a process works in, known again by more than its path.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use crate::atomic;
use crate::failure::Failure;
use crate::home::Home;

/// A home's folder, kept open so that its number is given to no other while it is compared.
#[derive(Debug)]
pub struct Held {
    path: PathBuf,
    number: (u64, u64),
    _folder: File,
}

impl Held {
    /// Holds the home that is there now; its folder is made.
    ///
    /// # Errors
    /// The folder cannot be made or opened.
    pub fn take(home: &Home) -> Result<Self, Failure> {
        let path = home.dir().to_owned();
        let opened = atomic::make_dir(&path).and_then(|()| File::open(&path));
        let folder = opened.map_err(|error| Failure::io("open", &path, &error))?;
        let meta = folder.metadata().map_err(|error| Failure::io("open", &path, &error))?;
        Ok(Self { path, number: number(&meta), _folder: folder })
    }

    /// Whether the path of the home still leads to it. False once it was moved away or removed, also where another
    /// stands at its place; true where that cannot be told just now.
    #[must_use]
    pub fn is_in_place(&self) -> bool {
        match fs::metadata(&self.path) {
            Ok(meta) => number(&meta) == self.number,
            Err(error) => !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory),
        }
    }

    /// What a service ends with whose home went away.
    #[must_use]
    pub fn lost(&self) -> Failure {
        Failure::refused(
            format!("the home {} was moved away or replaced meanwhile", self.path.display()),
            "Start the service again where the home is now: relay serve --home DIR.",
        )
    }
}

fn number(meta: &fs::Metadata) -> (u64, u64) {
    (meta.dev(), meta.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_home_is_known_again_until_it_is_moved_or_another_stands_in_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path().join("home"));
        let held = Held::take(&home).unwrap();
        assert!(held.is_in_place());
        fs::rename(home.dir(), dir.path().join("moved")).unwrap();
        assert!(!held.is_in_place());
        fs::create_dir(home.dir()).unwrap();
        assert!(!held.is_in_place());
        fs::remove_dir(home.dir()).unwrap();
        fs::rename(dir.path().join("moved"), home.dir()).unwrap();
        assert!(held.is_in_place());
    }
}
