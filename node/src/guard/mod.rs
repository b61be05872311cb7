//! A command that runs while a lease is held, and no longer without knowing it.
//!
//! ```text
//!   prepared ──claim──▶ waiting ──granted──▶ running ──ended──▶ released
//!                          │                    │
//!                          ├ refused: 125       └ lost: says so, runs --on-loss, stops the command
//!                          ├ too late: 124              where it is to, and ends with 123
//!                          └ a signal: 128 + n
//! ```
//!
//! What is certain is counted on the clock that counts suspend: a machine that slept past the lease's end knows it.

mod certainty;
mod child;
mod signals;

use core::fmt;
use std::ffi::{OsStr, OsString};
use std::io;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use relay_core::lease::Patience;
use relay_core::time::Mono;
use relay_runtime::Clock;
use rustix::process::{Signal, getpid, kill_process};

pub(crate) use child::become_command;
pub use child::{Held, Papers};

use self::certainty::Repeated;
use self::child::{Family, code};
use self::signals::Came;
use crate::failure::Failure;

/// The lease was lost while the command ran.
pub const LOST: u8 = 123;
/// The time to wait was over before the lease was got.
pub const TOO_LATE: u8 = 124;
/// The lease was not got.
pub const NOT_GOT: u8 = 125;

/// How often the clock is looked at, so that a machine that wakes up notices what is over.
const GLANCE: Duration = Duration::from_millis(250);
/// How long behind the end of the time to wait the service may take to say so.
const LAST_WORD: Duration = Duration::from_secs(2);

/// A lease that is held.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Grant {
    /// What the command finds about it.
    pub papers: Papers,
    /// When it was granted, in the authority's words: another time is another lease.
    pub acquired_at: String,
    /// Until when it is held for certain.
    pub certain_until: Mono,
}

impl Grant {
    fn is_the_same_lease(&self, other: &Self) -> bool {
        self.papers == other.papers && self.acquired_at == other.acquired_at
    }
}

/// Why a lease is not held.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Denied {
    /// The authority says so.
    Refused(Failure),
    /// Nobody says anything.
    Unanswered(Failure),
    /// The time to wait was over.
    InVain(Failure),
}

/// Why a lease was not given back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NotReleased {
    /// The authority says that it was not held any more.
    NotHeld(Failure),
    /// It is not known.
    Unanswered(Failure),
}

/// Claims and releases one lease, from any thread.
pub trait Keeper: fmt::Debug + Send + Sync {
    /// Claims it, or claims it again; `wait` to wait where another holds it.
    ///
    /// # Errors
    /// It is not held.
    fn claim(&self, wait: Option<Patience>) -> Result<Grant, Denied>;

    /// Gives it back.
    ///
    /// # Errors
    /// It was not held, or nobody says.
    fn release(&self) -> Result<(), NotReleased>;

    /// Ends a claim that waits in another thread.
    fn hang_up(&self);
}

/// How a guard behaves.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Whether to wait where another holds the lease.
    pub wait: bool,
    /// How long at most.
    pub timeout: Option<Duration>,
    /// What to run through `sh -c` when the lease is lost.
    pub on_loss: Option<OsString>,
    /// Whether to stop the command when the lease is lost.
    pub kill_on_loss: bool,
    /// How long what is told to end may take before it is killed.
    pub grace: Duration,
}

/// What a guard hears of.
#[derive(Debug)]
enum Event {
    Said(Result<Grant, Denied>),
    Signal(Came),
    Ended,
}

/// A command that waits for its lease.
#[derive(Debug)]
pub struct Guard {
    held: Held,
    own_group: bool,
    told: Sender<Event>,
    events: Receiver<Event>,
    /// An end was passed on, to these.
    ending: Option<Family>,
}

impl Guard {
    /// Has a command wait, and signals passed on from now on. In a process group of its own unless a terminal is there.
    ///
    /// # Errors
    /// The system refuses something.
    pub fn prepare(command: &[OsString], own_group: bool) -> io::Result<Self> {
        let (told, events) = channel();
        signals::watch(told.clone())?;
        let held = Held::start(command, own_group)?;
        held.watch(told.clone())?;
        Ok(Self { held, own_group, told, events, ending: None })
    }

