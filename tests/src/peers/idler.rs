//! A process that does nothing, for a session to be of.

use std::process::{Child, Command, Stdio};

/// A process that runs until it is killed or dropped. It ends with the test's own process too.
#[derive(Debug)]
pub struct Idler(Child);

impl Idler {
    /// Starts one.
    ///
    /// # Panics
    /// Where it cannot be started.
    #[must_use]
    pub fn start() -> Self {
        // claudectl looks for its own name in the command.
        let mut command = Command::new("sh");
        command.args(["-c", "read line", "claude"]).stdin(Stdio::piped()).stdout(Stdio::null());
        let child = command.spawn();
        Self(child.expect("the program can be started"))
    }

    /// Its number.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Ends it as a crash does.
    pub fn kill(self) {
        drop(self);
    }
}

impl Drop for Idler {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
