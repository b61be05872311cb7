//! What a driver does: turns what happens into calls of the host, and settles.

use core::mem;
use core::time::Duration;

use relay_core::host::Host;
use relay_core::journal::{Journal, JournalError};
use relay_core::machine::{Address, CloseReason, ConnId, DialError, Endpoint, ListenerId};
use relay_core::port::Ending;
use relay_core::time::Now;

use crate::disk::DiskFault;
use crate::draw::{Domain, Draws};
use crate::net::{Core, EndStage, Landed, LinkId, Side};
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
        let mut port = SimPort { shell, core, witness: witness.as_deref_mut() };
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

    fn knock(&mut self, id: LinkId) {
        let Some(link) = self.core.net.links.get_mut(&id) else { return };
        let address = link.address.clone();
        let unix = matches!(address, Address::Unix(_));
        let (dialler, target) = (link.end(Side::Dialler).node, self.core.net.resolve(&address));
        let Some((node, listener)) = target else {
            let why = if unix { DialError::NoSuchSocket } else { DialError::Unreachable };
            self.fail_dial(id, why);
            return;
        };
        if let Some(link) = self.core.net.links.get_mut(&id) {
            link.end_mut(Side::Acceptor).node = node;
        }
        let net = &self.core.net;
        let backlog = net.backlog;
        let unheard = net.hung.contains(&address) || net.is_cut(dialler, node);
        let refused = net.refused.contains(&address);
        let Some(Node { shell, .. }) = self.nodes.get_mut(usize::from(node.0)) else {
            self.fail_dial(id, DialError::Unreachable);
            return;
        };
        let own = listener.and_then(|listener| shell.listeners.get_mut(usize::from(listener)));
        let full = own.as_ref().is_some_and(|own| own.backlog.len() >= backlog);
        if unheard || shell.state == State::Dark || (full && !refused) {
            self.core.knock_again(id);
            return;
        }
        match (own, listener) {
            (Some(own), Some(listener)) if shell.state == State::Up && !refused => {
                own.backlog.push_back(id);
                if let Some(link) = self.core.net.links.get_mut(&id) {
                    link.end_mut(Side::Acceptor).stage = EndStage::Waiting;
                }
                self.core.answer(id);
                self.accept(node, listener);
            }
            (Some(_) | None, Some(_) | None) => self.core.reset(id, Side::Acceptor),
        }
    }

    fn fail_dial(&mut self, id: LinkId, why: DialError) {
        let Some(link) = self.core.net.links.remove(&id) else { return };
        let end = link.end(Side::Dialler);
        if let Some(conn) = end.conn {
            self.end_conn(end.node, id, conn, CloseReason::DialFailed(why));
        }
    }

    /// Takes from a listener's backlog while it accepts.
    fn accept(&mut self, node: NodeId, listener: u16) {
        loop {
            let shell = self.shell_mut(node);
            if shell.state != State::Up || shell.frozen.is_some() {
                return;
            }
            let Some(own) = shell.listeners.get_mut(usize::from(listener)) else { return };
            if !own.accepting {
                return;
            }
            let Some(id) = own.backlog.pop_front() else { return };
            let unix = matches!(own.address, Address::Unix(_));
            let Some(link) = self.core.net.links.get(&id) else { continue };
            let peer = endpoint(unix, link.end(Side::Dialler).node, 32768 + (id.0 % 28232) as u16);
            let number = u64::from(id.0);
            self.turn(node, "accepted", number, format!("{peer:?}").as_bytes(), |host, now, shell, core| {
                let Some(conn) = host.accepted(now, ListenerId(listener), &peer, None) else {
                    core.close(id, Side::Acceptor, Ending::Reset);
                    return;
                };
                shell.conns.insert(conn, (id, Side::Acceptor));
                core.open(id, Side::Acceptor, conn);
            });
            self.read(id, Side::Acceptor);
        }
    }

    fn answered(&mut self, id: LinkId) {
        let Some(link) = self.core.net.links.get(&id) else { return };
        let (dialler, acceptor) = (link.end(Side::Dialler), link.end(Side::Acceptor).node);
        let (node, Some(conn)) = (dialler.node, dialler.conn) else {
            // A node without power answers nothing, until it has some again.
            if self.shell(dialler.node).state != State::Dark {
                self.core.reset(id, Side::Dialler);
            }
            return;
        };
        if dialler.stage != EndStage::Opening {
            return;
        }
        if self.core.net.is_cut(acceptor, node) {
            self.core.queue.push(self.core.after(Duration::from_secs(1)), Happening::Answered { link: id });
            return;
        }
        let peer = if let Address::Tcp(address) = link.address {
            Endpoint::Tcp(address)
        } else {
            endpoint(true, acceptor, 0)
        };
        self.core.open(id, Side::Dialler, conn);
        self.turn(node, "dialled", u64::from(id.0), &[], |host, now, _, _| {
            host.dialled(now, conn, &peer, None);
        });
        self.read(id, Side::Dialler);
    }

    fn dial_timed_out(&mut self, id: LinkId) {
        let Some(link) = self.core.net.links.get(&id) else { return };
        let end = link.end(Side::Dialler);
        let (node, conn) = (end.node, end.conn);
        if end.stage != EndStage::Opening {
            return;
        }
        self.core.close(id, Side::Dialler, Ending::Reset);
        if let Some(conn) = conn {
            self.end_conn(node, id, conn, CloseReason::DialFailed(DialError::TimedOut));
        }
    }

    fn arrive(&mut self, id: LinkId, from: Side) {
        let Some(link) = self.core.net.links.get(&id) else { return };
        let (sender, to) = (link.end(from).node, link.end(from.other()));
        // What is lost here is sent again when the way is whole.
        if self.core.net.is_cut(sender, to.node) || self.shell(to.node).state == State::Dark {
            return;
        }
        let gone = to.stage == EndStage::Gone;
        match self.core.land(id, from) {
            Landed::Nothing => {}
            // Both ends have ended their streams in order.
            Landed::Fin if gone && self.core.has_finished(id, from.other()) => {}
            Landed::Fin | Landed::Bytes if gone => self.core.reset(id, from.other()),
            Landed::Fin | Landed::Bytes => self.read(id, from.other()),
        }
    }

    /// A side takes what arrived for it, if it reads.
    fn read(&mut self, id: LinkId, at: Side) {
        let Some(link) = self.core.net.links.get(&id) else { return };
        let end = link.end(at);
        let (node, Some(conn)) = (end.node, end.conn) else { return };
        if end.stage != EndStage::Open || !end.reading || !self.shell(node).reads() {
            return;
        }
        let from = at.other();
        let bytes = self.core.take_inbox(id, from);
        if !bytes.is_empty() {
            self.turn(node, "read", u64::from(id.0), &bytes, |host, now, _, _| {
                host.received(now, conn, &bytes);
            });
        }
        let Some(link) = self.core.net.links.get_mut(&id) else { return };
        // Paused by what it read, it hears of the end of the stream when it reads again.
        if !link.end(at).reading || link.end(at).stage != EndStage::Open {
            return;
        }
        if mem::take(&mut link.pipe_mut(from).fin_arrived) {
            self.turn(node, "eof", u64::from(id.0), &[], |host, now, _, _| host.eof(now, conn));
        }
    }

    fn reset_arrived(&mut self, id: LinkId, from: Side) {
        let Some(link) = self.core.net.links.get(&id) else { return };
        let (sender, at) = (link.end(from).node, from.other());
        let end = link.end(at);
        let (node, stage, conn) = (end.node, end.stage, end.conn);
        if self.core.net.is_cut(sender, node) || self.shell(node).state == State::Dark {
            return;
        }
        self.core.forget(id, at);
        let why = match stage {
            EndStage::Gone => return,
            EndStage::Waiting => {
                for listener in &mut self.shell_mut(node).listeners {
                    listener.backlog.retain(|waiting| *waiting != id);
                }
                return;
            }
            EndStage::Opening => CloseReason::DialFailed(DialError::Refused),
            EndStage::Open => CloseReason::Reset,
        };
        if let Some(conn) = conn {
            self.end_conn(node, id, conn, why);
        }
    }

    fn window_opened(&mut self, id: LinkId, of: Side) {
        let Some(link) = self.core.net.links.get(&id) else { return };
        let (node, conn) = (link.end(of).node, link.end(of).conn);
        if let Some(conn) = conn
            && self.core.unblock(id, of)
        {
            self.turn(node, "writable", u64::from(id.0), &[], |host, _, _, _| host.writable(conn));
        }
    }

    /// Tells a host that a connection ended.
    fn end_conn(&mut self, node: NodeId, id: LinkId, conn: ConnId, why: CloseReason) {
        let text = format!("{why:?}");
        self.turn(node, "closed", u64::from(id.0), text.as_bytes(), |host, now, shell, _| {
            shell.conns.remove(&conn);
            shell.tails.remove(&conn);
            shell.ended.push(conn);
            host.closed(now, conn, why);
        });
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

fn endpoint(unix: bool, node: NodeId, port: u16) -> Endpoint {
    if unix {
        Endpoint::Unix { uid: Some(1000), pid: Some(node.number() + 100) }
    } else {
        Endpoint::Tcp(node.at(port))
    }
}
