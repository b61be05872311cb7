//! The machine's sending half: infallible, ordered on each connection, and held back until durable by default.

mod holds;
mod queue;
mod slots;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

pub(crate) use self::holds::Emission;
use self::holds::Hold;
pub(crate) use self::slots::{Finish, Pause, Stage};
use self::slots::{Tx, Unsent};
use crate::action::{ActId, Action};
use crate::conn::Tag;
use crate::journal::{Records, Seq};
use crate::machine::{CloseReason, ConnId, ListenerId, Target, Ticket};
use crate::turns::Turns;

/// How much a connection may have unsent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// [`Outbox::room`] counts down to this many unsent bytes.
    pub high: u32,
    /// A paused connection is read again once no more than this is unsent, in bytes.
    pub low: u32,
    /// Past this many unsent bytes the connection is closed, with [`CloseReason::Overflow`].
    pub cap: u32,
}

impl Limits {
    /// What a connection has unless its machine says otherwise: 256 KiB, 64 KiB, 8 MiB.
    pub const DEFAULT: Self = Self { high: 256 << 10, low: 64 << 10, cap: 8 << 20 };
}

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// How a machine ends a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(clippy::exhaustive_enums)]
pub enum Close {
    /// Once all that is queued has left; what still arrives is thrown away. A dial under way is given up at once, with what
    /// was queued for it: nobody has answered yet.
    Flush,
    /// At once; what is queued is lost, and the peer sees a reset.
    Abort,
}

/// Where a machine leaves its outputs.
///
/// No method fails, and each does nothing for a connection that has ended: the machine hears of that end, or has heard.
///
/// `send`, `event`, `answer` and `act` rest on the journal: what they carry leaves when every record made so far is
/// durable, in order. Their `_free` forms are for what rests on no record.
///
/// What a socket took is the driver's to say, through the host; no machine can:
///
/// ```compile_fail,E0624
/// fn step(out: &mut relay_core::outbox::Outbox<(), ()>, conn: relay_core::machine::ConnId) {
///     out.took(conn, 1);
/// }
/// ```
pub struct Outbox<E, A> {
    tag: Tag,
    slots: Vec<Tx>,
    spare_slots: Vec<u32>,
    /// Slots that need attention when the host settles, each once.
    pub(crate) dirty: Vec<u32>,
    /// Bytes that wait for a record, in the order of the records.
    holds: VecDeque<Hold>,
    /// How many holds were ever released: the index of the first of `holds`.
    released: u32,
    pub(crate) records: Records,
    recorded: Seq,
    durable: Seq,
    failing: bool,
    held: VecDeque<(Seq, Emission<E, A>)>,
    pub(crate) ready: VecDeque<Emission<E, A>>,
    pub(crate) dials: Vec<(ConnId, Target)>,
    pub(crate) accepting: Vec<(ListenerId, bool)>,
    acts: u64,
    /// Whether the host lets nothing be read until the journal has caught up.
    pub(crate) congested: bool,
    pub(crate) turns: Turns,
    /// What the step under way may still do, and what it has done.
    pub(crate) allowance: usize,
    pub(crate) work: usize,
    scratch: Vec<u8>,
    #[expect(clippy::vec_box, reason = "a connection takes one whole and gives it back whole")]
    pool: Vec<Box<Unsent>>,
    stale: u64,
}

impl<E, A> Outbox<E, A> {
    /// The most connections and dials at once; past it a dial fails as [`Exhausted`](crate::machine::DialError) and an
    /// accept is refused.
    pub const MAX_CONNECTIONS: usize = 1 << 20;

    pub(crate) fn new(newest: Seq) -> Self {
        Self {
            tag: Tag::new(),
            slots: Vec::new(),
            spare_slots: Vec::new(),
            dirty: Vec::new(),
            holds: VecDeque::new(),
            released: 0,
            records: Records::reuse(Records::default(), newest.next()),
            recorded: newest,
            durable: newest,
            failing: false,
            held: VecDeque::new(),
            ready: VecDeque::new(),
            dials: Vec::new(),
            accepting: Vec::new(),
            acts: 0,
            congested: false,
            turns: Turns::default(),
            allowance: 0,
            work: 0,
            scratch: Vec::new(),
            pool: Vec::new(),
            stale: 0,
        }
    }

