//! Which process a number means: a number is used again, a number and a start never.

use core::fmt;
use std::io;

use serde::{Deserialize, Serialize};

/// When a process started, in words that only this module reads: on Linux the clock ticks since the machine's start and
/// which start that was, elsewhere what `ps` says.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Born(String);

impl Born {
    /// Longest text, in bytes.
    pub const MAX: usize = 128;

    /// Takes what was read from a file; `None` where it is too long.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        (text.len() <= Self::MAX).then(|| Self(text.to_owned()))
    }
}

impl fmt::Display for Born {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether a process is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Life {
    /// It is.
    Alive,
    /// It has ended, though another may have its number.
    Ended,
    /// The system does not say just now.
    Unknown,
}

/// When the process of this number started; `None` where there is none, or one that has ended and was not waited for.
///
/// # Errors
/// The system does not say.
pub fn born(pid: u32) -> io::Result<Option<Born>> {
    system::born(pid)
}

/// Whether the process of this number that started then is there.
#[must_use]
pub fn life(pid: u32, since: &Born) -> Life {
    match born(pid) {
        Ok(Some(born)) if born == *since => Life::Alive,
        Ok(_) => Life::Ended,
        Err(_) => Life::Unknown,
    }
}

/// The processes that `root` started, they started and so on, and those of its process group where it leads one; `root`
/// itself first, none that has ended. Where the system does not list its processes, `root` alone.
#[must_use]
pub fn family(root: u32) -> Vec<u32> {
    system::family(root)
}

#[cfg(any(target_os = "linux", target_os = "android"))]
mod system {
    use std::collections::BTreeMap;
    use std::sync::OnceLock;
    use std::{fs, io};

    use super::Born;

    /// What the kernel says of a process.
    struct Stat {
        ended: bool,
        parent: u32,
        group: u32,
        start: u64,
    }

    fn parse(text: &str) -> Option<Stat> {
        // The name stands in brackets and may hold any of them.
        let mut fields = text.get(text.rfind(')')? + 1..)?.split_ascii_whitespace();
        let ended = matches!(fields.next()?, "Z" | "X" | "x");
        let (parent, group) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
        Some(Stat { ended, parent, group, start: fields.nth(16)?.parse().ok()? })
    }

    fn stat(pid: u32) -> io::Result<Option<Stat>> {
        let read = match fs::read(format!("/proc/{pid}/stat")) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        parse(&String::from_utf8_lossy(&read)).map(Some).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    pub(super) fn born(pid: u32) -> io::Result<Option<Born>> {
        let Some(stat) = stat(pid)?.filter(|stat| !stat.ended) else { return Ok(None) };
        // It is the same for as long as this process lives.
        static BOOT: OnceLock<String> = OnceLock::new();
        let boot = match BOOT.get() {
            Some(boot) => boot,
            None => {
                let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
                BOOT.get_or_init(|| boot.trim().to_owned())
            }
        };
        Ok(Some(Born(format!("{} {boot}", stat.start))))
    }

    pub(super) fn family(root: u32) -> Vec<u32> {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let all: BTreeMap<u32, Stat> =
            numbers.filter_map(|pid| stat(pid).ok().flatten().map(|stat| (pid, stat))).collect();
        let mut found = vec![root];
        let mut next = 0;
        while let Some(parent) = found.get(next).copied() {
            let children = all
                .iter()
                .filter(|(pid, stat)| (stat.parent == parent || stat.group == root) && !found.contains(pid));
            let children: Vec<u32> = children.map(|(pid, _)| *pid).collect();
            found.extend(children);
            next += 1;
        }
        found.retain(|pid| all.get(pid).is_some_and(|stat| !stat.ended));
        found
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn a_name_with_brackets_and_spaces_does_not_move_the_fields() {
            let rest = "S 7 9 9 0 -1 4194560 1 0 0 0 1 2 3 4 20 0 1 0 424242 1000 1";
            for name in ["sh", "a) Z 1", "(x", ") ("] {
                let stat = parse(&format!("12 ({name}) {rest}")).unwrap();
                assert_eq!(
                    (stat.parent, stat.group, stat.start, stat.ended),
                    (7, 9, 424_242, false),
                    "{name}"
                );
            }
            assert!(parse("12 (sh) Z 1 2 3").is_none() && parse("").is_none());
        }
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod system {
    use std::io;
    use std::process::{Command, Stdio};

    use super::Born;

    pub(super) fn born(pid: u32) -> io::Result<Option<Born>> {
        let mut ps = Command::new("ps");
        ps.args(["-o", "stat=,lstart=", "-p", &pid.to_string()]).env("LC_ALL", "C").env("TZ", "UTC");
        let output = ps.stdin(Stdio::null()).stderr(Stdio::null()).output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let Some((state, start)) = text.trim().split_once(char::is_whitespace) else { return Ok(None) };
        Ok((!state.starts_with('Z')).then(|| Born(start.trim().to_owned())))
    }

    pub(super) fn family(root: u32) -> Vec<u32> {
        vec![root]
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_process_lives_until_it_ends_and_one_with_another_start_is_another() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let pid = child.id();
        let born = born(pid).unwrap().unwrap();
        assert_eq!(life(pid, &born), Life::Alive);
        assert_eq!(life(pid, &Born::new("1 another").unwrap()), Life::Ended);
        assert!(family(std::process::id()).contains(&pid));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(life(pid, &born), Life::Ended);
    }

    #[test]
    fn a_process_that_ended_and_was_not_waited_for_has_ended() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let pid = child.id();
        let born = born(pid).unwrap().unwrap();
        drop(child.stdin.take());
        while life(pid, &born) == Life::Alive {
            std::thread::yield_now();
        }
        child.wait().unwrap();
    }
}
