//! SIGINT, SIGTERM and SIGHUP: the first ends a service in order, the second at once.

use std::io;
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::Stop;
use crate::failure::Exit;

/// Has `stop` called at the first signal.
///
/// # Errors
/// The handlers could not be set.
pub fn watch(stop: Stop) -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    thread::Builder::new().name("relay-signals".into()).spawn(move || {
        let mut arrived = signals.forever();
        if let Some(signal) = arrived.next() {
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