    /// Queues what `write` appends to the empty buffer that it is given. It leaves when every record made so far is
    /// durable, behind all that was queued on this connection before.
    pub fn send(&mut self, conn: ConnId, write: impl FnOnce(&mut Vec<u8>)) {
        if !self.queue(conn, write) {
            return;
        }
        let durable = self.is_durable();
        let (seq, next) = (self.recorded, self.released.wrapping_add(self.holds.len() as u32));
        let released = self.released;
        let Some(unsent) = self.unsent_mut(conn) else { return };
        if durable {
            // Nothing is held on any connection then.
            unsent.free = unsent.queued;
            return;
        }
        // One entry serves all that a connection queued behind the same record, whatever others queued in between.
        let (end, newest) = (unsent.queued, unsent.newest_hold);
        let held = unsent.holds > 0;
        if held && self.holds.get(newest.wrapping_sub(released) as usize).is_some_and(|hold| hold.seq == seq)
        {
            self.extend_hold(newest, end);
            return;
        }
        let Some(unsent) = self.unsent_mut(conn) else { return };
        unsent.holds += 1;
        unsent.newest_hold = next;
        self.holds.push_back(Hold { seq, conn, end });
    }

    /// Queues bytes that rest on no record: a challenge, a heartbeat, a pong. Still in order on its connection, so they
    /// leave with what is held in front of them.
    pub fn send_free(&mut self, conn: ConnId, write: impl FnOnce(&mut Vec<u8>)) {
        if !self.queue(conn, write) {
            return;
        }
        let Some(unsent) = self.unsent_mut(conn) else { return };
        if unsent.holds == 0 {
            unsent.free = unsent.queued;
            return;
        }
        let (newest, end) = (unsent.newest_hold, unsent.queued);
        self.extend_hold(newest, end);
    }

