//! The journal of the program, on a disk, in processes that are killed and under both drivers.
#![allow(clippy::unwrap_used, clippy::unwrap_in_result, reason = "a scenario that fails panics")]

mod beside;
mod crash;
mod damage;
mod drivers;
mod full;

use std::io::{BufRead, BufReader, Lines};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

/// A process that appends to a journal until it is killed.
pub(crate) struct Writer {
    child: Child,
    said: Lines<BufReader<ChildStdout>>,
    /// The newest record that it said is durable.
    pub(crate) durable: u64,
    /// The newest record that it said a snapshot reaches to.
    pub(crate) cut: u64,
}

impl Writer {
    /// Starts it and waits until it has the journal open.
    pub(crate) fn start(path: &Path, seed: u64) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_journal-under-test"));
        command.arg("write").arg(path).arg(seed.to_string());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
        assert_eq!(said.next().unwrap().unwrap(), "open");
        Self { child, said, durable: 0, cut: 0 }
    }

    /// Reads the next thing that it says; false where it has ended and all was read.
    pub(crate) fn hear(&mut self) -> bool {
        let Some(line) = self.said.next() else { return false };
        let line = line.unwrap();
        match line.split_once(' ').map(|(word, number)| (word, number.parse().unwrap())) {
            Some(("durable", number)) => self.durable = number,
            Some(("cut", number)) => self.cut = number,
            other => panic!("{other:?} was said"),
        }
        true
    }

    /// Kills it where it stands, and reads what it had said before.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        while self.hear() {}
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
