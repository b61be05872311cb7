//! One running node a home: two with one identity would take each other's links.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::atomic;
use crate::failure::Failure;
use crate::home::Home;
use crate::sole;

/// What the holder says of itself, its process and its command, in bytes.
const MAX_HOLDER: u64 = 64;

/// The lock, held until it is dropped or the process ends, however it ends.
#[derive(Debug)]
pub struct Lock {
    file: File,
}

impl Lock {
    /// Takes the lock of the home for `what`, a command's name, or says who has it.
    ///
    /// # Errors
    /// Another process has it, or the file cannot be made.
    pub fn take(home: &Home, what: &str) -> Result<Self, Failure> {
        let path = home.run_path("link.lock");
        let failed = |error: &io::Error| Failure::io("lock", &path, error);
        atomic::make_dir(&home.run_path("")).map_err(|error| failed(&error))?;
        let mut file = open(&path).map_err(|error| failed(&error))?;
        if !sole::take(&mut file).map_err(|error| failed(&error.into()))? {
            return Err(held(home, &sole::holder(&mut file, MAX_HOLDER)));
        }
        let line = format!("{} {what}\n", std::process::id());
        let written =
            file.set_len(0).and_then(|()| file.rewind()).and_then(|()| file.write_all(line.as_bytes()));
        written.map_err(|error| failed(&error))?;
        Ok(Self { file })
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        sole::leave(&self.file);
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(atomic::PRIVATE).open(path)
}

fn held(home: &Home, holder: &str) -> Failure {
    let (pid, what) = holder.split_once(' ').unwrap_or((holder, "serve"));
    let who = if pid.is_empty() { String::new() } else { format!(" (process {pid})") };
    Failure::refused(
        format!("relay {what} already runs in {}{who}", home.dir().display()),
        "Stop it first, or use another home: --home DIR.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_holder_is_refused_by_name_until_the_first_ends() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path().join("home"));
        let first = Lock::take(&home, "serve").unwrap();
        let failure = Lock::take(&home, "serve").unwrap_err();
        let pid = std::process::id();
        assert!(failure.message.contains("relay serve already runs"), "{failure}");
        assert!(failure.message.contains(&format!("(process {pid})")), "{failure}");
        drop(first);
        drop(Lock::take(&home, "connect").unwrap());
    }
}
