//! Runs the real program in a home of its own.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// A temporary folder with a home in it; the home does not exist until a command makes it.
pub(crate) struct Home {
    pub(crate) dir: tempfile::TempDir,
    name: String,
}

/// What a run gave back.
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Home {
    pub(crate) fn new() -> Self {
        Self::named("home")
    }

    pub(crate) fn named(name: &str) -> Self {
        Self { dir: tempfile::tempdir().unwrap(), name: name.to_owned() }
    }

    /// One on another filesystem.
    pub(crate) fn on(place: &Path) -> Self {
        Self { dir: tempfile::tempdir_in(place).unwrap(), name: "home".to_owned() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(&self.name).join(name)
    }

    /// The program with nothing of this process's environment.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_relay"));
        command.args(args).env_clear().env("RELAY_HOME", self.path("")).stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        Ran::of(self.command(args).output().unwrap())
    }

    pub(crate) fn run_with(&self, args: &[&str], stdin: &str) -> Ran {
        let mut command = self.command(args);
        let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = pipes.spawn().unwrap();
        child.stdin.take().unwrap().write_all(stdin.as_bytes()).unwrap();
        Ran::of(child.wait_with_output().unwrap())
    }

    /// Runs with `--json`, expects success, and gives back each line's object.
    pub(crate) fn json(&self, args: &[&str]) -> Vec<Value> {
        let ran = self.run(&[args, &["--json"]].concat());
        assert_eq!(ran.code, 0, "{}", ran.err);
        ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    pub(crate) fn put(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }
}

impl Ran {
    pub(crate) fn of(output: Output) -> Self {
        let Output { status, stdout, stderr } = output;
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self { code: status.code().unwrap(), out: text(stdout), err: text(stderr) }
    }
}

pub(crate) fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}