    /// Appends what `write` writes to the journal as one record, and numbers it.
    ///
    /// While the journal fails ([`writable`](Self::writable) is false) a machine refuses what would record instead; a
    /// record made all the same is kept and written when it works again.
    pub fn record(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Seq {
        self.records.push(write);
        self.recorded = self.recorded.next();
        debug_assert_eq!(self.records.last(), self.recorded, "records are numbered without a gap");
        self.recorded
    }

    /// Gives the journal all that the records so far built, so that it can be cut behind them. Only in a step that recorded
    /// something: a snapshot rides on its newest record.
    pub fn snapshot(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        debug_assert!(!self.records.is_empty(), "a snapshot follows a record of its own step");
        let mut snapshot = Vec::new();
        write(&mut snapshot);
        self.records.snap(snapshot);
    }

    /// Whether something was recorded that the journal has not been given yet.
    #[must_use]
    pub const fn has_recorded(&self) -> bool {
        !self.records.is_empty()
    }

    /// The newest record, durable or not.
    #[must_use]
    pub const fn recorded(&self) -> Seq {
        self.recorded
    }

    /// Whether the journal takes records, as far as is known.
    #[must_use]
    pub const fn writable(&self) -> bool {
        !self.failing
    }

    /// Whether nothing is read from anybody until the journal has caught up: a peer's silence means nothing then.
    #[must_use]
    pub const fn is_congested(&self) -> bool {
        self.congested
    }

    /// The newest durable record: a row made later must not be shown yet.
    #[must_use]
    pub const fn durable(&self) -> Seq {
        self.durable
    }

    /// Opens a connection. Its end is one `Closed`, whether it succeeds or not; what is queued meanwhile is sent first.
    pub fn dial(&mut self, target: Target) -> ConnId {
        let conn = self.open(Stage::Dialling);
        self.dials.push((conn, target));
        conn
    }

    /// Half-closes once all that is queued has left; what is sent later goes nowhere. The peer may go on.
    pub fn finish(&mut self, conn: ConnId) {
        if let Some(tx) = self.touch(conn)
            && tx.writable()
        {
            tx.finish = Finish::Asked;
        }
    }

    /// Ends a connection; its `Closed` follows.
    pub fn close(&mut self, conn: ConnId, how: Close) {
        let Some(tx) = self.touch(conn) else { return };
        match (tx.stage, how) {
            (Stage::Open | Stage::Flushing | Stage::Lingering, Close::Abort) | (Stage::Dialling, _) => {
                tx.stage = Stage::Ending(CloseReason::Asked);
            }
            (Stage::Open, Close::Flush) => tx.stage = Stage::Flushing,
            (Stage::Free | Stage::Ending(_), _) | (Stage::Flushing | Stage::Lingering, Close::Flush) => {}
        }
    }

    /// Stops reading from a connection and promises a `Drained` once no more than the low mark is unsent, at the next
    /// settle where that is so already. Reading is on again by then.
    pub fn pause(&mut self, conn: ConnId) {
        if let Some(tx) = self.touch(conn)
            && matches!(tx.stage, Stage::Dialling | Stage::Open)
            && tx.pause == Pause::Off
        {
            tx.pause = Pause::Asked;
        }
    }

    /// Whether a connection is paused.
    #[must_use]
    pub fn is_paused(&self, conn: ConnId) -> bool {
        self.get(conn).is_some_and(|tx| tx.pause != Pause::Off)
    }

    /// How much work this step may still do, in bytes of what it reads: a step that is about to do more than that leaves it
    /// for a later one. A first step has no less than [`Host::SHARE_WORK`](crate::host::Host::SHARE_WORK), one for what
    /// was left has up to [`Host::TURN_WORK`](crate::host::Host::TURN_WORK), and all of it sooner or later.
    #[must_use]
    pub const fn allowance(&self) -> usize {
        self.allowance
    }

    /// Counts work against the allowance. A machine that counts nothing is taken to do what the bytes it took are worth.
    pub const fn spend(&mut self, work: usize) {
        self.allowance = self.allowance.saturating_sub(work);
        self.work = self.work.saturating_add(work);
    }

    /// Leaves bytes of a connection for a later step, in front of those that follow them; without bytes, asks for that step
    /// alone. Until then nothing is read from the connection, and no [`Eof`](crate::machine::Input::Eof) of it comes.
    pub fn leave(&mut self, conn: ConnId, rest: &[u8]) {
        if let Some(tx) = self.touch(conn)
            && tx.stage == Stage::Open
        {
            self.turns.leave(conn, rest);
        }
    }

    /// Whether bytes of a connection wait for a later step. Its silence means nothing then, unless it is paused, and so does
    /// not read what it asked for.
    #[must_use]
    pub fn waits_for_turn(&self, conn: ConnId) -> bool {
        self.turns.waits(conn)
    }

    /// Sets how much a connection may have unsent.
    pub fn limit(&mut self, conn: ConnId, limits: Limits) {
        debug_assert!(limits.low <= limits.high && limits.high <= limits.cap);
        if let Some(tx) = self.get_mut(conn) {
            tx.limits = (limits != Limits::DEFAULT).then(|| Box::new(limits));
        }
    }

    /// Whether a listener accepts. All do at the start.
    pub fn accepting(&mut self, listener: ListenerId, on: bool) {
        self.accepting.push((listener, on));
    }

    /// How many bytes may be queued before the high mark; zero for a connection that has ended, or that was finished or
    /// closed here.
    #[must_use]
    pub fn room(&self, conn: ConnId) -> usize {
        let open = self.get(conn).filter(|tx| tx.writable());
        open.map_or(0, |tx| (tx.limits().high as usize).saturating_sub(tx.unsent()))
    }

    /// Bytes queued that the socket has not taken.
    #[must_use]
    pub fn unsent(&self, conn: ConnId) -> usize {
        self.get(conn).map_or(0, Tx::unsent)
    }

    /// How many bytes the socket took since the connection was opened: what stands still while something is unsent is a
    /// peer that does not read.
    #[must_use]
    pub fn progress(&self, conn: ConnId) -> u64 {
        self.get(conn).map_or(0, |tx| tx.taken)
    }

    /// Tells the host's owner something, once every record made so far is durable.
    pub fn event(&mut self, event: E) {
        self.emit(Emission::Event(event));
    }

    /// Tells the host's owner something that rests on no record.
    pub fn event_free(&mut self, event: E) {
        self.ready.push_back(Emission::Event(event));
    }

    /// Answers a command, once every record made so far is durable.
    pub fn answer(&mut self, ticket: Ticket, answer: A) {
        self.emit(Emission::Answer(ticket, Ok(answer)));
    }

    /// Answers a command with something that rests on no record: above all, that the journal fails.
    pub fn answer_free(&mut self, ticket: Ticket, answer: A) {
        self.ready.push_back(Emission::Answer(ticket, Ok(answer)));
    }

    /// Has something done outside, once every record made so far is durable: nobody starts a child on a grant that a
    /// crash can undo.
    pub fn act(&mut self, action: Action) -> ActId {
        let id = self.next_act();
        self.emit(Emission::Act(id, action));
        id
    }

    /// Has something done outside that rests on no record.
    pub fn act_free(&mut self, action: Action) -> ActId {
        let id = self.next_act();
        self.ready.push_back(Emission::Act(id, action));
        id
    }

    /// How often a machine named a connection that had ended. Harmless, but a count that grows is a machine that forgot
    /// a `Closed`.
    #[must_use]
    pub const fn stale_uses(&self) -> u64 {
        self.stale
    }
}
