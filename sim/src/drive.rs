//! What a driver does: turns what happens into calls of the host, and settles.

use core::mem;
use core::time::Duration;

use relay_core::host::Host;
use relay_core::journal::{Journal, JournalError, Records};
use relay_core::port::Ending;
use relay_core::time::Now;

use crate::disk::DiskFault;
use crate::draw::{Domain, Draws};
use crate::link::Side;
use crate::net::Core;
use crate::node::{Life, Node, NodeId, Shell, State};
use crate::port::SimPort;
use crate::queue::Happening;
use crate::watch::{Subject, Watched};
use crate::world::World;

impl<M: Subject> World<M> {
    /// Settles of one turn before the world says that a host never comes to rest.
    const SETTLES: usize = 1000;
    /// How long a failed journal waits before it is opened again.
    const REOPEN: Duration = Duration::from_millis(50);

    /// Lets the next event happen.
    pub(crate) fn advance(&mut self) {
        let Some((at, what)) = self.core.queue.pop() else { return };
        self.core.now = at;
        if let Some(node) = self.concerns(what)
            && let Some(stash) = &mut self.shell_mut(node).frozen
        {
            stash.push(what);
            return;
        }
        if let Some(life) = what.life()
            && (self.shell(life.node).life() != life || self.shell(life.node).state != State::Up)
        {
            return;
        }
        if what.is_of_disk()
            && let Some(life) = what.life()
            && let Some(stash) = &mut self.shell_mut(life.node).hung
        {
            stash.push(what);
            return;
        }
        match what {
            Happening::Script { number } => {
                if let Some(script) = self.scripts.remove(&number) {
                    script(self);
                }
            }
            Happening::Timer { life } => self.timer(life),
            Happening::Knock { link } => self.knock(link),
            Happening::Answered { link } => self.answered(link),
            Happening::DialTimeout { link } => self.dial_timed_out(link),
            Happening::Accept { life, listener } => self.accept(life.node, listener),
            Happening::Arrive { link, from } => self.arrive(link, from),
            Happening::Reset { link, from } => self.reset_arrived(link, from),
            Happening::Read { link, at } => self.read(link, at),
            Happening::Window { link, of } => self.window_opened(link, of),
            Happening::Synced { life } => self.synced(life),
            Happening::Reopen { life } => self.reopen(life),
            Happening::Acted { life, id } => {
                let shell = self.shell_mut(life.node);
                let Some(action) = shell.acts.remove(&id) else { return };
                let result = shell.disk.carry_out(&action);
                let text = format!("{result:?}");
                self.turn(life.node, "acted", id.number(), text.as_bytes(), |host, now, _, _| {
                    host.acted(now, id, result);
                });
            }
        }
    }

    /// One turn of a node: what `call` tells its host, and all that comes of it. `None` where the node is down.
    pub(crate) fn turn<R>(
        &mut self,
        node: NodeId,
        kind: &'static str,
        id: u64,
        payload: &[u8],
        call: impl FnOnce(&mut Host<Watched<M>>, Now, &mut Shell<M>, &mut Core) -> R,
    ) -> Option<R> {
        let Self { core, nodes, witness, .. } = self;
        let Node { host: slot, shell, .. } = &mut nodes[usize::from(node.0)];
        let host = slot.as_mut()?;
        core.trace.note(core.now, node, kind, id, payload);
        let now = shell.clock.read(core.now);
        let result = call(host, now, shell, core);
        let witness = witness.as_deref_mut().filter(|_| host.machine().is_subject());
        let mut port = SimPort { shell, core, witness };
        let mut settles = 0;
        while host.settle(now, &mut port) {
            settles += 1;
            assert!(
                settles < Self::SETTLES,
                "rule broken: a turn ends: {node} asks for one settle after another"
            );
        }
        let done = host.is_done(now);
        if done {
            host.stop(now, &mut port);
            let left = host.machine().open().count();
            assert_eq!(
                left, 0,
                "rule broken: Closed comes exactly once for every id: {node} stopped with {left} open"
            );
        }
        for conn in mem::take(&mut shell.ended) {
            let told = host.machine().has_closed(conn);
            assert!(
                told,
                "rule broken: Closed comes exactly once for every id: {conn:?} of {node} ended untold"
            );
        }
        let congested = host.is_congested();
        let relieved = mem::replace(&mut shell.congested, congested) && !congested;
        if done {
            *slot = None;
            self.end_process(node, State::Stopped);
            return Some(result);
        }
        if relieved {
            self.read_all(node);
            self.accept_all(node);
        }
        self.arm(node);
        Some(result)
    }

