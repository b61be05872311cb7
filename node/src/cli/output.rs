//! The answer on stdout, the talk on stderr, and how each looks to a person, a script and a JSON reader.
//!
//! A reader that went away (a broken pipe) ends the answer quietly. Any other failure to write is told by
//! [`Output::finish`]: a command that could not deliver its answer did not succeed.

use std::io::{self, Write};

use serde::Serialize;

use super::Globals;
use crate::failure::Failure;
use crate::service::Line;

/// The two streams of one command.
pub struct Output<'o> {
    stdout: &'o mut dyn Write,
    stderr: &'o mut dyn Write,
    json: bool,
    aligned: bool,
    quiet: bool,
    verbose: u8,
    colour: bool,
    broken: Option<io::Error>,
    /// A line of a service was not written whole.
    torn: bool,
    /// It was told that such lines are lost.
    told: bool,
}

impl core::fmt::Debug for Output<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Output")
            .field("json", &self.json)
            .field("aligned", &self.aligned)
            .finish_non_exhaustive()
    }
}

impl<'o> Output<'o> {
    pub(super) fn new(
        globals: &Globals,
        aligned: bool,
        colour: bool,
        stdout: &'o mut dyn Write,
        stderr: &'o mut dyn Write,
    ) -> Self {
        let Globals { json, quiet, verbose, .. } = *globals;
        Self { stdout, stderr, json, aligned, quiet, verbose, colour, broken: None, torn: false, told: false }
    }

    /// Whether the answer is to be JSON.
    #[must_use]
    pub const fn is_json(&self) -> bool {
        self.json
    }

    /// Whether the answer goes to a terminal, so that tables are aligned.
    #[must_use]
    pub const fn is_aligned(&self) -> bool {
        self.aligned
    }

    /// Empties the terminal, for what is drawn again.
    pub fn clear(&mut self) {
        if self.broken.is_none() {
            self.broken = self.stdout.write_all(b"\x1b[H\x1b[2J").err();
        }
    }

    /// Whether anybody still reads the answer.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        self.broken.is_none()
    }

    /// Answers with one JSON object on a line of its own.
    pub fn object(&mut self, object: &impl Serialize) {
        let text = serde_json::to_string(object).expect("an answer has string keys only");
        self.raw(&text);
    }

    /// Answers with one line of text.
    pub fn line(&mut self, text: &str) {
        self.raw(&clean(text));
    }

    /// Answers with something that happened. A service outlives a full disk, which strangers can fill with what they
    /// have it say: such lines are lost, of which the first is warned of, and only a reader that went away counts as
    /// nobody reading.
    pub fn event(&mut self, line: &Line) {
        if core::mem::take(&mut self.torn) {
            self.raw("");
        }
        if self.json {
            self.object(line);
        } else {
            self.line(&line.what.to_string());
        }
        let Some(error) = self.broken.take_if(|error| error.kind() != io::ErrorKind::BrokenPipe) else {
            return;
        };
        self.torn = true;
        if !core::mem::replace(&mut self.told, true) {
            self.warn(&format!("event lines cannot be written, and those are lost: {error}"));
        }
    }

    /// Answers with text that has lines of its own.
    pub fn text(&mut self, text: &str) {
        for line in text.lines() {
            self.line(line);
        }
    }

    /// Answers with names and their values: aligned on a terminal, else with a tab between.
    pub fn facts(&mut self, facts: &[(&str, &str)]) {
        let rows: Vec<_> =
            facts.iter().map(|(name, value)| vec![(*name).to_owned(), (*value).to_owned()]).collect();
        self.rows(&rows);
    }

    /// Answers with a list: an aligned table under a heading on a terminal, else fields with tabs between and no
    /// heading.
    pub fn table(&mut self, heading: &[&str], mut rows: Vec<Vec<String>>) {
        if self.aligned {
            rows.insert(0, heading.iter().map(|&name| name.to_owned()).collect());
        }
        self.rows(&rows);
    }

    /// Says something on stderr, unless `--quiet`.
    pub fn talk(&mut self, text: &str) {
        if !self.quiet {
            self.say(&clean(text));
        }
    }

    /// Warns on stderr, unless `--quiet`.
    pub fn warn(&mut self, text: &str) {
        if !self.quiet {
            let word = if self.colour { "\u{1b}[1;33mwarning:\u{1b}[0m" } else { "warning:" };
            self.say(&format!("relay: {word} {}", clean(text)));
        }
    }

    /// Says what went wrong, and goes on.
    pub fn fail(&mut self, failure: &Failure) {
        self.say(&clean(&failure.to_string()));
    }

    /// Says what only `-v` (1) or `-vv` (2) wants to know.
    pub fn detail(&mut self, level: u8, text: &str) {
        if self.verbose >= level {
            self.talk(text);
        }
    }

    pub(super) fn finish(&mut self) -> Result<(), Failure> {
        if self.broken.is_none() {
            self.broken = self.stdout.flush().err();
        }
        match self.broken.take() {
            Some(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::refused(
                format!("the answer could not be written: {error}"),
                "What was asked for is done; ask again for the answer, into another file.",
            )),
            Some(_) | None => Ok(()),
        }
    }

    /// Answers with rows that have no heading: aligned on a terminal, else with tabs between.
    pub(super) fn rows(&mut self, rows: &[Vec<String>]) {
        let rows: Vec<Vec<String>> =
            rows.iter().map(|row| row.iter().map(|cell| clean(cell)).collect()).collect();
        let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
        let width =
            |column: usize| rows.iter().filter_map(|r| r.get(column)).map(|c| c.chars().count()).max();
        let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
        for row in &rows {
            let line = if self.aligned {
                let cells = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:width$}"));
                cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
            } else {
                row.join("\t")
            };
            self.raw(&line);
        }
    }

    fn raw(&mut self, line: &str) {
        if self.broken.is_none() {
            self.broken = self.stdout.write_all(format!("{line}\n").as_bytes()).err();
        }
    }

    fn say(&mut self, line: &str) {
        // With stderr gone there is nobody to tell.
        let _ = writeln!(self.stderr, "{line}");
    }
}

/// A line without control characters, so that no stored text can move the cursor or break a table.
fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}
