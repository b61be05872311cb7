//! The pump: delivers, settles, sleeps.

use std::any::Any;
use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io::{self, ErrorKind};
use std::panic::{self, AssertUnwindSafe};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use async_io::Timer;
use relay_core::host::Host;
use relay_core::journal::Seq;
use relay_core::machine::{ConnId, ListenerId, Machine};
use relay_core::time::Mono;
use relay_runtime::{Clock, Desk, Events, Handle, Listener, Options};
use smol::LocalExecutor;
use smol::future::yield_now;

use crate::bell::Bell;
use crate::conn::{Reader, Watcher, Writer, dial};
use crate::failures::Failures;
use crate::net::{Door, Links, Net, Spawn};

/// The buffer that all reads share, in bytes.
const BUFFER: usize = 64 << 10;
/// Connections that one listener gives in a turn.
const ACCEPTS: usize = 64;
/// How long an acceptor waits where the process has no descriptor left, or the listener fails.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The longest sleep. Timers here do not count suspend but the machine's clock does, so that after one a deadline may
/// be this late.
const LONGEST_SLEEP: Duration = Duration::from_secs(30);

/// A machine that is ready to be driven.
///
/// [`start`](crate::start) gives it a thread; a program with an executor of its own spawns [`run`](Self::run) instead:
///
/// ```
/// # use relay_core::{journal::Seq, machine::{Input, Machine}, outbox::Outbox, time::{Mono, Now}};
/// # struct Idle;
/// # impl Machine for Idle {
/// #     type Command = ();
/// #     type Answer = ();
/// #     type Event = ();
/// #     fn step(&mut self, _: Now, input: Input<'_, ()>, out: &mut Outbox<(), ()>) {
/// #         if let Input::Command { ticket, .. } = input { out.answer(ticket, ()) }
/// #     }
/// #     fn deadline(&self) -> Option<Mono> { None }
/// # }
/// use std::time::Duration;
///
/// let (driver, handle, _events) = relay_smol::Driver::new(Idle, Seq::NONE, vec![], Default::default())?;
/// let executor = smol::LocalExecutor::new();
/// let task = executor.spawn(driver.run());
/// smol::block_on(executor.run(async {
///     assert_eq!(handle.command(()).expect("the driver runs").await, Some(Ok(())));
///     handle.shutdown(Duration::from_secs(1));
///     task.await;
/// }));
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Driver<M: Machine + 'static> {
    core: Core<M>,
    bell: Bell,
}

impl<M: Machine + 'static> Driver<M> {
    /// Sets a machine up; nothing happens before [`run`](Self::run) is polled, but commands are taken.
    ///
    /// # Errors
    /// The journal's thread could not be started, or a listener could not be watched.
    pub fn new(
        machine: M,
        newest: Seq,
        listeners: Vec<Listener>,
        options: Options,
    ) -> io::Result<(Self, Handle<M>, Events<M::Event>)> {
        let doors = listeners.into_iter().map(Door::new).collect::<io::Result<Vec<_>>>()?;
        let bell = Bell::default();
        let (desk, handle, events) = Desk::new(options, bell.clone())?;
        let core = Core {
            host: Host::new(machine, newest),
            net: Net { links: Links::default(), doors, spawn: Vec::new(), desk },
            failures: Failures::new()?,
            buffer: vec![0; BUFFER].into_boxed_slice(),
            clock: Clock,
            panic: None,
            turn: 1,
            next_turn: Vec::new(),
            starved: Vec::new(),
        };
        Ok((Self { core, bell }, handle, events))
    }

    /// Drives the machine until it is shut down through its handle, or the future is dropped.
    ///
    /// The driver may be sent to another thread; the future may not, and stays on the thread that first polled it. It
    /// runs its connections inside itself, so that any executor which takes such a future will do: a
    /// [`LocalExecutor`], or [`smol::block_on`]. It never blocks while it runs; at its end it waits for the journal to
    /// commit what it was given.
    pub async fn run(self) {
        let shared = Rc::new(Shared { core: RefCell::new(self.core), bell: self.bell });
        // Dropped before `shared`: the tasks hold the one and are held by the other.
        let executor = LocalExecutor::new();
        executor.spawn(Watcher(Rc::clone(&shared))).detach();
        let doors = shared.core.borrow().net.doors.len();
        for door in 0..doors {
            executor.spawn(Acceptor::new(Rc::clone(&shared), door)).detach();
        }
        // As the future that the executor runs, not as one of its tasks, the pump comes after all tasks that are ready,
        // at the latest after 200 of them.
        executor.run(pump(&executor, &shared)).await;
    }
}

