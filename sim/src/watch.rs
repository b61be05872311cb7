//! What is checked always: the rules of the contract, seen from inside the host and from outside.

use alloc::collections::BTreeSet;
use core::fmt::Debug;

use relay_core::journal::Seq;
use relay_core::machine::{ConnId, Input, Machine, Refused, Ticket};
use relay_core::outbox::Outbox;
use relay_core::time::{Mono, Now};

use crate::stranger::Inhabitant;

/// A machine that a world can run: any whose commands, events and answers can be shown.
pub trait Subject: Machine<Command: Debug, Event: Debug, Answer: Debug> + 'static {}

impl<M> Subject for M where M: Machine<Command: Debug, Event: Debug, Answer: Debug> + 'static {}

/// Says on which record rests what became visible, so that the world can hold it against what the journal kept.
///
/// For test machines that write in each message which record it rests on.
pub trait Witness<M: Machine> {
    /// Takes what it understands off the front of a stream's unread tail; the newest record that it named.
    fn bytes(&mut self, tail: &mut Vec<u8>) -> Option<Seq> {
        tail.clear();
        None
    }

    /// The record that an event rests on.
    fn event(&mut self, event: &M::Event) -> Option<Seq> {
        let _ = event;
        None
    }

    /// The record that an answer rests on.
    fn answer(&mut self, ticket: Ticket, answer: &Result<M::Answer, Refused>) -> Option<Seq> {
        let _ = (ticket, answer);
        None
    }
}

/// A machine under watch: the same inputs and outputs, each held against the contract.
pub(crate) struct Watched<M> {
    pub(crate) inside: Inhabitant<M>,
    who: String,
    /// Connections that opened and have not closed.
    open: BTreeSet<ConnId>,
    /// For each slot, the first generation that has not closed.
    next_generation: Vec<u32>,
}

impl<M: Machine> Watched<M> {
    pub(crate) const fn new(inside: Inhabitant<M>, who: String) -> Self {
        Self { inside, who, open: BTreeSet::new(), next_generation: Vec::new() }
    }

    /// Whether it is the machine under test.
    pub(crate) const fn is_subject(&self) -> bool {
        matches!(self.inside, Inhabitant::Machine(_))
    }

    /// Whether a connection's `Closed` has come.
    pub(crate) fn has_closed(&self, conn: ConnId) -> bool {
        self.next_generation.get(conn.slot()).is_some_and(|next| conn.generation() < *next)
    }

    /// The connections that opened and have not closed.
    pub(crate) fn open(&self) -> impl Iterator<Item = &ConnId> {
        self.open.iter()
    }

    fn check(&mut self, now: Now, input: &Input<'_, M::Command>) {
        match input {
            Input::Opened { conn, .. } => {
                self.hold(!self.has_closed(*conn), now, "a closed id is never opened again", conn);
                let fresh = self.open.insert(*conn);
                self.hold(fresh, now, "Opened comes once for an id", conn);
            }
            Input::Bytes { conn, .. } | Input::Eof { conn } | Input::Drained { conn } => {
                self.hold(self.open.contains(conn), now, "inputs come between Opened and Closed", conn);
            }
            Input::Closed { conn, .. } => {
                self.hold(!self.has_closed(*conn), now, "Closed comes exactly once for every id", conn);
                self.open.remove(conn);
                if self.next_generation.len() <= conn.slot() {
                    self.next_generation.resize(conn.slot() + 1, 0);
                }
                self.next_generation[conn.slot()] = conn.generation() + 1;
            }
            Input::Timer => {
                let due = self.inside.deadline();
                let ripe = due.is_some_and(|due| due <= now.mono);
                self.hold(ripe, now, "Timer comes only at the deadline", &due);
            }
            Input::Persisted { .. }
            | Input::PersistFailed { .. }
            | Input::Resumed { .. }
            | Input::Acted { .. }
            | Input::Drain { .. }
            | Input::Command { .. } => {}
        }
    }

    fn hold(&self, holds: bool, now: Now, rule: &str, about: &dyn Debug) {
        assert!(holds, "rule broken: {rule}: {about:?}, {} at {:?}", self.who, now.mono);
    }
}

impl<M: Machine> Machine for Watched<M> {
    type Command = M::Command;
    type Answer = M::Answer;
    type Event = M::Event;

    fn step(
        &mut self,
        now: Now,
        input: Input<'_, Self::Command>,
        out: &mut Outbox<Self::Event, Self::Answer>,
    ) {
        self.check(now, &input);
        self.inside.step(now, input, out);
        let due = self.inside.deadline();
        self.hold(
            due.is_none_or(|due| due > now.mono),
            now,
            "after a step the deadline lies behind now",
            &due,
        );
    }

    fn deadline(&self) -> Option<Mono> {
        self.inside.deadline()
    }

    fn idle(&self) -> bool {
        self.inside.idle()
    }

    fn gauges(&self, sink: &mut dyn FnMut(&'static str, u64)) {
        self.inside.gauges(sink);
    }
}

#[cfg(test)]
mod tests {
    use relay_core::host::Host;
    use relay_core::machine::{CloseReason, Endpoint, ListenerId};

    use super::*;

    /// A machine that does nothing, late.
    struct Late(Option<Mono>);

    impl Machine for Late {
        type Command = ();
        type Answer = ();
        type Event = ();

        fn step(&mut self, _: Now, _: Input<'_, ()>, _: &mut Outbox<(), ()>) {}

        fn deadline(&self) -> Option<Mono> {
            self.0
        }
    }

    fn watched(due: Option<u64>) -> Watched<Late> {
        Watched::new(Inhabitant::Machine(Late(due.map(Mono::from_nanos))), "n0".to_owned())
    }

    fn an_id() -> ConnId {
        let peer = Endpoint::Unix { uid: None, pid: None };
        Host::new(Late(None), Seq::NONE).accepted(Now::default(), ListenerId(0), &peer, None).expect("room")
    }

    fn closed(conn: ConnId) -> Input<'static, ()> {
        Input::Closed { conn, why: CloseReason::Asked, unsent: 0 }
    }

    #[test]
    #[should_panic(expected = "rule broken: after a step the deadline lies behind now")]
    fn a_deadline_that_is_over_is_caught() {
        Host::new(watched(Some(0)), Seq::NONE).command(Now::default(), ());
    }

    #[test]
    #[should_panic(expected = "rule broken: Timer comes only at the deadline")]
    fn a_timer_too_early_is_caught() {
        watched(Some(5)).check(Now::default(), &Input::Timer);
    }

    #[test]
    #[should_panic(expected = "rule broken: Closed comes exactly once")]
    fn a_second_end_is_caught() {
        let mut watched = watched(None);
        watched.check(Now::default(), &closed(an_id()));
        assert!(watched.has_closed(an_id()));
        watched.check(Now::default(), &closed(an_id()));
    }

    #[test]
    #[should_panic(expected = "rule broken: inputs come between Opened and Closed")]
    fn bytes_of_a_connection_that_never_opened_are_caught() {
        watched(None).check(Now::default(), &Input::Bytes { conn: an_id(), data: b"x" });
    }
}