    /// Makes a node's machine of what its disk kept, and lets it run.
    pub(crate) fn start(&mut self, id: NodeId) {
        let Self { core, nodes, .. } = self;
        let Node { host, build, shell } = &mut nodes[usize::from(id.0)];
        shell.state = State::Up;
        let machine = build(id, shell.boot, &mut shell.disk);
        let who = format!("{id} boot {}", shell.boot);
        *host = Some(Host::new(Watched::new(machine, who), shell.disk.newest()));
        let boot = u64::from(shell.boot);
        core.trace.note(core.now, id, "start", boot, &[]);
        self.turn(id, "started", boot, &[], |_, _, _, _| ());
    }

    /// Takes a node's process away: its connections end as its state says, and what was under way is lost.
    pub(crate) fn end_process(&mut self, id: NodeId, state: State) {
        let Self { core, nodes, .. } = self;
        let Node { host, shell, .. } = &mut nodes[usize::from(id.0)];
        *host = None;
        shell.state = state;
        shell.boot += 1;
        let mut sockets: Vec<_> = mem::take(&mut shell.conns).into_values().collect();
        for listener in &mut shell.listeners {
            listener.accepting = true;
            sockets.extend(listener.backlog.drain(..).map(|link| (link, Side::Acceptor)));
        }
        for (link, side) in sockets {
            match state {
                State::Up | State::Stopped => core.close(link, side, Ending::Orderly),
                State::Dark => core.forget(link, side),
            }
        }
        shell.forget_process();
    }

    /// Holds what each machine believes to be open against what its port has.
    pub(crate) fn check_ids(&self) {
        for Node { host, shell, .. } in &self.nodes {
            let lost = host
                .iter()
                .flat_map(|host| host.machine().open())
                .find(|conn| !shell.conns.contains_key(conn));
            assert!(
                lost.is_none(),
                "rule broken: Closed comes exactly once for every id: {lost:?} of {} has no socket",
                shell.id
            );
        }
    }

    /// Looks again at all that arrived for a node.
    pub(crate) fn read_all(&mut self, node: NodeId) {
        let Self { core, nodes, .. } = self;
        for (link, at) in nodes[usize::from(node.0)].shell.conns.values() {
            core.queue.push(core.now, Happening::Read { link: *link, at: *at });
        }
    }

    /// Looks again at all that waits at a node's listeners.
    fn accept_all(&mut self, node: NodeId) {
        let Self { core, nodes, .. } = self;
        let shell = &nodes[usize::from(node.0)].shell;
        for (_, listener) in shell.listeners.iter().zip(0..) {
            core.queue.push(core.now, Happening::Accept { life: shell.life(), listener });
        }
    }

    /// Sets the event of a node's deadline, where there is none that comes as early.
    pub(crate) fn arm(&mut self, node: NodeId) {
        let Self { core, nodes, .. } = self;
        let Node { host, shell, .. } = &mut nodes[usize::from(node.0)];
        let Some(due) = host.as_ref().and_then(Host::deadline) else { return };
        let at = shell.clock.reaches(due).max(core.now);
        if at < u64::MAX && shell.timer_at.is_none_or(|set| at < set) {
            shell.timer_at = Some(at);
            core.queue.push(at, Happening::Timer { life: shell.life() });
        }
    }

    /// The node whose process an event happens to.
    fn concerns(&self, what: Happening) -> Option<NodeId> {
        if let Some(life) = what.life() {
            return Some(life.node);
        }
        let (link, side) = match what {
            Happening::Answered { link } | Happening::DialTimeout { link } => (link, Side::Dialler),
            Happening::Knock { link } => (link, Side::Acceptor),
            Happening::Arrive { link, from } | Happening::Reset { link, from } => (link, from.other()),
            Happening::Read { link, at } => (link, at),
            Happening::Window { link, of } => (link, of),
            Happening::Script { .. }
            | Happening::Timer { .. }
            | Happening::Accept { .. }
            | Happening::Synced { .. }
            | Happening::Reopen { .. }
            | Happening::Acted { .. } => return None,
        };
        self.core.net.links.get(&link).map(|link| link.end(side).node)
    }

