//! The driver's half of the contract: every rule that holds for all machines, enforced once.

mod serve;

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::mem;
use core::time::Duration;

use crate::action::{ActId, Acted};
use crate::journal::{Records, Seq};
use crate::machine::{
    CloseReason, ConnId, DialError, Endpoint, Input, ListenerId, Machine, Opener, Refused, Ticket,
};
use crate::outbox::{Emission, Finish, Outbox, Pause, Stage};
use crate::port::{Ending, Port, Wrote};
use crate::time::{Mono, Now};

/// Owns a machine and its outbox.
///
/// A driver turns what happens into calls and ends each turn with [`settle`](Self::settle):
///
/// ```text
///   socket readable ─▶ received, eof      journal ─▶ persisted, persist_failed, resumed
///   socket writable ─▶ writable           action  ─▶ acted
///   socket broken   ─▶ closed             clock   ─▶ timer
///   accept, connect ─▶ accepted, dialled  owner   ─▶ command, drain
///                         then: settle(now, port), and sleep until deadline()
/// ```
///
/// A run is the list of these calls and of what `write` took, so it can be recorded, repeated and compared.
///
/// A driver can look at the machine, but it can neither step it nor write to its outbox:
///
/// ```compile_fail,E0596
/// use relay_core::{host::Host, machine::{Input, Machine}, outbox::Outbox, time::Now};
///
/// fn drive<M: Machine>(host: &mut Host<M>, out: &mut Outbox<M::Event, M::Answer>) {
///     host.machine().step(Now::default(), Input::Timer, out);
/// }
/// ```
///
/// ```compile_fail,E0616
/// use relay_core::{host::Host, machine::{ConnId, Machine}};
///
/// fn drive<M: Machine>(host: &mut Host<M>, conn: ConnId) {
///     host.out.send(conn, |buf| buf.push(0));
/// }
/// ```
pub struct Host<M: Machine> {
    machine: M,
    out: Outbox<M::Event, M::Answer>,
    now: Now,
    tickets: u64,
    answered: u64,
    failing: bool,
    draining: Option<Mono>,
    /// Batches that the journal was given and has not confirmed: last record, size in bytes.
    appended: VecDeque<(Seq, usize)>,
    appended_bytes: usize,
    /// When each connection that the machine closed is given up, in order.
    closing: VecDeque<(Mono, ConnId)>,
    overdue: u64,
}

impl<M: Machine> Host<M> {
    /// The most bytes that one step is given; [`received`](Self::received) splits what is longer.
    pub const MAX_READ: usize = 64 << 10;
    /// How long what a closed connection has queued may take to leave, with the peer's last bytes.
    pub const FLUSH_TIME: Duration = Duration::from_secs(10);
    /// Bytes of records that may wait for the journal before the host is congested.
    pub const JOURNAL_BYTES: usize = 16 << 20;
    /// Events, answers and actions that may wait for the journal before the host is congested.
    pub const HELD_EMISSIONS: usize = 1 << 16;
    /// What the connections of one share may have done for them in one turn as their bytes arrive, in bytes that the machine
    /// reads; what is beyond waits for a turn.
    pub const SHARE_WORK: usize = 192 << 10;
    /// What one settle does, in bytes that the machine reads, for connections that wait for a turn.
    pub const TURN_WORK: usize = 256 << 10;
    /// Rounds of one settle; what is left comes with the next.
    const ROUNDS: usize = 8;

    /// Hosts a machine whose journal's newest durable record is `newest` ([`Seq::NONE`] for a machine without one).
    pub fn new(machine: M, newest: Seq) -> Self {
        Self {
            machine,
            out: Outbox::new(newest),
            now: Now::default(),
            tickets: 0,
            answered: 0,
            failing: false,
            draining: None,
            appended: VecDeque::new(),
            appended_bytes: 0,
            closing: VecDeque::new(),
            overdue: 0,
        }
    }

    /// A listener gave a connection. `None` where the host has no room: the driver closes it.
    #[must_use = "without the id the connection cannot be driven; None means close it"]
    pub fn accepted(
        &mut self,
        now: Now,
        by: ListenerId,
        peer: &Endpoint,
        identity: Option<&str>,
    ) -> Option<ConnId> {
        if self.out.open_connections() >= Outbox::<M::Event, M::Answer>::MAX_CONNECTIONS {
            return None;
        }
        let conn = self.out.open(Stage::Open);
        self.step(now, Input::Opened { conn, by: Opener::Accepted(by), peer, identity });
        Some(conn)
    }

