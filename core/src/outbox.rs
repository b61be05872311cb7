//! The machine's sending half: infallible, ordered on each connection, and held back until durable by default.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::mem;

use crate::action::{ActId, Action};
use crate::conn::Tag;
use crate::journal::{Records, Seq};
use crate::machine::{CloseReason, ConnId, ListenerId, Refused, Target, Ticket};
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

/// What leaves a host other than bytes.
pub(crate) enum Emission<E, A> {
    Event(E),
    Answer(Ticket, Result<A, Refused>),
    Act(ActId, Action),
}

struct Hold {
    seq: Seq,
    conn: ConnId,
    /// Where in the connection's stream the held bytes end.
    end: u64,
}

/// A connection's sending half. Kept small: there is one for every idle link.
pub(crate) struct Tx {
    generation: u32,
    /// What the machine said in place of [`Limits::DEFAULT`].
    limits: Option<Box<Limits>>,
    /// How many bytes the socket took: a position in the stream, as those of [`Unsent`] are.
    taken: u64,
    /// Only there while something is unsent.
    unsent: Option<Box<Unsent>>,
    pub(crate) stage: Stage,
    pub(crate) dirty: bool,
    pub(crate) blocked: bool,
    pub(crate) pause: Pause,
    pub(crate) finish: Finish,
    pub(crate) eof: bool,
    /// Whether the port was told not to read.
    pub(crate) silenced: bool,
    /// Whether the host has set a time for its end.
    pub(crate) closing: bool,
    /// Whether the port knows its id.
    pub(crate) named: bool,
}

/// What a connection has queued and its socket has not taken.
#[derive(Default)]
struct Unsent {
    buf: Vec<u8>,
    /// Positions in the stream: what may leave, what was queued. Never out of that order, nor before what was taken.
    free: u64,
    queued: u64,
    /// How many entries of [`Outbox::holds`] are this connection's.
    holds: u32,
    /// The newest of them, counted as [`Outbox::released`] counts.
    newest_hold: u32,
}

