//! SIGINT, SIGTERM and SIGHUP: the first ends a service in order and in bounded time, the second at once.

use std::io;
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::Stop;
use crate::failure::Exit;

/// How long the end may take, whatever holds it up: a pipe that nobody reads, a disk that hangs.
const LONGEST: Duration = Duration::from_secs(5);

/// Has `stop` called at the first signal.
///
/// # Errors
/// The handlers could not be set.
pub fn watch(stop: Stop) -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    thread::Builder::new().name("relay-signals".into()).spawn(move || {
        let mut arrived = signals.forever();
        if let Some(signal) = arrived.next() {
            let bound = thread::Builder::new().name("relay-end".into()).spawn(|| {
                thread::sleep(LONGEST);
                std::process::exit(0);
            });
            if let Err(error) = bound {
                tracing::warn!("the end is not bounded in time: {error}");
            }
            stop.now(name(signal));
        }
        if arrived.next().is_some() {
            // Somebody insists: what is left of the drain is not waited for.
            std::process::exit(Exit::Interrupted.code().into());
        }
    })?;
    Ok(())
}

const fn name(signal: i32) -> &'static str {
    match signal {
        SIGINT => "SIGINT",
        SIGTERM => "SIGTERM",
        SIGHUP => "SIGHUP",
        _ => "signal",
    }
}