    /// A dial succeeded.
    pub fn dialled(&mut self, now: Now, conn: ConnId, peer: &Endpoint, identity: Option<&str>) {
        let conn = self.out.own(conn);
        match self.out.touch(conn) {
            Some(tx) if tx.stage == Stage::Dialling => tx.stage = Stage::Open,
            Some(_) | None => return,
        }
        self.step(now, Input::Opened { conn, by: Opener::Dialled, peer, identity });
    }

    /// Bytes arrived. Those of a share that has had its part of this turn wait for their next, in [`settle`](Self::settle).
    pub fn received(&mut self, now: Now, conn: ConnId, data: &[u8]) {
        let conn = self.out.own(conn);
        for data in data.chunks(Self::MAX_READ) {
            match self.out.get_mut(conn) {
                Some(tx) if tx.stage == Stage::Open && !tx.eof => {}
                // What arrives behind our close is thrown away, so that reading it lets the peer's FIN come.
                Some(_) | None => return,
            }
            let share = self.machine.share(conn);
            let turns = &mut self.out.turns;
            let spent = turns.spent(share);
            if turns.waits(conn) || turns.has_line(share) || spent >= Self::SHARE_WORK {
                turns.keep(conn, data);
                turns.enter(conn, share);
                self.out.touch(conn);
            } else {
                let work = self.work(now, conn, data, Self::SHARE_WORK - spent);
                self.out.turns.spend(share, work);
            }
        }
    }

    /// The peer half-closed.
    pub fn eof(&mut self, now: Now, conn: ConnId) {
        let conn = self.out.own(conn);
        match self.out.touch(conn) {
            Some(tx) if !tx.eof => tx.eof = true,
            Some(_) | None => return,
        }
        if self.stage(conn) == Some(Stage::Open) && !self.out.turns.waits(conn) {
            self.step(now, Input::Eof { conn });
        }
    }

    /// A socket that was [`Blocked`](Wrote::Blocked) takes bytes again.
    pub fn writable(&mut self, conn: ConnId) {
        let conn = self.out.own(conn);
        if let Some(tx) = self.out.touch(conn) {
            tx.blocked = false;
        }
    }

    /// A connection or a dial ended. Repeated, or for an id that has ended: nothing.
    pub fn closed(&mut self, now: Now, conn: ConnId, why: CloseReason) {
        let conn = self.out.own(conn);
        let Some(stage) = self.stage(conn) else { return };
        let why = match stage {
            // What the machine closed stays closed by the machine, however the socket ended.
            Stage::Flushing | Stage::Lingering => CloseReason::Asked,
            Stage::Ending(why) => why,
            Stage::Free | Stage::Dialling | Stage::Open => why,
        };
        self.end(now, conn, why);
    }

    /// Every record up to `upto` is durable. Never more than was appended, whatever is said.
    pub fn persisted(&mut self, now: Now, upto: Seq) {
        // What is confirmed late is confirmed by `resumed`, which the batches must still be there for.
        if self.failing {
            return;
        }
        let upto = self.confirm(upto);
        if upto <= self.out.durable() {
            return;
        }
        self.out.persisted(upto);
        self.step(now, Input::Persisted { upto });
    }

    /// The journal failed to make records durable. It goes on trying: `resumed` follows when it works again.
    pub fn persist_failed(&mut self, now: Now) {
        if mem::replace(&mut self.failing, true) {
            return;
        }
        self.out.persist_failed();
        let from = self.out.durable().next();
        self.step(now, Input::PersistFailed { from });
    }

    /// The journal works again, and every record up to `upto` is durable.
    pub fn resumed(&mut self, now: Now, upto: Seq) {
        if !mem::replace(&mut self.failing, false) {
            return;
        }
        let upto = self.confirm(upto);
        self.out.resumed(upto);
        let upto = self.out.durable();
        self.step(now, Input::Resumed { upto });
    }

    /// An action ended.
    pub fn acted(&mut self, now: Now, id: ActId, result: Acted) {
        self.step(now, Input::Acted { id, result });
    }

