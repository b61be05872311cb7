//! What a program prints, as it prints it.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// The lines of one or more streams of a running program, in the order in which they came.
pub struct Lines {
    sender: Option<Sender<String>>,
    lines: Receiver<String>,
    /// All that was read so far, for the report of a failure.
    seen: Vec<String>,
}

impl Default for Lines {
    fn default() -> Self {
        let (sender, lines) = channel();
        Self { sender: Some(sender), lines, seen: Vec::new() }
    }
}

impl Lines {
    /// Starts a command and reads all that it prints, on either stream.
    ///
    /// # Panics
    /// Where it cannot be started.
    #[must_use]
    pub fn of(command: &mut Command) -> (Child, Self) {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program can be started");
        let mut lines = Self::default();
        lines.read(child.stdout.take().expect("stdout is a pipe"));
        lines.read(child.stderr.take().expect("stderr is a pipe"));
        // The end of both streams is the end of the lines.
        lines.sender = None;
        (child, lines)
    }

    /// Reads a stream to its end, on a thread of its own.
    fn read(&mut self, stream: impl Read + Send + 'static) {
        let Some(sender) = self.sender.clone() else { return };
        thread::spawn(move || {
            for line in BufReader::new(stream).split(b'\n').map_while(Result::ok) {
                if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                    return;
                }
            }
        });
    }

    /// The next line for which `find` gives something, or `None` when `patience` is over or the program has ended.
    pub fn find<T>(&mut self, patience: Duration, mut find: impl FnMut(&str) -> Option<T>) -> Option<T> {
        let until = Instant::now() + patience;
        loop {
            match self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    let found = find(&line);
                    self.seen.push(line);
                    if found.is_some() {
                        return found;
                    }
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return None,
            }
        }
    }

    /// All that was read so far.
    #[must_use]
    pub fn seen(&self) -> String {
        self.seen.join("\n")
    }
}
