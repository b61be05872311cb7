//! Key files that change while a node runs, by hand, by another command, by the node itself; and a home that goes away.

use std::io;
use std::path::{Path, PathBuf};
use std::thread;

use super::{Desk, HOME_LOST, Stop};
use crate::atomic;

/// What changed, the most that did.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Change {
    Nothing,
    /// The key of the open invite, and no other.
    Pending,
    Keys,
}

/// Looks after the key files until the node has ended.
#[derive(Debug)]
pub(super) struct Watcher {
    dir: PathBuf,
    eyes: system::Eyes,
}

impl Watcher {
    /// Opens its eyes: what changes from now on is noticed once it has started. The folder is made.
    pub(super) fn new(dir: &Path) -> io::Result<Self> {
        atomic::make_dir(dir)?;
        Ok(Self { dir: dir.to_owned(), eyes: system::Eyes::open(dir)? })
    }

    /// Has the node told of every change, and ended once its home is no longer where it was: the files that it would read
    /// and write there are another's.
    pub(super) fn start(mut self, desk: Desk, stop: Stop) -> io::Result<()> {
        thread::Builder::new().name("relay-watch".into()).spawn(move || {
            let mut told: Vec<String> = Vec::new();
            // A change that could not be read is read again at every glance: a key that was taken away must not stay
            // good because no descriptor was free just then.
            let (mut owed, mut failed) = (Change::Nothing, false);
            while desk.is_running() {
                owed = owed.max(self.eyes.changed(&self.dir));
                if desk.hold().is_err() {
                    stop.now(HOME_LOST);
                    return;
                }
                let read = match owed {
                    Change::Nothing => continue,
                    Change::Pending => desk.reload_pending().map(|odd| {
                        let news = odd.filter(|odd| !told.contains(odd));
                        told.iter().cloned().chain(news).collect()
                    }),
                    Change::Keys => desk.reload(),
                };
                match read {
                    Ok(warnings) => {
                        (owed, failed) = (Change::Nothing, false);
                        tracing::debug!("key files changed; read again");
                        for warning in warnings.iter().filter(|warning| !told.contains(warning)) {
                            tracing::warn!("{warning}");
                        }
                        told = warnings;
                    }
                    Err(failure) => {
                        if !std::mem::replace(&mut failed, true) {
                            tracing::warn!("{}; trying again", failure.message);
                        }
                    }
                }
            }
        })?;
        Ok(())
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
mod system {
    use std::ffi::CStr;
    use std::io;
    use std::mem::MaybeUninit;
    use std::os::fd::OwnedFd;
    use std::path::Path;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};

    use super::Change;

    /// How long nothing is looked at where nothing happens, so that the end of the node is noticed.
    const GLANCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 500_000_000 };

    #[derive(Debug)]
    pub(super) struct Eyes {
        fd: OwnedFd,
        /// The folder went away, and is looked for.
        lost: bool,
    }

    impl Eyes {
        pub(super) fn open(dir: &Path) -> io::Result<Self> {
            let fd = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
            let eyes = Self { fd, lost: false };
            eyes.look_at(dir)?;
            Ok(eyes)
        }

        fn look_at(&self, dir: &Path) -> io::Result<()> {
            let flags = WatchFlags::CLOSE_WRITE
                | WatchFlags::MOVED_TO
                | WatchFlags::MOVED_FROM
                | WatchFlags::DELETE
                | WatchFlags::DELETE_SELF
                | WatchFlags::MOVE_SELF
                | WatchFlags::ATTRIB
                | WatchFlags::ONLYDIR;
            inotify::add_watch(&self.fd, dir, flags)?;
            Ok(())
        }

        /// Waits a while, and says which key files changed.
        pub(super) fn changed(&mut self, dir: &Path) -> Change {
            let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
            let _ = poll(&mut fds, Some(&GLANCE));
            if self.lost {
                // What still comes of the folder that went away must not keep ending the wait.
                self.take(dir);
                self.lost = self.look_at(dir).is_err();
                return if self.lost { Change::Nothing } else { Change::Keys };
            }
            self.take(dir)
        }

        fn take(&mut self, dir: &Path) -> Change {
            let mut buf = [MaybeUninit::uninit(); 4096];
            let mut changed = Change::Nothing;
            let mut lost = false;
            {
                let mut events = inotify::Reader::new(&self.fd, &mut buf);
                while let Ok(event) = events.next() {
                    let gone = ReadFlags::IGNORED | ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF;
                    lost |= event.events().intersects(gone);
                    let all = lost || event.events().contains(ReadFlags::QUEUE_OVERFLOW);
                    changed = changed.max(if all { Change::Keys } else { change(event.file_name()) });
                }
            }
            // A folder that was moved away is followed no longer; the one at its place counts.
            self.lost = lost && self.look_at(dir).is_err();
            changed
        }
    }

    /// Temporary files, which take a key's name in one step later, begin with a dot.
    fn change(name: Option<&CStr>) -> Change {
        match name.map(CStr::to_bytes) {
            Some(b"_pending.key") => Change::Pending,
            Some(name) if name.ends_with(b".key") && !name.starts_with(b".") => Change::Keys,
            Some(_) | None => Change::Nothing,
        }
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod system {
    use std::io;
    use std::path::Path;
    use std::thread;
    use std::time::{Duration, SystemTime};

    use super::Change;

    #[derive(Debug)]
    pub(super) struct Eyes {
        seen: Vec<(String, Option<SystemTime>, u64)>,
    }

    impl Eyes {
        pub(super) fn open(dir: &Path) -> io::Result<Self> {
            Ok(Self { seen: look(dir) })
        }

        pub(super) fn changed(&mut self, dir: &Path) -> Change {
            thread::sleep(Duration::from_secs(1));
            let now = look(dir);
            let changed = now != self.seen;
            self.seen = now;
            if changed { Change::Keys } else { Change::Nothing }
        }
    }

    fn look(dir: &Path) -> Vec<(String, Option<SystemTime>, u64)> {
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        let mut seen: Vec<_> = entries
            .filter_map(|entry| {
                let name = entry.file_name().into_string().ok()?;
                let meta = entry.metadata().ok()?;
                let is_key = name.ends_with(".key") && !name.starts_with('.');
                is_key.then(|| (name, meta.modified().ok(), meta.len()))
            })
            .collect();
        seen.sort();
        seen
    }
}