    /// The owner asks something. The ticket returns with the answer, exactly once.
    pub fn command(&mut self, now: Now, command: M::Command) -> Ticket {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.step(now, Input::Command { ticket, command });
        ticket
    }

    /// Asks the machine to end; [`is_done`](Self::is_done) when it has, at the latest at `by`.
    pub fn drain(&mut self, now: Now, by: Mono) {
        if self.draining.is_none() {
            self.draining = Some(by);
            self.step(now, Input::Drain { by });
        }
    }

    /// Whether a host that drains may be dropped: all has ended, or its time is over.
    #[must_use]
    pub fn is_done(&self, now: Now) -> bool {
        self.draining.is_some_and(|by| now.mono >= by || (self.machine.idle() && !self.is_busy()))
    }

    /// The clock moved. Nothing happens before the deadline.
    pub fn timer(&mut self, now: Now) {
        let now = self.clamp(now);
        while let Some((due, conn)) = self.closing.front().copied()
            && due <= now.mono
        {
            self.closing.pop_front();
            if let Some(tx) = self.out.touch(conn)
                && matches!(tx.stage, Stage::Flushing | Stage::Lingering)
            {
                tx.stage = Stage::Ending(CloseReason::Asked);
            }
        }
        if self.machine.deadline().is_some_and(|due| due <= now.mono) {
            self.step(now, Input::Timer);
        }
    }

    /// When [`timer`](Self::timer) is due, or the time of a drain is over: look at [`is_done`](Self::is_done) each turn.
    #[must_use]
    pub fn deadline(&self) -> Option<Mono> {
        let closing = self.closing.front().map(|(due, _)| *due);
        [self.machine.deadline(), closing, self.draining].into_iter().flatten().min()
    }

    /// Carries out what the steps of a turn left: once a turn, after all that had happened was told.
    ///
    /// True where there is more to do: settle again after looking at the sockets, without sleeping.
    #[must_use = "true means that the driver must not sleep"]
    pub fn settle(&mut self, now: Now, port: &mut impl Port<M>) -> bool {
        let mut settled = self.flush(now, port);
        // Answers leave before those have their turn who have had their part already.
        if settled && self.serve(now) {
            settled = self.flush(now, port);
        }
        self.out.turns.settled();
        !settled || self.is_anybody_waiting()
    }

    /// Whether to stop reading, from every connection and from the owner, and accepting, until the journal has caught up.
    #[must_use]
    pub fn is_congested(&self) -> bool {
        self.appended_bytes > Self::JOURNAL_BYTES || self.out.held_emissions() > Self::HELD_EMISSIONS
    }

    /// Ends everything at once, as a driver does that stops; nothing may follow.
    ///
    /// Each connection's `Closed` comes, with [`CloseReason::Stopped`] where nothing else had ended it, also that of a
    /// dial which a machine makes on hearing of one. Records go to the journal; answers that wait for it are refused,
    /// events and actions that do are dropped.
    pub fn stop(&mut self, now: Now, port: &mut impl Port<M>) {
        for _ in 0..Self::ROUNDS {
            let all: Vec<_> = self.out.connections().collect();
            if all.is_empty() {
                break;
            }
            for conn in all {
                if self.out.get_mut(conn).is_some_and(|tx| tx.named) {
                    port.close(conn, Ending::Orderly);
                }
                self.closed(now, conn, CloseReason::Stopped);
            }
        }
        self.out.dials.clear();
        self.flush_journal(port);
        self.out.refuse_held(Refused::Stopped);
        self.flush_emissions(port);
    }

    /// The machine, to be looked at.
    #[must_use]
    pub const fn machine(&self) -> &M {
        &self.machine
    }

    /// The machine, after the host's end.
    #[must_use]
    pub fn into_machine(self) -> M {
        self.machine
    }