    /// The process that is to be the command.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.held.pid()
    }

    /// Claims, runs the command and releases; the code to end with. `say` tells the user what is not as it should be.
    pub fn run(mut self, keeper: &Arc<dyn Keeper>, plan: &Plan, say: &mut dyn FnMut(&Failure)) -> u8 {
        let grant = match self.wait_for(keeper, plan, say) {
            Ok(grant) => grant,
            Err(code) => return code,
        };
        if grant.papers.fencing_token.is_none() {
            say(&Failure::refused(
                "warning: the lease authority gives no fencing tokens, so RELAY_FENCING_TOKEN is not set",
                "",
            ));
        }
        let begun = Repeated::start(Arc::clone(keeper), &grant, self.told.clone())
            .and_then(|repeated| self.held.go(&grant.papers).map(|()| repeated));
        let repeated = match begun {
            Ok(repeated) => repeated,
            Err(error) => {
                say(&not_started(&error));
                abandon(keeper);
                return NOT_GOT;
            }
        };
        let mut watch = Watch { plan, grant, lost: None, quiet: None, kill_at: None, on_loss: None };
        self.watch(&mut watch, say);
        let ended = Clock.now().mono;
        self.end_family(&mut watch, say);
        let status = self.held.wait();
        drop(repeated);
        if watch.lost.is_none() && ended >= watch.grant.certain_until {
            watch.lose(None, &mut self, say);
        }
        release(keeper, &mut watch, say);
        watch.wait_on_loss();
        match status {
            _ if watch.lost.is_some() => LOST,
            Ok(status) => code(status),
            Err(_) => NOT_GOT,
        }
    }

    /// Waits for the lease; else the code to end with.
    fn wait_for(
        &mut self,
        keeper: &Arc<dyn Keeper>,
        plan: &Plan,
        say: &mut dyn FnMut(&Failure),
    ) -> Result<Grant, u8> {
        let give_up = plan.timeout.filter(|_| plan.wait).map(|span| Clock.now().mono.after(span));
        let left = || give_up.map(|give_up| give_up.since(Clock.now().mono));
        let patience = || plan.wait.then(|| left().map_or(Patience::Endless, Patience::For));
        self.claim(keeper, patience()).map_err(|error| {
            say(&not_started(&error));
            NOT_GOT
        })?;
        loop {
            let event = match left() {
                Some(left) => self.events.recv_timeout(left + LAST_WORD),
                None => self.events.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            let is_over = give_up.is_some_and(|give_up| give_up <= Clock.now().mono);
            let code = match event {
                Ok(Event::Said(Ok(_))) | Err(_) if is_over => {
                    say(&too_late(None));
                    TOO_LATE
                }
                // Whatever held this process up, nothing starts on what is not certain any more.
                Ok(Event::Said(Ok(grant))) if grant.certain_until <= Clock.now().mono => {
                    match self.claim(keeper, patience()) {
                        Ok(()) => continue,
                        Err(error) => {
                            say(&not_started(&error));
                            NOT_GOT
                        }
                    }
                }
                Ok(Event::Said(Ok(grant))) => return Ok(grant),
                Ok(Event::Said(Err(Denied::InVain(why)))) => {
                    say(&too_late(Some(&why)));
                    return Err(TOO_LATE);
                }
                Ok(Event::Said(Err(Denied::Refused(why)))) => {
                    say(&why);
                    return Err(NOT_GOT);
                }
                Ok(Event::Said(Err(Denied::Unanswered(why)))) => {
                    say(&why);
                    NOT_GOT
                }
                Ok(Event::Signal(came)) if came.is_an_end() => came.code(),
                Ok(Event::Signal(came)) => {
                    if came.signal == Signal::TSTP {
                        stop_here();
                    }
                    continue;
                }
                Ok(Event::Ended) | Err(_) => {
                    say(&Failure::refused("the process that waited for the lease was ended", "Try again."));
                    NOT_GOT
                }
            };
            // Nobody may be left with a lease, or a place in the queue, that nobody waits for.
            abandon(keeper);
            return Err(code);
        }
    }

    fn claim(&self, keeper: &Arc<dyn Keeper>, wait: Option<Patience>) -> io::Result<()> {
        let (keeper, told) = (Arc::clone(keeper), self.told.clone());
        thread::Builder::new().name("relay-claim".into()).spawn(move || {
            // Nobody listens where the guard has ended.
            let _ = told.send(Event::Said(keeper.claim(wait)));
        })?;
        Ok(())
    }

    /// Watches lease and command until the command has ended.
    fn watch(&mut self, watch: &mut Watch<'_>, say: &mut dyn FnMut(&Failure)) {
        loop {
            let now = Clock.now().mono;
            let certain = if watch.lost.is_some() { GLANCE } else { watch.grant.certain_until.since(now) };
            match self.events.recv_timeout(certain.min(GLANCE).min(watch.until_kill())) {
                Ok(Event::Ended) => return,
                Ok(Event::Signal(came)) => self.pass_on(came),
                Ok(Event::Said(said)) => watch.heard(said, self, say),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
            if watch.lost.is_none() && watch.grant.certain_until <= Clock.now().mono {
                watch.lose(None, self, say);
            }
            if watch.is_time_to_kill() {
                self.held.signal(Signal::KILL);
            }
        }
    }

    fn pass_on(&mut self, came: Came) {
        if came.is_an_end() {
            self.ending = Some(self.held.family());
        }
        // What the terminal sends it sends to the whole group, and twice would be once too often.
        if self.own_group || !came.by_terminal {
            self.held.signal(came.signal);
        }
        if came.signal == Signal::TSTP {
            stop_here();
        }
    }

    /// What the command started does not outlive the lease where it was told to end; else it is only told of.
    fn end_family(&mut self, watch: &mut Watch<'_>, say: &mut dyn FnMut(&Failure)) {
        let left = self.held.family();
        let Some(told) = self.ending.take() else {
            if left.left() > 0 {
                let what =
                    format!("warning: {} processes of the command run on without the lease", left.left());
                say(&Failure::refused(what, ""));
            }
            return;
        };
        let kill_at = *watch.kill_at.get_or_insert_with(|| Instant::now() + watch.plan.grace);
        while left.left() + told.left() > 0 && Instant::now() < kill_at {
            let pause = Duration::from_millis(20).min(kill_at.saturating_duration_since(Instant::now()));
            match self.events.recv_timeout(pause) {
                Ok(Event::Signal(came)) if came.is_an_end() => {
                    left.signal(came.signal);
                    told.signal(came.signal);
                }
                Ok(Event::Said(said)) => watch.heard(said, self, say),
                Ok(_) | Err(_) => {}
            }
        }
        left.signal(Signal::KILL);
        told.signal(Signal::KILL);
    }
}

/// A lease and what was done about it, while its command runs.
struct Watch<'p> {
    plan: &'p Plan,
    grant: Grant,
    /// Whether the authority itself said that it is lost.
    lost: Option<bool>,
    /// Why the last claim had no answer.
    quiet: Option<Failure>,
    kill_at: Option<Instant>,
    on_loss: Option<Child>,
}

