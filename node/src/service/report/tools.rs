//! Which programs this machine has, and of which version.

use std::collections::BTreeMap;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use relay_core::message::heartbeat::{Capabilities, Tool};
use relay_core::text::clip;

/// The programs that are asked.
const TOOLS: [&str; 5] = ["claude", "git", "cargo", "python3", "node"];

/// How long one has to say its version.
const PATIENCE: Duration = Duration::from_secs(5);

/// Longest answer that is read, in bytes.
const MAX_ANSWER: u64 = 4096;

/// Asks each, all at once.
pub(super) fn probe() -> BTreeMap<String, Tool> {
    thread::scope(|scope| {
        let asked = TOOLS.map(|name| (name, scope.spawn(move || ask(name, PATIENCE))));
        let answer = |(name, asked): (&str, thread::ScopedJoinHandle<'_, Tool>)| {
            Some((name.to_owned(), asked.join().ok()?))
        };
        asked.into_iter().filter_map(answer).collect()
    })
}

/// A program that is there and does not say its version is present all the same.
fn ask(name: &str, patience: Duration) -> Tool {
    let mut command = Command::new(name);
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let Ok(mut child) = command.spawn() else { return Tool::Missing };
    let ended = wait(&mut child, Instant::now() + patience);
    let mut text = Vec::new();
    if ended && let Some(stdout) = child.stdout.take() {
        // It has ended, and what it said fits a pipe; a child of its own that holds the pipe open says no more.
        let _ = rustix::io::ioctl_fionbio(&stdout, true);
        let _ = stdout.take(MAX_ANSWER).read_to_end(&mut text);
    }
    Tool::Present { version: version(&String::from_utf8_lossy(&text)), credential: None }
}

/// Waits for a program, and ends one that takes too long. True where it ended well by itself.
fn wait(child: &mut Child, until: Instant) -> bool {
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) if Instant::now() < until => thread::sleep(Duration::from_millis(20)),
            Ok(None) | Err(_) => {
                let _ = child.kill();
                let _ = child.wait();
                return false;
            }
        }
    }
}

/// The first word of the first line that looks like a version.
fn version(text: &str) -> Option<String> {
    let words = text.lines().next()?.split_whitespace();
    let versions = words.map(|word| word.trim_start_matches('v'));
    let mut found =
        versions.filter(|word| word.starts_with(|c: char| c.is_ascii_digit()) && word.contains('.'));
    Some(clip(found.next()?, Capabilities::MAX_TEXT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_found_in_what_programs_say() {
        for (text, found) in [
            ("git version 2.47.1\n", Some("2.47.1")),
            ("v22.3.0\n", Some("22.3.0")),
            ("1.0.128 (Claude Code)\n", Some("1.0.128")),
            ("Python 3.13.5", Some("3.13.5")),
            ("", None),
            ("no version here\n1.2.3\n", None),
        ] {
            assert_eq!(version(text).as_deref(), found, "{text:?}");
        }
    }

    #[test]
    fn a_program_that_is_not_there_is_missing_and_one_that_hangs_is_ended() {
        assert_eq!(ask("no-such-program-anywhere", PATIENCE), Tool::Missing);
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        assert!(!wait(&mut child, Instant::now()));
        assert!(child.try_wait().unwrap().is_some());
    }
}