    fn timer(&mut self, life: Life) {
        let now = self.core.now;
        let shell = self.shell_mut(life.node);
        if shell.timer_at == Some(now) {
            shell.timer_at = None;
        }
        let clock = shell.clock.read(now).mono;
        let due = self.host(life.node).and_then(Host::deadline);
        if due.is_some_and(|due| due <= clock) {
            self.turn(life.node, "timer", 0, &[], |host, now, _, _| host.timer(now));
        } else {
            self.arm(life.node);
        }
    }

    fn synced(&mut self, life: Life) {
        let shell = self.shell_mut(life.node);
        let mut error = None;
        for batch in &shell.log.syncing {
            error = shell.disk.append(0, batch).err();
            if error.is_some() {
                break;
            }
        }
        if let Some(error) = error {
            self.sync_failed(life, error);
            return;
        }
        let newest = shell.disk.newest();
        let spent = mem::take(&mut shell.log.syncing);
        if let Some((upto, snapshot)) = spent.iter().rev().find_map(Records::snapshot) {
            let put = shell.disk.put_snapshot(upto, snapshot);
            debug_assert_eq!(put, Ok(()), "a snapshot reaches to a durable record");
        }
        shell.log.spare.extend(spent);
        shell.log.spare.truncate(8);
        shell.log.busy = false;
        let resumed = mem::take(&mut shell.log.failed);
        let kind = if resumed { "resumed" } else { "persisted" };
        self.turn(life.node, kind, newest.number(), &[], |host, now, shell, core| {
            if resumed {
                host.resumed(now, newest);
            } else {
                host.persisted(now, newest);
            }
            shell.start_sync(core);
        });
    }

    /// Nothing of the sync may be relied on; how much of it the disk kept is drawn.
    fn sync_failed(&mut self, life: Life, error: JournalError) {
        let draws = self.core.draws;
        let shell = self.shell_mut(life.node);
        assert!(error != JournalError::Corrupt, "rule broken: a batch that is repeated is the same batch");
        if shell.disk.fault() == Some(DiskFault::Failing) {
            shell.keep_some(draws);
        }
        shell.log.failed = true;
        let text = format!("{error:?}");
        self.turn(life.node, "persist failed", 0, text.as_bytes(), |host, now, _, _| {
            host.persist_failed(now)
        });
        self.core.queue.push(self.core.after(Self::REOPEN), Happening::Reopen { life });
    }

    fn reopen(&mut self, life: Life) {
        let Self { core, nodes, .. } = self;
        let shell = &mut nodes[usize::from(life.node.0)].shell;
        match shell.disk.reopen() {
            // The records whose fate was unknown are compared and repeated by the sync.
            Ok(_) => {
                shell.log.busy = false;
                shell.start_sync(core);
            }
            Err(_) => core.queue.push(core.after(Self::REOPEN), Happening::Reopen { life }),
        }
    }
}

impl<M: Subject> Shell<M> {
    /// Lets a drawn number of the batches of a broken sync be on the disk.
    pub(crate) fn keep_some(&mut self, draws: Draws) {
        let entity = u64::from(self.id.number());
        let many = self.log.syncing.len() as u64 + 1;
        let kept = draws.below(Domain::Survive, entity, self.log.syncs, many) as usize;
        for batch in self.log.syncing.iter().take(kept) {
            let kept = self.disk.keep(batch);
            assert_eq!(kept, Ok(()), "rule broken: batches follow each other");
        }
    }

    /// Forgets what only the process knew.
    fn forget_process(&mut self) {
        self.ended.clear();
        self.log = crate::node::Log::default();
        self.acts.clear();
        self.acts_done_at = 0;
        self.timer_at = None;
        self.frozen = None;
        self.congested = false;
        self.tails.clear();
    }
}