impl Watch<'_> {
    fn heard(&mut self, said: Result<Grant, Denied>, guard: &mut Guard, say: &mut dyn FnMut(&Failure)) {
        if self.lost.is_some() {
            return;
        }
        match said {
            Ok(grant) if grant.is_the_same_lease(&self.grant) => {
                // What was certain before stays so.
                self.grant.certain_until = self.grant.certain_until.max(grant.certain_until);
                self.quiet = None;
            }
            Ok(_) => self.lose(Some("it had ended, and was granted anew".to_owned()), guard, say),
            Err(Denied::Refused(why)) => self.lose(Some(why.message), guard, say),
            Err(Denied::Unanswered(why) | Denied::InVain(why)) => self.quiet = Some(why),
        }
    }

    /// The lease is lost: the authority says so, or nobody has answered for too long.
    fn lose(&mut self, said: Option<String>, guard: &mut Guard, say: &mut dyn FnMut(&Failure)) {
        self.lost = Some(said.is_some());
        let quiet = self.quiet.as_ref().map_or("no answer came in time", |why| why.message.as_str());
        let why = said.as_deref().unwrap_or(quiet);
        let id = &self.grant.papers.lease_id;
        let next = if self.plan.kill_on_loss {
            "The command is told to end."
        } else {
            "The command runs on, and others may run it too: stop it, or use --kill-on-loss."
        };
        say(&Failure::refused(format!("the lease {id} is lost: {why}"), next));
        if let Some(command) = &self.plan.on_loss {
            match run_on_loss(command, &self.grant.papers, guard.own_group) {
                Ok(child) => self.on_loss = Some(child),
                Err(error) => say(&Failure::refused(format!("--on-loss could not be run: {error}"), "")),
            }
        }
        if self.plan.kill_on_loss {
            guard.ending = Some(guard.held.family());
            guard.held.signal(Signal::TERM);
            // One that is stopped hears of it too.
            guard.held.signal(Signal::CONT);
            self.kill_at = Some(Instant::now() + self.plan.grace);
        }
    }

    fn until_kill(&self) -> Duration {
        self.kill_at.map_or(GLANCE, |at| at.saturating_duration_since(Instant::now()))
    }

    /// Whether the grace is over; once.
    fn is_time_to_kill(&mut self) -> bool {
        let is_over = self.kill_at.is_some_and(|at| at <= Instant::now());
        if is_over {
            self.kill_at = None;
        }
        is_over
    }

    /// What was run for the loss is waited for as long as what is told to end.
    fn wait_on_loss(&mut self) {
        let until = Instant::now() + self.plan.grace;
        while let Some(child) = &mut self.on_loss
            && let Ok(None) = child.try_wait()
            && Instant::now() < until
        {
            thread::sleep(Duration::from_millis(20));
        }
    }
}