/// A connection's life.
///
/// ```text
///  Free ─▶ Dialling ─▶ Open ─▶ Flushing ─▶ Lingering ─▶ Free
///    └──────────────────▲└──────────┴──▶ Ending ────────▲
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// The slot has no connection.
    Free,
    /// A dial is under way.
    Dialling,
    /// Bytes go both ways.
    Open,
    /// Closed by the machine; what is queued still leaves.
    Flushing,
    /// All has left and our end is finished; the peer's last bytes are thrown away, so that no reset overtakes ours.
    Lingering,
    /// To be closed at the next settle.
    Ending(CloseReason),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pause {
    /// Reading.
    Off,
    /// The machine asked; the port has not been told.
    Asked,
    /// The port does not read.
    On,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Finish {
    /// Our direction is open.
    Open,
    /// To be half-closed once all has left.
    Asked,
    /// Half-closed.
    Done,
}

impl Tx {
    const fn new(generation: u32, stage: Stage) -> Self {
        Self {
            generation,
            limits: None,
            taken: 0,
            unsent: None,
            stage,
            dirty: false,
            blocked: false,
            pause: Pause::Off,
            finish: Finish::Open,
            eof: false,
            silenced: false,
            closing: false,
            named: false,
        }
    }

    pub(crate) fn unsent(&self) -> usize {
        self.unsent.as_ref().map_or(0, |unsent| (unsent.queued - self.taken) as usize)
    }

    /// The bytes that may leave now.
    pub(crate) fn sendable(&self) -> &[u8] {
        let Some(Unsent { buf, free, .. }) = self.unsent.as_deref() else { return &[] };
        let start = buf.len() - self.unsent();
        &buf[start..start + (free - self.taken) as usize]
    }

    pub(crate) fn low(&self) -> usize {
        self.limits().low as usize
    }

    fn limits(&self) -> &Limits {
        self.limits.as_deref().unwrap_or(&Limits::DEFAULT)
    }

    /// Whether more may be queued.
    const fn writable(&self) -> bool {
        match self.stage {
            Stage::Dialling | Stage::Open => matches!(self.finish, Finish::Open),
            Stage::Free | Stage::Flushing | Stage::Lingering | Stage::Ending(_) => false,
        }
    }
}

impl<E, A> Outbox<E, A> {
    /// The most connections and dials at once; past it a dial fails as [`Exhausted`](crate::machine::DialError) and an
    /// accept is refused.
    pub const MAX_CONNECTIONS: usize = 1 << 20;
    /// Buffers kept for reuse, and the largest that is kept, in bytes.
    const POOL: usize = 64;
    const POOLED_BYTES: usize = 64 << 10;

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

    fn next_act(&mut self) -> ActId {
        self.acts += 1;
        ActId(self.acts)
    }

    fn emit(&mut self, emission: Emission<E, A>) {
        if self.is_durable() {
            self.ready.push_back(emission);
        } else {
            self.held.push_back((self.recorded, emission));
        }
    }

    fn is_durable(&self) -> bool {
        self.durable >= self.recorded
    }

    /// Copies a message behind the connection's buffer; false where the connection takes no more.
    fn queue(&mut self, conn: ConnId, write: impl FnOnce(&mut Vec<u8>)) -> bool {
        let mut scratch = mem::take(&mut self.scratch);
        scratch.clear();
        let fresh = match self.touch(conn) {
            Some(tx) if tx.writable() => tx.unsent.is_none(),
            Some(_) | None => {
                self.scratch = scratch;
                return false;
            }
        };
        write(&mut scratch);
        if scratch.is_empty() {
            self.scratch = scratch;
            return false;
        }
        let spare = if fresh { self.pool.pop() } else { None };
        let Some(tx) = self.get_mut(conn) else { return false };
        let taken = tx.taken;
        let unsent = tx.unsent.get_or_insert_with(|| {
            let mut spare = spare.unwrap_or_default();
            (spare.free, spare.queued, spare.holds) = (taken, taken, 0);
            spare
        });
        // What the socket took leaves the buffer when it is most of it, so that copying stays linear.
        let sent = unsent.buf.len() - (unsent.queued - taken) as usize;
        if sent > unsent.buf.len() / 2 {
            unsent.buf.drain(..sent);
        }
        unsent.buf.extend_from_slice(&scratch);
        unsent.queued += scratch.len() as u64;
        if tx.unsent() > tx.limits().cap as usize {
            tx.stage = Stage::Ending(CloseReason::Overflow);
        }
        if scratch.capacity() > Self::POOLED_BYTES {
            scratch = Vec::new();
        }
        self.scratch = scratch;
        true
    }

    /// Lets a hold cover the stream up to `end`.
    fn extend_hold(&mut self, hold: u32, end: u64) {
        let index = hold.wrapping_sub(self.released) as usize;
        if let Some(hold) = self.holds.get_mut(index) {
            hold.end = end;
        }
    }

    fn get(&self, conn: ConnId) -> Option<&Tx> {
        self.tag.check(conn);
        let tx = self.slots.get(conn.slot())?;
        (tx.generation == conn.generation() && tx.stage != Stage::Free).then_some(tx)
    }

    pub(crate) fn get_mut(&mut self, conn: ConnId) -> Option<&mut Tx> {
        self.tag.check(conn);
        let tx = self.slots.get_mut(conn.slot())?;
        (tx.generation == conn.generation() && tx.stage != Stage::Free).then_some(tx)
    }

    fn unsent_mut(&mut self, conn: ConnId) -> Option<&mut Unsent> {
        self.get_mut(conn)?.unsent.as_deref_mut()
    }

    /// As `get_mut`, with the connection on the list of those to settle.
    pub(crate) fn touch(&mut self, conn: ConnId) -> Option<&mut Tx> {
        self.tag.check(conn);
        let Some(tx) = self.slots.get_mut(conn.slot()) else {
            self.stale += 1;
            return None;
        };
        if tx.generation != conn.generation() || tx.stage == Stage::Free {
            self.stale += 1;
            return None;
        }
        if !tx.dirty {
            tx.dirty = true;
            self.dirty.push(conn.slot() as u32);
        }
        Some(tx)
    }
}

/// The host's side.
impl<E, A> Outbox<E, A> {
    /// Whether a connection that waits for its turn can have it.
    pub(crate) fn can_have_turn(&self, conn: ConnId) -> bool {
        self.get(conn).is_some_and(|tx| tx.stage == Stage::Open && tx.pause == Pause::Off)
    }

    pub(crate) fn open(&mut self, stage: Stage) -> ConnId {
        // A connection that was accepted comes from the port.
        let named = stage == Stage::Open;
        if let Some(slot) = self.spare_slots.pop() {
            let tx = &mut self.slots[slot as usize];
            debug_assert_eq!(tx.stage, Stage::Free);
            tx.stage = stage;
            tx.named = named;
            return self.tag.mark(ConnId::new(slot, tx.generation));
        }
        self.slots.push(Tx { named, ..Tx::new(0, stage) });
        self.tag.mark(ConnId::new((self.slots.len() - 1) as u32, 0))
    }

    /// An id as the driver has it. It may come from a record of another run, and is this host's by what it says.
    pub(crate) fn own(&self, conn: ConnId) -> ConnId {
        self.tag.mark(conn)
    }

    /// Gives a slot back, with its buffer; its id is stale from here on. Returns the bytes that were unsent.
    pub(crate) fn free(&mut self, conn: ConnId) -> usize {
        let Some(tx) = self.get_mut(conn) else { return 0 };
        let unsent = tx.unsent();
        let queue = tx.unsent.take();
        // It may stand on the list still; the next connection of the slot finds itself there.
        *tx = Tx { dirty: tx.dirty, ..Tx::new(tx.generation.wrapping_add(1), Stage::Free) };
        self.spare_slots.push(conn.slot() as u32);
        self.recycle(queue);
        unsent
    }

    /// The connection that has a slot now.
    pub(crate) fn at(&self, slot: u32) -> Option<ConnId> {
        let tx = self.slots.get(slot as usize)?;
        (tx.stage != Stage::Free).then(|| self.tag.mark(ConnId::new(slot, tx.generation)))
    }

    pub(crate) fn slot_mut(&mut self, slot: u32) -> Option<&mut Tx> {
        self.slots.get_mut(slot as usize)
    }

    pub(crate) fn stage(&self, conn: ConnId) -> Option<Stage> {
        self.get(conn).map(|tx| tx.stage)
    }

    /// Lets nothing more be queued on a connection whose end is about to be told; the bytes that stay unsent.
    pub(crate) fn mark_ended(&mut self, conn: ConnId) -> usize {
        let Some(tx) = self.get_mut(conn) else { return 0 };
        tx.stage = Stage::Ending(CloseReason::Asked);
        tx.unsent()
    }

    /// Gives the list of a settle back, so that its buffer is used again.
    pub(crate) fn reuse_dirty(&mut self, mut list: Vec<u32>) {
        if self.dirty.is_empty() {
            list.clear();
            self.dirty = list;
        }
    }

    pub(crate) fn open_connections(&self) -> usize {
        self.slots.len() - self.spare_slots.len()
    }

    pub(crate) fn connections(&self) -> impl Iterator<Item = ConnId> {
        (0..self.slots.len() as u32).filter_map(|slot| self.at(slot))
    }

    /// The socket took `count` bytes.
    pub(crate) fn took(&mut self, conn: ConnId, count: usize) {
        let Some(tx) = self.get_mut(conn) else { return };
        let free = tx.unsent.as_ref().map_or(tx.taken, |unsent| unsent.free);
        debug_assert!(tx.taken + count as u64 <= free, "a driver says no more was taken than was offered");
        tx.taken = (tx.taken + count as u64).min(free);
        if tx.unsent() == 0 {
            let queue = tx.unsent.take();
            self.recycle(queue);
        }
    }

    /// Everything up to `upto` is durable: what rested on it may leave.
    pub(crate) fn persisted(&mut self, upto: Seq) {
        self.durable = self.durable.max(upto.min(self.recorded));
        while let Some(hold) = self.holds.front()
            && hold.seq <= self.durable
        {
            let (conn, end) = (hold.conn, hold.end);
            self.holds.pop_front();
            self.released = self.released.wrapping_add(1);
            if self.get(conn).is_some()
                && let Some(tx) = self.touch(conn)
                && let Some(unsent) = &mut tx.unsent
            {
                unsent.free = unsent.free.max(end);
                unsent.holds -= 1;
                let whole = unsent.holds > 0 || unsent.free == unsent.queued;
                debug_assert!(whole, "the newest hold covers all behind it");
            }
        }
        while let Some((seq, _)) = self.held.front()
            && *seq <= self.durable
        {
            if let Some((_, emission)) = self.held.pop_front() {
                self.ready.push_back(emission);
            }
        }
    }

    /// The journal fails: connections that hold bytes end, answers that are held are refused. Events and actions stay
    /// until the records under them are durable after all.
    pub(crate) fn persist_failed(&mut self) {
        self.failing = true;
        for hold in mem::take(&mut self.holds) {
            self.released = self.released.wrapping_add(1);
            if self.get(hold.conn).is_some()
                && let Some(tx) = self.touch(hold.conn)
            {
                tx.stage = Stage::Ending(CloseReason::NotDurable);
                if let Some(unsent) = &mut tx.unsent {
                    unsent.holds = 0;
                }
            }
        }
        self.refuse_held(Refused::NotDurable);
    }

    /// Refuses the answers that wait for the journal.
    pub(crate) fn refuse_held(&mut self, why: Refused) {
        for (seq, emission) in mem::take(&mut self.held) {
            match emission {
                Emission::Answer(ticket, _) => self.ready.push_back(Emission::Answer(ticket, Err(why))),
                Emission::Event(_) | Emission::Act(..) => self.held.push_back((seq, emission)),
            }
        }
    }

    pub(crate) fn resumed(&mut self, upto: Seq) {
        self.failing = false;
        self.persisted(upto);
    }

    pub(crate) const fn recorded(&self) -> Seq {
        self.recorded
    }

    /// Whether anything waits for the journal.
    pub(crate) fn waits(&self) -> bool {
        !self.records.is_empty() || self.durable < self.recorded
    }

    /// How many bytes of answers, events and actions wait; each emission counts as one.
    pub(crate) fn held_emissions(&self) -> usize {
        self.held.len()
    }

    fn recycle(&mut self, queue: Option<Box<Unsent>>) {
        let Some(mut queue) = queue else { return };
        if queue.buf.capacity() <= Self::POOLED_BYTES && self.pool.len() < Self::POOL {
            queue.buf.clear();
            self.pool.push(queue);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_connection_is_small_and_owns_nothing() {
        assert!(size_of::<Tx>() <= 40, "a connection takes {}", size_of::<Tx>());
    }
}
