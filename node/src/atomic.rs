//! Small files that are read whole within a bound, and written whole or not at all.
//!
//! A write goes to a temporary file in the same folder, which has its final mode from the moment it exists, is
//! synced, takes its name in one step, and the folder is synced behind it. A temporary file is named
//! `.<name>.<pid>.<n>.tmp`, so that no reader of `*.key` or `*.meta` takes it for one, and locked while its writer
//! lives, so that what was left behind can be told from a write under way.

use core::sync::atomic::{AtomicU64, Ordering};
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use zeroize::Zeroizing;

/// The mode of a file that its owner alone may read.
pub const PRIVATE: u32 = 0o600;

/// The ending of a temporary file's name.
pub const TEMPORARY: &str = ".tmp";

/// Makes a folder and those above it, for the owner alone (0700). One that is there stays as it is.
///
/// # Errors
/// What the operating system said.
pub fn make_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Writes `bytes` to `path`, replacing what was there.
///
/// # Errors
/// What the operating system said; the old file, if any, is then untouched.
pub fn write(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let temporary = Temporary::write(path, bytes, mode)?;
    fs::rename(&temporary.path, path)?;
    sync_parent(path)
}

/// Writes `bytes` to `path` unless something is there; says whether it did.
///
/// Of two processes that do this at once exactly one does, and the other finds the whole file.
///
/// # Errors
/// What the operating system said.
pub fn write_new(path: &Path, bytes: &[u8], mode: u32) -> io::Result<bool> {
    Temporary::write(path, bytes, mode)?.link(path)
}

/// As [`write_new`], for a file that `fill` writes by its path, such as a database: it is made empty before, in the same
/// folder, with its final mode, and must stand whole and closed when `fill` returns.
///
/// # Errors
/// What `fill` or the operating system said; nothing is at `path` then.
pub fn fill_new<E: From<io::Error>>(
    path: &Path,
    mode: u32,
    fill: impl FnOnce(&Path) -> Result<(), E>,
) -> Result<bool, E> {
    let temporary = Temporary::create(path, mode)?;
    fill(&temporary.path)?;
    temporary.file.sync_all()?;
    Ok(temporary.link(path)?)
}

/// Removes a file and syncs its folder; says whether it was there.
///
/// # Errors
/// What the operating system said.
pub fn remove(path: &Path) -> io::Result<bool> {
    match fs::remove_file(path) {
        Ok(()) => {
            sync_parent(path)?;
            Ok(true)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Removes a temporary file unless its writer is at work on it; says whether it did.
///
/// # Errors
/// What the operating system said.
pub fn remove_abandoned(path: &Path) -> io::Result<bool> {
    let flags = (rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOFOLLOW).bits().cast_signed();
    let file = match OpenOptions::new().read(true).write(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        // No file of ours has a writer that is no plain file.
        Err(_) if fs::symlink_metadata(path).is_ok_and(|meta| !meta.is_file()) => return remove(path),
        Err(error) => return Err(error),
    };
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        // Its writer, where it was between making and locking it, finds it gone and makes another.
        Ok(()) => remove(path),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
        // A disk without locks: its age alone can tell, which whoever prunes goes by.
        Err(_) => Ok(false),
    }
}

/// Makes the last change of names in `path`'s folder durable.
///
/// # Errors
/// What the operating system said.
pub fn sync_parent(path: &Path) -> io::Result<()> {
    File::open(parent(path))?.sync_all()
}

/// Reads a text file of at most `limit` bytes. `None` if there is none.
///
/// Never blocks on what is no plain file (a pipe, a device), and reads no more than the limit of what is.
///
/// # Errors
/// `InvalidData` for a folder, a pipe or bytes that are not UTF-8, `FileTooLarge` for a file beyond the limit; else
/// what the operating system said.
pub fn read_text(path: &Path, limit: usize) -> io::Result<Option<Zeroizing<String>>> {
    let Some(bytes) = read_bytes(path, limit)? else { return Ok(None) };
    let text = str::from_utf8(&bytes).map_err(|_| invalid("not UTF-8 text"))?;
    Ok(Some(Zeroizing::new(text.to_owned())))
}

/// As [`read_text`], for any bytes.
///
/// # Errors
/// As for [`read_text`].
pub fn read_bytes(path: &Path, limit: usize) -> io::Result<Option<Zeroizing<Vec<u8>>>> {
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    if !file.metadata()?.is_file() {
        return Err(invalid("not a plain file"));
    }
    let mut bytes = Zeroizing::new(Vec::with_capacity(limit.min(4096) + 1));
    file.take(limit as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > limit {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("more than {limit} bytes")));
    }
    Ok(Some(bytes))
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        Some(_) | None => Path::new("."),
    }
}

