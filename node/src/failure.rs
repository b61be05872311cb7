//! What a command failed with: an exit code for scripts, what happened and what to try next for people.

use core::fmt;
use std::io;
use std::path::Path;

/// The exit codes of every command; success is 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exit {
    /// The system said no, or what was asked for does not exist.
    Refused = 1,
    /// The command line or the configuration is wrong.
    Usage = 2,
    /// A peer or a service could not be reached in time.
    Unreachable = 3,
    /// A check ran and found a fault.
    CheckFailed = 4,
    /// The user interrupted.
    Interrupted = 130,
}

impl Exit {
    /// The number that the process ends with.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The word for it, as errors on the control socket have it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Usage => "usage",
            Self::Unreachable => "unreachable",
            Self::CheckFailed => "check_failed",
            Self::Interrupted => "interrupted",
        }
    }

    /// Reads [`word`](Self::word).
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        let all = [Self::Refused, Self::Usage, Self::Unreachable, Self::CheckFailed, Self::Interrupted];
        all.into_iter().find(|exit| exit.word() == word)
    }
}

/// An error as its reader meets it: `relay: <message>. <hint>`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// The exit code.
    pub exit: Exit,
    /// What happened to what; no full stop at its end.
    pub message: String,
    /// The next thing to try, one or more whole sentences; may be empty.
    pub hint: String,
}

impl Failure {
    /// A failure with each part given.
    #[must_use]
    pub fn new(exit: Exit, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { exit, message: message.into(), hint: hint.into() }
    }

    /// Refused or not found: exit code 1.
    #[must_use]
    pub fn refused(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(Exit::Refused, message, hint)
    }

    /// A wrong command line or configuration: exit code 2.
    #[must_use]
    pub fn usage(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message, hint)
    }

    /// Unreachable or timed out: exit code 3.
    #[must_use]
    pub fn unreachable(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(Exit::Unreachable, message, hint)
    }

    /// A check that failed: exit code 4.
    #[must_use]
    pub fn check(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(Exit::CheckFailed, message, hint)
    }

    /// The operating system refused to `verb` the file or folder at `path`: exit code 1.
    #[must_use]
    pub fn io(verb: &str, path: &Path, error: &io::Error) -> Self {
        let hint = if error.kind() == io::ErrorKind::PermissionDenied {
            "Check who owns it and its mode, or name another folder with --home"
        } else if error.kind() == io::ErrorKind::StorageFull {
            "Free some space on that disk and try again"
        } else {
            "Check the path, or name another folder with --home"
        };
        Self::refused(format!("cannot {verb} {}: {error}", path.display()), format!("{hint}."))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "relay: {}.", self.message)?;
        if self.hint.is_empty() { Ok(()) } else { write!(f, " {}", self.hint) }
    }
}

impl core::error::Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_says_what_happened_and_what_to_try() {
        let failure = Failure::refused("peer \"a\" is not known", "Pair first: relay pair (there).");
        assert_eq!(failure.to_string(), "relay: peer \"a\" is not known. Pair first: relay pair (there).");
        assert_eq!(Failure::usage("no", "").to_string(), "relay: no.");
    }

    #[test]
    fn exit_codes_are_the_documented_ones() {
        let codes = [Exit::Refused, Exit::Usage, Exit::Unreachable, Exit::CheckFailed, Exit::Interrupted];
        assert_eq!(codes.map(Exit::code), [1, 2, 3, 4, 130]);
    }
}
