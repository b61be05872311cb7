//! The home: the folder that holds a node's identity, keys and configuration.
//!
//! `identity` is one line, the node's peer id; `peers/` holds the keys (see [`crate::keys`]); `config.toml` is
//! optional (see [`crate::config`]). Folders are made for their owner alone (0700).

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use relay_core::secret::encode_hex;
use relay_core::text::PeerId;

use crate::atomic;
use crate::failure::Failure;
use crate::keys::Keys;
use crate::sessions::Sessions;

/// Longest `identity` file that is read, in bytes: an id, with white space round it.
const MAX_IDENTITY_FILE: usize = 1024;

/// Longest host name taken into an id, in bytes.
const MAX_HOST: usize = 64;

/// A home folder; it need not exist yet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Home {
    dir: PathBuf,
}

impl Home {
    /// The home that a command works on: `flag` (`--home`), else `RELAY_HOME`, else `.relay` in `HOME`. An empty
    /// variable counts as none.
    ///
    /// # Errors
    /// A usage failure if none of the three is there.
    pub fn locate<'v>(
        flag: Option<&Path>,
        var: impl Fn(&'static str) -> Option<&'v OsStr>,
    ) -> Result<Self, Failure> {
        let set = |name| var(name).filter(|value| !value.is_empty()).map(Path::new);
        if let Some(dir) = flag.or_else(|| set("RELAY_HOME")) {
            return Ok(Self::at(dir));
        }
        let user = set("HOME").ok_or_else(|| {
            Failure::usage(
                "there is no home folder: HOME is not set",
                "Name one: --home DIR, or RELAY_HOME=DIR.",
            )
        })?;
        Ok(Self::at(user.join(".relay")))
    }

    /// The home at `dir`.
    #[must_use]
    pub fn at(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    /// The folder itself.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Where the configuration is read from unless `--config` names another file.
    #[must_use]
    pub fn config_path(&self) -> PathBuf {
        self.dir.join("config.toml")
    }

    /// The place of a file that is there while something runs, or of their folder for `""`.
    #[must_use]
    pub fn run_path(&self, name: &str) -> PathBuf {
        let run = self.dir.join("run");
        if name.is_empty() { run } else { run.join(name) }
    }

    /// The journal of the service `name`, such as `link`.
    #[must_use]
    pub fn journal_path(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{name}.db"))
    }

    /// The sessions of this machine, as this home knows them.
    #[must_use]
    pub fn sessions(&self) -> Sessions {
        Sessions::at(self.dir.join("sessions"))
    }

    /// The keys of this home.
    #[must_use]
    pub fn keys(&self) -> Keys {
        Keys::at(self.dir.join("peers"))
    }

    /// The peer id in the `identity` file, or `None` if there is no such file.
    ///
    /// # Errors
    /// If the file cannot be read or holds no peer id.
    pub fn identity(&self) -> Result<Option<PeerId>, Failure> {
        let path = self.identity_path();
        let read = atomic::read_text(&path, MAX_IDENTITY_FILE);
        let Some(text) = read.map_err(|error| Failure::io("read", &path, &error))? else {
            return Ok(None);
        };
        if let Some(id) = PeerId::parse(text.trim()) {
            return Ok(Some(id));
        }
        Err(Failure::usage(
            format!("{} holds no peer id: one line, 1 to 128 of A-Z a-z 0-9 - _", path.display()),
            "Write this machine's id into it. Or remove it, and a new id is made: peers then know this machine by \
             another name and must be paired again.",
        ))
    }

    /// The peer id, made and stored if there was none: the short host name, a dash and eight hex digits of `fresh`.
    ///
    /// Of two processes that do this at once one makes the id and both return it.
    ///
    /// # Errors
    /// If the file cannot be read or made, or holds no peer id.
    pub fn identity_or_new(&self, host: &str, fresh: [u8; 4]) -> Result<PeerId, Failure> {
        if let Some(id) = self.identity()? {
            return Ok(id);
        }
        atomic::make_dir(&self.dir).map_err(|error| Failure::io("make", &self.dir, &error))?;
        let path = self.identity_path();
        let id = new_id(host, fresh);
        let made = atomic::write_new(&path, format!("{id}\n").as_bytes(), atomic::PRIVATE);
        if made.map_err(|error| Failure::io("write", &path, &error))? {
            return Ok(id);
        }
        self.identity()?.ok_or_else(|| {
            Failure::refused(format!("{} came and went meanwhile", path.display()), "Try again.")
        })
    }

    fn identity_path(&self) -> PathBuf {
        self.dir.join("identity")
    }
}

/// Reads a peer id that a user gave.
///
/// # Errors
/// The rule, in a line for people.
pub fn peer_id(text: &str) -> Result<PeerId, String> {
    let rule =
        "a peer id is 1 to 128 of A-Z a-z 0-9 - _ and not _pending (the peer shows its own: relay identity)";
    PeerId::parse(text).ok_or_else(|| rule.to_owned())
}

fn new_id(host: &str, fresh: [u8; 4]) -> PeerId {
    let short = host.split('.').next().unwrap_or_default().to_lowercase();
    let clean = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '-' };
    let name: String = short.chars().take(MAX_HOST).map(clean).collect();
    let name = name.trim_matches('-');
    let name = if name.is_empty() { "relay" } else { name };
    let id = format!("{name}-{}", encode_hex(&fresh));
    PeerId::parse(&id).expect("at most 73 bytes of a-z 0-9 -, and more than the reserved name")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::failure::Exit;