fn run_on_loss(command: &OsStr, papers: &Papers, own_group: bool) -> io::Result<Child> {
    use std::os::unix::process::CommandExt;
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(command).stdin(Stdio::null());
    papers.put(&mut shell);
    if own_group {
        shell.process_group(0);
    }
    shell.spawn()
}

/// Gives the lease back, unless the authority has said that it is not ours.
fn release(keeper: &Arc<dyn Keeper>, watch: &mut Watch<'_>, say: &mut dyn FnMut(&Failure)) {
    if watch.lost == Some(true) {
        return;
    }
    match keeper.release() {
        Ok(()) => {}
        // It was said already that nothing is certain.
        Err(_) if watch.lost.is_some() => {}
        Err(NotReleased::NotHeld(why)) => {
            let what = format!("the lease was lost before the command ended: {}", why.message);
            say(&Failure::refused(what, "What the command did was not guarded to its end."));
            watch.lost = Some(true);
        }
        Err(NotReleased::Unanswered(why)) => {
            let id = &watch.grant.papers.lease_id;
            let what = format!("the lease {id} could not be released: {}", why.message);
            say(&Failure::refused(
                what,
                "It was held to the command's end, and ends by itself with its time.",
            ));
        }
    }
}

/// Takes back what may have been got; nobody waits for how that went.
fn abandon(keeper: &Arc<dyn Keeper>) {
    keeper.hang_up();
    let (keeper, (done, waits)) = (Arc::clone(keeper), channel::<()>());
    let released = thread::Builder::new().name("relay-abandon".into()).spawn(move || {
        let _done = done;
        let _ = keeper.release();
    });
    if released.is_ok() {
        let _ = waits.recv_timeout(LAST_WORD);
    }
}

/// Stops this process as the terminal would have, until it is told to go on.
fn stop_here() {
    let _ = kill_process(getpid(), Signal::STOP);
}

fn not_started(error: &io::Error) -> Failure {
    Failure::refused(format!("the command could not be started: {error}"), "Try again.")
}

fn too_late(why: Option<&Failure>) -> Failure {
    let why = why.map_or("the time to wait is over, and the lease was not got", |why| why.message.as_str());
    Failure::unreachable(why, "Wait longer: --timeout. Who holds it: relay lease list.")
}