    /// What host and machine hold, each value under a stable name.
    pub fn gauges(&self, sink: &mut dyn FnMut(&'static str, u64)) {
        sink("connections", self.out.open_connections() as u64);
        sink("journal_pending_bytes", self.appended_bytes as u64);
        sink("held_emissions", self.out.held_emissions() as u64);
        let (waiting, bytes) = self.out.turns.held();
        sink("waiting_for_turn", waiting as u64);
        sink("waiting_bytes", bytes as u64);
        sink("stale_uses", self.out.stale_uses());
        sink("overdue_deadlines", self.overdue);
        sink("unanswered_commands", self.tickets - self.answered);
        self.machine.gauges(sink);
    }

    /// Carries out what the steps left; false where there is more of it.
    fn flush(&mut self, now: Now, port: &mut impl Port<M>) -> bool {
        for _ in 0..Self::ROUNDS {
            self.flush_journal(port);
            self.flush_dials(port);
            let dirty = mem::take(&mut self.out.dirty);
            for slot in &dirty {
                if let Some(conn) = self.out.at(*slot) {
                    self.settle_connection(now, conn, port);
                } else if let Some(tx) = self.out.slot_mut(*slot) {
                    tx.dirty = false;
                }
            }
            self.out.reuse_dirty(dirty);
            self.flush_emissions(port);
            if self.is_settled() {
                self.forget_closed();
                return true;
            }
        }
        false
    }

    /// Whether a shutdown should wait for anything of the host's own.
    fn is_busy(&self) -> bool {
        let lingering = |conn| self.stage(conn) == Some(Stage::Lingering);
        !self.is_settled() || (self.out.waits() && !self.failing) || !self.out.connections().all(lingering)
    }

    fn is_settled(&self) -> bool {
        self.out.dirty.is_empty()
            && self.out.ready.is_empty()
            && self.out.dials.is_empty()
            && self.out.accepting.is_empty()
            && self.out.records.is_empty()
    }

    fn stage(&self, conn: ConnId) -> Option<Stage> {
        self.out.stage(conn)
    }

    /// Clocks never go back here.
    fn clamp(&mut self, now: Now) -> Now {
        self.now = Now { mono: now.mono.max(self.now.mono), wall: now.wall };
        self.now
    }

    fn step(&mut self, now: Now, input: Input<'_, M::Command>) {
        let now = self.clamp(now);
        self.out.congested = self.is_congested();
        if !matches!(input, Input::Bytes { .. }) {
            self.out.allowance = Self::SHARE_WORK;
        }
        self.out.work = 0;
        self.machine.step(now, input, &mut self.out);
        for conn in mem::take(&mut self.out.turns.new) {
            self.out.turns.enter(conn, self.machine.share(conn));
        }
        if self.machine.deadline().is_some_and(|due| due <= now.mono) {
            self.overdue += 1;
            debug_assert!(
                false,
                "after a step the deadline lies behind now: {:?} at {now:?}",
                self.machine.deadline()
            );
        }
    }

    /// Ends a connection for the machine and gives its slot back.
    fn end(&mut self, now: Now, conn: ConnId, why: CloseReason) {
        let unsent = self.out.mark_ended(conn);
        self.out.turns.forget(conn);
        self.step(now, Input::Closed { conn, why, unsent });
        self.out.free(conn);
    }

    /// Keeps the front of the list of closing connections true, so that no deadline wakes anybody for one that ended.
    fn forget_closed(&mut self) {
        while let Some((_, conn)) = self.closing.front()
            && self.stage(*conn).is_none()
        {
            self.closing.pop_front();
        }
    }

    /// Takes batches off the list that are durable up to `upto`, and bounds `upto` by what was appended.
    fn confirm(&mut self, upto: Seq) -> Seq {
        let newest = self.appended.back().map_or_else(|| self.out.durable(), |(last, _)| *last);
        let upto = upto.min(newest);
        while let Some((last, size)) = self.appended.front()
            && *last <= upto
        {
            self.appended_bytes -= size;
            self.appended.pop_front();
        }
        upto
    }

    fn flush_journal(&mut self, port: &mut impl Port<M>) {
        if self.out.records.is_empty() {
            return;
        }
        let spare = port.spare().unwrap_or_default();
        let next = Records::reuse(spare, self.out.recorded().next());
        let batch = mem::replace(&mut self.out.records, next);
        self.appended_bytes += batch.size();
        self.appended.push_back((batch.last(), batch.size()));
        port.append(batch);
    }

    fn flush_dials(&mut self, port: &mut impl Port<M>) {
        for (conn, target) in mem::take(&mut self.out.dials) {
            if self.out.open_connections() > Outbox::<M::Event, M::Answer>::MAX_CONNECTIONS {
                let full = CloseReason::DialFailed(DialError::Exhausted);
                if let Some(tx) = self.out.touch(conn) {
                    tx.stage = Stage::Ending(full);
                }
            } else if let Some(tx) = self.out.get_mut(conn)
                && tx.stage == Stage::Dialling
            {
                tx.named = true;
                port.dial(conn, &target);
            }
        }
        for (listener, on) in mem::take(&mut self.out.accepting) {
            port.accepting(listener, on);
        }
    }

    fn flush_emissions(&mut self, port: &mut impl Port<M>) {
        while let Some(emission) = self.out.ready.pop_front() {
            match emission {
                Emission::Event(event) => port.event(event),
                Emission::Answer(ticket, answer) => {
                    self.answered += 1;
                    port.answer(ticket, answer);
                }
                Emission::Act(id, action) => port.act(id, action),
            }
        }
    }

    /// Writes what may leave, then does what waited for that.
    fn settle_connection(&mut self, now: Now, conn: ConnId, port: &mut impl Port<M>) {
        loop {
            let Some(tx) = self.out.get_mut(conn) else { return };
            tx.dirty = false;
            match tx.stage {
                Stage::Open | Stage::Flushing if !tx.blocked && !tx.sendable().is_empty() => {}
                Stage::Free
                | Stage::Dialling
                | Stage::Open
                | Stage::Flushing
                | Stage::Lingering
                | Stage::Ending(_) => break,
            }
            match port.write(conn, tx.sendable()) {
                Wrote::Bytes(0) | Wrote::Blocked => tx.blocked = true,
                Wrote::Bytes(count) => self.out.took(conn, count),
                Wrote::Failed(why) => tx.stage = Stage::Ending(why),
            }
        }
        self.settle_stage(now, conn, port);
    }

    fn settle_stage(&mut self, now: Now, conn: ConnId, port: &mut impl Port<M>) {
        let clock = self.clamp(now).mono;
        if self.stage(conn) != Some(Stage::Open) {
            self.out.turns.forget(conn);
        }
        let waits = self.out.turns.waits(conn);
        let Some(tx) = self.out.get_mut(conn) else { return };
        let unsent = tx.unsent();
        match tx.stage {
            Stage::Free | Stage::Dialling => return,
            Stage::Open | Stage::Flushing | Stage::Lingering | Stage::Ending(_) => {}
        }
        if tx.stage == Stage::Open && tx.finish == Finish::Asked && unsent == 0 {
            tx.finish = Finish::Done;
            port.finish(conn);
        }
        if tx.stage == Stage::Open && tx.finish == Finish::Done && tx.eof && !waits {
            tx.stage = Stage::Ending(CloseReason::Finished);
        }
        if tx.stage == Stage::Flushing {
            if !tx.closing {
                tx.closing = true;
                self.closing.push_back((clock.after(Self::FLUSH_TIME), conn));
            }
            tx.pause = Pause::Off;
            if mem::take(&mut tx.silenced) {
                port.reading(conn, true);
            }
            if unsent == 0 {
                if tx.finish != Finish::Done {
                    tx.finish = Finish::Done;
                    port.finish(conn);
                }
                tx.stage = Stage::Lingering;
            }
        }
        if tx.stage == Stage::Lingering && tx.eof {
            tx.stage = Stage::Ending(CloseReason::Asked);
        }
        if let Stage::Ending(why) = tx.stage {
            // An end that the peer may take for one in order has our half-close in front of it; without, it is a reset.
            let orderly = unsent == 0
                && tx.finish == Finish::Done
                && matches!(why, CloseReason::Asked | CloseReason::Finished);
            // A dial that ended before the port heard of it is nothing to the port.
            if tx.named {
                port.close(conn, if orderly { Ending::Orderly } else { Ending::Reset });
            }
            self.end(now, conn, why);
            return;
        }
        let drained = tx.pause != Pause::Off && unsent <= tx.low();
        tx.pause = if tx.pause == Pause::Off || drained { Pause::Off } else { Pause::On };
        let silent = tx.stage == Stage::Open && (tx.pause == Pause::On || waits);
        if tx.silenced != silent {
            tx.silenced = silent;
            port.reading(conn, !silent);
        }
        if drained {
            self.step(now, Input::Drained { conn });
        }
    }
}
