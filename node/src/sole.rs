//! A lock on a file that says who holds it.

use core::time::Duration;
use std::fs::File;
use std::io::{Read, Seek};
use std::thread;
use std::time::Instant;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

/// How long a lock may outlive the process that the file names.
const ORPHANED: Duration = Duration::from_secs(2);
/// How often it is tried meanwhile.
const TRIED: Duration = Duration::from_millis(2);

/// Takes the lock of a file that begins with its holder's process id; false where another process has it.
///
/// A lock lives as long as any copy of its descriptor. A process that is killed just as it starts another leaves a copy
/// to that one, until it has begun: where the holder is gone, that moment is waited for.
pub(crate) fn take(file: &mut File) -> Result<bool, Errno> {
    let until = Instant::now() + ORPHANED;
    loop {
        match flock(&*file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(true),
            Err(Errno::WOULDBLOCK) if is_orphaned(file) && Instant::now() < until => thread::sleep(TRIED),
            Err(Errno::WOULDBLOCK) => return Ok(false),
            Err(error) => return Err(error),
        }
    }
}

/// Gives the lock up, whoever has a copy of the descriptor.
pub(crate) fn leave(file: &File) {
    // What fails here ends with the process.
    let _ = flock(file, FlockOperation::Unlock);
}

/// What the holder wrote, up to so many bytes.
pub(crate) fn holder(file: &mut File, most: u64) -> String {
    let mut text = String::new();
    let _ = file.rewind().and_then(|()| file.take(most).read_to_string(&mut text));
    text.trim().to_owned()
}

/// Whether the process that the file names is gone.
fn is_orphaned(file: &mut File) -> bool {
    let text = holder(file, 16);
    let pid = text.split_ascii_whitespace().next().and_then(|pid| pid.parse().ok()).and_then(Pid::from_raw);
    pid.is_some_and(|pid| test_kill_process(pid) == Err(Errno::SRCH))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::path::Path;
    use std::process::Command;

    use super::*;

    fn open(path: &Path) -> File {
        File::options().read(true).write(true).create(true).truncate(false).open(path).unwrap()
    }

    /// A locked file in the name of a process.
    fn locked_by(path: &Path, pid: u32) -> File {
        let mut file = open(path);
        assert_eq!(take(&mut file), Ok(true));
        writeln!(file, "{pid} serve").unwrap();
        file
    }

    #[test]
    fn a_lock_that_outlives_its_holder_for_a_moment_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let mut gone = Command::new("true").spawn().unwrap();
        let copy = locked_by(&path, gone.id());
        gone.wait().unwrap();
        let dropper = thread::spawn(move || {
            // The moment itself: what waits below must see the lock held.
            thread::sleep(Duration::from_millis(50));
            drop(copy);
        });
        assert_eq!(take(&mut open(&path)), Ok(true));
        dropper.join().unwrap();
    }

    #[test]
    fn a_lock_that_is_given_up_is_free_though_somebody_has_a_copy() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let held = locked_by(&path, std::process::id());
        let copy = held.try_clone().unwrap();
        leave(&held);
        assert_eq!(take(&mut open(&path)), Ok(true));
        drop(copy);
    }

    #[test]
    fn a_lock_of_a_process_that_lives_is_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let held = locked_by(&path, std::process::id());
        let began = Instant::now();
        assert_eq!(take(&mut open(&path)), Ok(false));
        assert!(began.elapsed() < ORPHANED);
        drop(held);
    }
}