/// What the tasks of a driver share. A guard of `core` never lives across an await, and no waker or task that is woken
/// or dropped under one comes back here before its turn.
pub(crate) struct Shared<M: Machine + 'static> {
    pub(crate) core: RefCell<Core<M>>,
    pub(crate) bell: Bell,
}

pub(crate) struct Core<M: Machine + 'static> {
    pub(crate) host: Host<M>,
    pub(crate) net: Net<M>,
    pub(crate) failures: Failures,
    pub(crate) buffer: Box<[u8]>,
    pub(crate) clock: Clock,
    /// What a task panicked with.
    panic: Option<Box<dyn Any + Send>>,
    /// Numbers the pump's turns; never 0, which is the turn of what was never read.
    pub(crate) turn: u32,
    /// Tasks that have had their share of this turn.
    pub(crate) next_turn: Vec<Waker>,
    /// Readers that wait for the journal to catch up.
    pub(crate) starved: Vec<ConnId>,
}

/// What comes behind a turn.
enum Turn {
    /// Another, once the tasks had theirs.
    Again,
    /// Sleep.
    Sleep(Option<Mono>),
    /// Nothing any more.
    Done,
}

async fn pump<M: Machine + 'static>(executor: &LocalExecutor<'static>, shared: &Rc<Shared<M>>) {
    let mut alarm = Alarm::default();
    loop {
        let turn = shared.core.borrow_mut().turn();
        shared.spawn(executor);
        match turn {
            Turn::Again => yield_now().await,
            Turn::Sleep(until) => {
                alarm.set(shared, until);
                poll_fn(|context| {
                    let rung = shared.bell.poll_rung(context);
                    if alarm.poll_due(context).is_ready() { Poll::Ready(()) } else { rung }
                })
                .await;
                shared.core.borrow().net.desk.woke();
            }
            Turn::Done => return,
        }
    }
}

impl<M: Machine + 'static> Core<M> {
    fn turn(&mut self) -> Turn {
        if let Some(panic) = self.panic.take() {
            panic::resume_unwind(panic);
        }
        let now = self.clock.now();
        self.net.desk.deliver(&mut self.host, now);
        self.host.timer(now);
        let more = self.host.settle(now, &mut self.net);
        self.turn = self.turn.wrapping_add(1).max(1);
        self.next_turn.drain(..).for_each(Waker::wake);
        if !self.host.is_congested() {
            for conn in self.starved.drain(..) {
                if let Some(link) = self.net.links.get_mut(conn) {
                    link.unpark();
                }
            }
            self.net.doors.iter_mut().filter(|door| door.open).for_each(Door::unpark);
        }
        if self.host.is_done(now) {
            self.host.stop(now, &mut self.net);
            return Turn::Done;
        }
        if more || !self.net.desk.sleep() { Turn::Again } else { Turn::Sleep(self.host.deadline()) }
    }
}

impl<M: Machine + 'static> Shared<M> {
    /// Lets a task tell the host something.
    ///
    /// An executor keeps a task's panic for whoever awaits the task, which nobody does here, and a machine that panicked
    /// in the midst of a step must not take another: the pump ends the driver with it.
    pub(crate) fn enter<T>(&self, tell: impl FnOnce(&mut Core<M>) -> Poll<T>) -> Poll<T> {
        let mut core = self.core.borrow_mut();
        match panic::catch_unwind(AssertUnwindSafe(|| tell(&mut core))) {
            Ok(told) => told,
            Err(panic) => {
                core.panic = Some(panic);
                self.bell.ring();
                Poll::Pending
            }
        }
    }

    /// Starts the tasks that are to be started.
    fn spawn(self: &Rc<Self>, executor: &LocalExecutor<'static>) {
        let mut core = self.core.borrow_mut();
        let Core { net: Net { links, spawn, .. }, failures, .. } = &mut *core;
        for new in spawn.drain(..) {
            let Some(link) = links.get_mut(new.conn()) else { continue };
            let shared = Rc::clone(self);
            match new {
                Spawn::Reader(conn) => link.task = Some(executor.spawn(Reader::new(shared, conn))),
                Spawn::Writer(conn) => link.writer = Some(executor.spawn(Writer::new(shared, conn))),
                Spawn::Watch(conn) => {
                    if let Some(socket) = &link.socket {
                        failures.watch((conn.slot() as u32, conn.generation()), socket);
                    }
                }
                Spawn::Dial(conn, target) => link.task = Some(executor.spawn(dial(shared, conn, target))),
            }
        }
    }
}

