//! SIGINT, SIGTERM and SIGHUP: the first ends a service in order and in bounded time, the second at once.

use std::io;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::Stop;
use crate::failure::{Exit, Failure};

/// How long the end may take, whatever holds it up: a pipe that nobody reads, a disk that hangs, a start.
const LONGEST: Duration = Duration::from_secs(5);

/// Signals that are caught from now on, and kept until there is a service to end.
#[derive(Debug)]
pub struct Caught {
    service: Sender<Stop>,
}

/// Catches signals. To be called before a service leaves anything behind that a signal's own way would not remove.
///
/// # Errors
/// The handlers could not be set.
pub fn catch() -> Result<Caught, Failure> {
    let failed =
        |error: io::Error| Failure::refused(format!("signals cannot be watched: {error}"), "Try again.");
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(failed)?;
    let (service, started) = channel::<Stop>();
    let watching = thread::Builder::new().name("relay-signals".into()).spawn(move || {
        let mut arrived = signals.forever();
        if let Some(signal) = arrived.next() {
            let bound = thread::Builder::new().name("relay-end".into()).spawn(|| {
                thread::sleep(LONGEST);
                std::process::exit(0);
            });
            if let Err(error) = bound {
                tracing::warn!("the end is not bounded in time: {error}");
            }
            // One that does not start ends by itself.
            if let Ok(stop) = started.recv() {
                stop.now(name(signal));
            }
        }
        if arrived.next().is_some() {
            // Somebody insists: what is left of the drain is not waited for.
            std::process::exit(Exit::Interrupted.code().into());
        }
    });
    watching.map_err(failed)?;
    Ok(Caught { service })
}

impl Caught {
    /// Has `stop` called at the first signal, at once where it came already.
    pub fn end(self, stop: Stop) {
        // The thread that takes it ends no sooner than the process.
        let _ = self.service.send(stop);
    }
}

const fn name(signal: i32) -> &'static str {
    match signal {
        SIGINT => "SIGINT",
        SIGTERM => "SIGTERM",
        SIGHUP => "SIGHUP",
        _ => "signal",
    }
}
