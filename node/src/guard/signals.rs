//! The signals that a guard passes on to its command.

use std::io;
use std::sync::mpsc::Sender;
use std::thread;

use rustix::process::Signal;
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2, SIGWINCH};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::siginfo::Cause;

use super::Event;

/// A signal that came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Came {
    /// Which.
    pub(super) signal: Signal,
    /// Whether the terminal sent it, to its whole foreground group.
    pub(super) by_terminal: bool,
}

impl Came {
    /// Whether it asks its receiver to end.
    pub(super) fn is_an_end(self) -> bool {
        [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM].contains(&self.signal)
    }

    /// What a process that ended by it ends with, as shells have it.
    pub(super) fn code(self) -> u8 {
        128 + u8::try_from(self.signal.as_raw()).unwrap_or(0)
    }
}

const WATCHED: [i32; 9] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH, SIGTSTP, SIGCONT];

/// Tells of signals from now on. One that was ignored when this process began, as `nohup` and a shell's `&` have it, stays
/// ignored here and in the command.
pub(super) fn watch(told: Sender<Event>) -> io::Result<()> {
    let ignored = ignored();
    let watched = WATCHED.into_iter().filter(|signal| ignored & (1 << (signal - 1)) == 0);
    let mut signals = SignalsInfo::<WithOrigin>::new(watched)?;
    let run = move || {
        for origin in signals.forever() {
            let Some(signal) = Signal::from_named_raw(origin.signal) else { continue };
            let came = Came { signal, by_terminal: matches!(origin.cause, Cause::Kernel) };
            if told.send(Event::Signal(came)).is_err() {
                return;
            }
        }
    };
    thread::Builder::new().name("relay-signals".into()).spawn(run)?;
    Ok(())
}

/// The signals that this process ignores, a bit each from signal 1 up; none where the system does not say.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
