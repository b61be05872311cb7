//! Secrets that a command takes: from a file or stdin rather than from an argument, which other users can see.

use std::io::Read;
use std::path::Path;

use zeroize::Zeroizing;

use super::Context;
use crate::atomic;
use crate::failure::Failure;

/// Longest secret that is read, in bytes.
const MAX_SECRET: usize = 4096;

/// The argument itself, or all of stdin where it is `-`. `what` names it in errors and in the prompt on a terminal.
pub(super) fn argument(
    value: &str,
    what: &str,
    context: &mut Context<'_>,
) -> Result<Zeroizing<String>, Failure> {
    if value != "-" {
        return Ok(Zeroizing::new(value.to_owned()));
    }
    if context.stdin_is_terminal {
        context.out.talk(&format!("Type the {what}, then Enter and Ctrl-D:"));
    }
    // A text that grew would leave copies of its beginning behind.
    let mut text = Zeroizing::new(String::with_capacity(MAX_SECRET + 1));
    let read = context.stdin.take(MAX_SECRET as u64 + 1).read_to_string(&mut text);
    read.map_err(|error| Failure::refused(format!("the {what} cannot be read from stdin: {error}"), ""))?;
    if text.len() > MAX_SECRET {
        return Err(Failure::usage(format!("stdin holds more than a {what}"), "Pipe in the one line alone."));
    }
    Ok(text)
}

/// The content of the file at `path`, or all of stdin where that is `-`.
pub(super) fn file(path: &Path, what: &str, context: &mut Context<'_>) -> Result<Zeroizing<String>, Failure> {
    if path == Path::new("-") {
        return argument("-", what, context);
    }
    let hint = || format!("Name the file that holds the {what}, or - for stdin.");
    match atomic::read_text(path, MAX_SECRET) {
        Ok(Some(text)) => Ok(text),
        Ok(None) => Err(Failure::usage(format!("there is no file {}", path.display()), hint())),
        Err(error) => Err(Failure::refused(format!("cannot read {}: {error}", path.display()), hint())),
    }
}