    fn locate(flag: Option<&str>, vars: &[(&'static str, &'static str)]) -> Result<Home, Failure> {
        let var = |name| vars.iter().find(|(n, _)| *n == name).map(|(_, value)| OsStr::new(*value));
        Home::locate(flag.map(Path::new), var)
    }

    #[test]
    fn home_is_the_flag_then_the_variable_then_the_users_folder() {
        let vars = [("RELAY_HOME", "/r"), ("HOME", "/u")];
        assert_eq!(locate(Some("/f"), &vars).unwrap().dir(), Path::new("/f"));
        assert_eq!(locate(None, &vars).unwrap().dir(), Path::new("/r"));
        assert_eq!(locate(None, &vars[1..]).unwrap().dir(), Path::new("/u/.relay"));
        assert_eq!(
            locate(None, &[("RELAY_HOME", ""), ("HOME", "/u")]).unwrap().dir(),
            Path::new("/u/.relay")
        );
        assert_eq!(locate(None, &[]).unwrap_err().exit, Exit::Usage);
    }

    #[test]
    fn an_id_is_the_short_host_name_and_eight_digits() {
        for (host, id) in [
            ("Build-2.Example.org", "build-2-0a0b0c0d"),
            ("my host_x", "my-host-x-0a0b0c0d"),
            ("", "relay-0a0b0c0d"),
            ("...", "relay-0a0b0c0d"),
            ("日本", "relay-0a0b0c0d"),
        ] {
            assert_eq!(new_id(host, [10, 11, 12, 13]).as_str(), id);
        }
        assert_eq!(new_id(&"x".repeat(500), [0; 4]).as_str().len(), MAX_HOST + 9);
    }

    #[test]
    fn an_identity_is_made_once_in_a_private_folder() {
        let temp = tempfile::tempdir().unwrap();
        let home = Home::at(temp.path().join("a/b"));
        assert_eq!(home.identity().unwrap(), None);
        let id = home.identity_or_new("host", [1; 4]).unwrap();
        assert_eq!(home.identity_or_new("other", [2; 4]).unwrap(), id);
        assert_eq!(fs::read_to_string(home.dir().join("identity")).unwrap(), format!("{id}\n"));
        assert_eq!(fs::metadata(home.dir()).unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn an_identity_is_trimmed_and_checked_when_read() {
        let temp = tempfile::tempdir().unwrap();
        let home = Home::at(temp.path());
        let path = temp.path().join("identity");
        fs::write(&path, "  Build-2 \r\n").unwrap();
        assert_eq!(home.identity().unwrap().unwrap().as_str(), "Build-2");
        for bad in ["", "a b", "a\nb", "../x", "_pending", &"x".repeat(129)] {
            fs::write(&path, bad).unwrap();
            let failure = home.identity_or_new("host", [1; 4]).unwrap_err();
            assert_eq!(failure.exit, Exit::Usage, "{bad}");
            assert!(failure.hint.contains("remove it"), "{failure}");
        }
        fs::write(&path, "x".repeat(1 << 20)).unwrap();
        assert_eq!(home.identity().unwrap_err().exit, Exit::Refused);
    }
}