/// One timer for all turns. It is moved only where a deadline comes before it: most turns push the deadline back, and
/// to wake once too early is cheaper than to arm the timer every time.
#[derive(Default)]
struct Alarm {
    armed: Option<(Mono, Timer)>,
}

impl Alarm {
    fn set<M: Machine + 'static>(&mut self, shared: &Shared<M>, until: Option<Mono>) {
        let Some(until) = until else { return };
        let now = shared.core.borrow().clock.now().mono;
        let until = until.min(now.after(LONGEST_SLEEP));
        // An armed time that has passed without firing slept through a suspend.
        if self.armed.as_ref().is_some_and(|(armed, _)| (now..=until).contains(armed)) {
            return;
        }
        let wait = until.since(now);
        // Rounded up, so that the timer is not due before the deadline is; the host compares exactly.
        let wait = Duration::from_millis(u64::try_from(wait.as_micros().div_ceil(1000)).unwrap_or(u64::MAX));
        self.armed = Some((until, Timer::at(Instant::now() + wait)));
    }

    fn poll_due(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some((_, timer)) = &mut self.armed else { return Poll::Pending };
        ready!(Pin::new(timer).poll(context));
        self.armed = None;
        Poll::Ready(())
    }
}

/// Accepts from one listener for as long as the driver runs.
struct Acceptor<M: Machine + 'static> {
    shared: Rc<Shared<M>>,
    door: usize,
    /// Whether the reactor was asked to say when somebody connects.
    waiting: bool,
    /// When to try again after an error.
    retry: Option<Timer>,
}

impl<M: Machine + 'static> Acceptor<M> {
    const fn new(shared: Rc<Shared<M>>, door: usize) -> Self {
        Self { shared, door, waiting: false, retry: None }
    }

    /// Accepts what there is, but no more than its share of a turn.
    fn accept(&mut self, core: &mut Core<M>, context: &mut Context<'_>) {
        let congested = core.host.is_congested();
        let door = &mut core.net.doors[self.door];
        if !door.open || congested {
            door.parked = Some(context.waker().clone());
            return;
        }
        if self.waiting {
            // As with what can be read, the listener itself is asked.
            let _ = door.poll_acceptable(context);
            self.waiting = false;
        }
        for _ in 0..ACCEPTS {
            if core.host.is_congested() {
                break;
            }
            let error = match core.net.doors[self.door].accept() {
                Ok((socket, peer)) => {
                    let by = ListenerId(self.door as u16);
                    // Where the host has no room the socket is closed by being dropped.
                    if let Some(conn) = core.host.accepted(core.clock.now(), by, &peer, None) {
                        core.net.links.insert(conn, Some(socket));
                        core.net.spawn.push(Spawn::Reader(conn));
                    }
                    self.shared.bell.ring();
                    continue;
                }
                Err(error) => error,
            };
            if error.kind() == ErrorKind::WouldBlock {
                self.waiting = core.net.doors[self.door].poll_acceptable(context).is_pending();
                if self.waiting {
                    return;
                }
                // An event came in between.
                continue;
            }
            if !matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) {
                // Who waits in the backlog is still there then, so nothing is lost by not waiting for the reactor.
                self.retry = Some(Timer::after(ACCEPT_PAUSE));
                context.waker().wake_by_ref();
                return;
            }
        }
        core.next_turn.push(context.waker().clone());
        self.shared.bell.ring();
    }
}

impl<M: Machine + 'static> Future for Acceptor<M> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        if let Some(retry) = &mut this.retry {
            ready!(Pin::new(retry).poll(context));
            this.retry = None;
        }
        let shared = Rc::clone(&this.shared);
        shared.enter(|core| {
            this.accept(core, context);
            Poll::Pending
        })
    }
}
