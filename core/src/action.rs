//! What a machine wants done outside: files now; processes, names and datagrams by the same way.
//!
//! The program that embeds a machine carries actions out, the simulator fakes them, and [`Input::Acted`] ends each.
//!
//! [`Input::Acted`]: crate::machine::Input::Acted

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use zeroize::Zeroize;

/// Numbers the actions of a host, from 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ActId(pub(crate) u64);

impl ActId {
    /// The number.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }
}

/// Something to be done outside the machine.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Action {
    /// Replace a file whole, atomically and durably: after [`ActOutput::Done`] it survives a crash.
    WriteFile {
        /// Where, below the home.
        path: FilePath,
        /// What the file holds from then on.
        contents: Contents,
    },
    /// Remove a file; one that is not there is removed already.
    RemoveFile {
        /// Where, below the home.
        path: FilePath,
    },
    /// Read a file of at most `limit` bytes.
    ReadFile {
        /// Where, below the home.
        path: FilePath,
        /// The most that may be read, in bytes; a longer file is [`ActError::TooLarge`].
        limit: usize,
    },
}

/// How an action ended.
pub type Acted = Result<ActOutput, ActError>;

/// What a successful action gives.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ActOutput {
    /// It is done.
    Done,
    /// The file that was read.
    Contents(Contents),
}

/// Why an action failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ActError {
    /// There is no such file.
    NotFound,
    /// Not permitted.
    Denied,
    /// The disk is full.
    Full,
    /// The file is longer than the limit.
    TooLarge,
    /// This host carries no such action out.
    Unsupported,
    /// Anything else.
    Failed,
}

impl fmt::Display for ActError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotFound => "no such file",
            Self::Denied => "not permitted",
            Self::Full => "the disk is full",
            Self::TooLarge => "the file is too large",
            Self::Unsupported => "not supported by this host",
            Self::Failed => "it failed",
        })
    }
}

impl core::error::Error for ActError {}

/// A path below the home: segments of letters, digits, `.`, `-` and `_`, joined by `/`, none of them `.` or `..`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FilePath(String);

impl FilePath {
    /// The longest path, in bytes.
    pub const MAX: usize = 512;

    /// Takes a path that cannot lead out of the home, or nothing.
    #[must_use]
    pub fn new(path: impl Into<String>) -> Option<Self> {
        let path = path.into();
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
        let fits = path.len() <= Self::MAX
            && path
                .split('/')
                .all(|part| !part.is_empty() && part != "." && part != ".." && part.bytes().all(plain));
        fits.then_some(Self(path))
    }

    /// The path, relative to the home.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A file's bytes. Wiped when dropped, since some files hold keys; `Debug` shows the length alone.
#[derive(Clone, PartialEq, Eq)]
pub struct Contents {
    bytes: Vec<u8>,
    secret: bool,
}

impl Contents {
    /// Contents that anybody may read.
    #[must_use]
    pub const fn public(bytes: Vec<u8>) -> Self {
        Self { bytes, secret: false }
    }

    /// Contents that only the owner of the home may read: mode 0600 from the file's first instant.
    #[must_use]
    pub const fn secret(bytes: Vec<u8>) -> Self {
        Self { bytes, secret: true }
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether only the owner of the home may read them.
    #[must_use]
    pub const fn is_secret(&self) -> bool {
        self.secret
    }
}

impl Drop for Contents {
    fn drop(&mut self) {
        if self.secret {
            self.bytes.zeroize();
        }
    }
}

impl fmt::Debug for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Contents({} bytes)", self.bytes.len())
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::*;

    #[test]
    fn a_path_cannot_lead_out_of_the_home() {
        for bad in ["", "/", "/etc/x", "..", "../x", "a/../b", "a//b", "a/", "./a", "a\0b", "a b", "a\\b"] {
            assert_eq!(FilePath::new(bad), None, "{bad:?}");
        }
        assert_eq!(FilePath::new("peers/build-2.key").unwrap().as_str(), "peers/build-2.key");
    }

    #[test]
    fn a_path_is_bounded() {
        assert!(FilePath::new("a".repeat(FilePath::MAX)).is_some());
        assert!(FilePath::new("a".repeat(FilePath::MAX + 1)).is_none());
    }

    #[test]
    fn debug_shows_nothing_of_a_files_bytes() {
        assert_eq!(format!("{:?}", Contents::secret(b"key".to_vec())), "Contents(3 bytes)");
    }
}