/// A written and synced temporary file; dropping it removes its name, if it still has one.
struct Temporary {
    path: PathBuf,
    /// Holds the lock.
    file: File,
}

impl Temporary {
    fn write(path: &Path, bytes: &[u8], mode: u32) -> io::Result<Self> {
        let written = Self::create(path, mode)?;
        (&written.file).write_all(bytes)?;
        written.file.sync_all()?;
        Ok(written)
    }

    fn create(path: &Path, mode: u32) -> io::Result<Self> {
        static WRITTEN: AtomicU64 = AtomicU64::new(0);
        let name = path.file_name().ok_or_else(|| invalid("no file name"))?;
        // A name that is taken was left behind by a process of the same number; the next one is free in the end.
        loop {
            let mut temporary = OsString::from(".");
            temporary.push(name);
            let count = WRITTEN.fetch_add(1, Ordering::Relaxed);
            temporary.push(format!(".{}.{count}{TEMPORARY}", std::process::id()));
            let place = parent(path).join(temporary);
            let file = match OpenOptions::new().write(true).create_new(true).mode(mode).open(&place) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(error) => return Err(error),
            };
            // A disk without locks makes no difference but to who removes it.
            let _ = flock(&file, FlockOperation::LockExclusive);
            if file.metadata()?.nlink() == 0 {
                continue;
            }
            return Ok(Self { path: place, file });
        }
    }

    /// Gives the file its name unless something has it; says whether it did.
    fn link(self, path: &Path) -> io::Result<bool> {
        match fs::hard_link(&self.path, path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(false),
            Err(error) => return Err(error),
        }
        sync_parent(path)?;
        Ok(true)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // Renamed: nothing is there any more. Else a failed write or a linked file: its spare name goes.
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let entries = fs::read_dir(dir).unwrap();
        entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn a_written_file_has_its_mode_and_leaves_no_temporary() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.key");
        write(&path, b"one", PRIVATE).unwrap();
        write(&path, b"two", PRIVATE).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(names(dir.path()), ["a.key"]);
    }

    #[test]
    fn a_failed_write_leaves_the_old_file_and_no_temporary() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.key");
        fs::create_dir(&path).unwrap();
        write(&path, b"one", PRIVATE).unwrap_err();
        assert_eq!(names(dir.path()), ["a.key"]);
    }

    #[test]
    fn the_first_of_many_writers_of_a_new_file_wins() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("identity");
        let wins: Vec<bool> = std::thread::scope(|scope| {
            let write = |n: u8| write_new(&path, &[n; 100], PRIVATE).unwrap();
            let threads: Vec<_> = (0..8).map(|n| scope.spawn(move || write(n))).collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        let winner = wins.iter().position(|won| *won).unwrap();
        assert_eq!(wins.iter().filter(|won| **won).count(), 1);
        assert_eq!(fs::read(&path).unwrap(), [winner as u8; 100]);
        assert_eq!(names(dir.path()), ["identity"]);
    }

    #[test]
    fn only_small_plain_utf8_files_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        assert_eq!(read_text(&path, 4).unwrap(), None);
        fs::write(&path, "four").unwrap();
        assert_eq!(read_text(&path, 4).unwrap().unwrap().as_str(), "four");
        fs::write(&path, "fiver").unwrap();
        assert_eq!(read_text(&path, 4).unwrap_err().to_string(), "more than 4 bytes");
        fs::write(&path, [0xff]).unwrap();
        assert_eq!(read_text(&path, 4).unwrap_err().to_string(), "not UTF-8 text");
        assert_eq!(read_text(dir.path(), 4).unwrap_err().to_string(), "not a plain file");
        let pipe = dir.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).unwrap();
        assert_eq!(read_text(&pipe, 4).unwrap_err().to_string(), "not a plain file");
    }
}
