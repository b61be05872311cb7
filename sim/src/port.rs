//! The port of a simulated node: sockets are links, the journal is a disk, the owner is a list.

use relay_core::action::{ActId, Action};
use relay_core::journal::Records;
use relay_core::machine::{ConnId, ListenerId, Refused, Target, Ticket};
use relay_core::port::{Ending, Port, Wrote};

use crate::draw::Domain;
use crate::link::{LinkId, Side};
use crate::net::Core;
use crate::node::Shell;
use crate::queue::Happening;
use crate::watch::{Subject, Watched, Witness};

pub(crate) struct SimPort<'a, M: Subject> {
    pub(crate) shell: &'a mut Shell<M>,
    pub(crate) core: &'a mut Core,
    pub(crate) witness: Option<&'a mut (dyn Witness<M> + 'static)>,
}

impl<M: Subject> SimPort<'_, M> {
    fn note(&mut self, kind: &'static str, id: u64, payload: &[u8]) {
        self.core.trace.note(self.core.now, self.shell.id, kind, id, payload);
    }

    /// The link of a connection that the host may name.
    fn link(&self, conn: ConnId, call: &str) -> (LinkId, Side) {
        match self.shell.conns.get(&conn) {
            Some(link) => *link,
            None => panic!("rule broken: a port hears only of ids that it has: {call} of {conn:?}"),
        }
    }
}

impl<M: Subject> Port<Watched<M>> for SimPort<'_, M> {
    fn append(&mut self, records: Records) {
        let first = records.first().number();
        for (seq, record) in records.iter() {
            self.core.trace.note(self.core.now, self.shell.id, "append", seq.number(), record);
        }
        let expected = self.shell.log.waiting.back().or_else(|| self.shell.log.syncing.back());
        if let Some(last) = expected {
            assert_eq!(first, last.last().next().number(), "rule broken: batches follow each other");
        }
        self.shell.log.waiting.push_back(records);
        self.shell.start_sync(self.core);
    }

    fn write(&mut self, conn: ConnId, bytes: &[u8]) -> Wrote {
        let (link, side) = self.link(conn, "write");
        assert!(!bytes.is_empty(), "rule broken: a port is offered bytes, not none");
        let wrote = self.core.write(link, side, bytes);
        match wrote {
            Wrote::Bytes(count) => {
                self.note("write", u64::from(link.0), &bytes[..count]);
                if let Some(witness) = self.witness.as_deref_mut() {
                    let tail = self.shell.tails.entry(conn).or_default();
                    tail.extend_from_slice(&bytes[..count]);
                    let seq = witness.bytes(tail);
                    self.shell.show(seq, "bytes");
                }
            }
            Wrote::Blocked => self.note("blocked", u64::from(link.0), &[]),
            Wrote::Failed(_) => self.note("write failed", u64::from(link.0), &[]),
        }
        wrote
    }

    fn finish(&mut self, conn: ConnId) {
        let (link, side) = self.link(conn, "finish");
        self.note("finish", u64::from(link.0), &[]);
        self.core.finish(link, side);
    }

    fn reading(&mut self, conn: ConnId, on: bool) {
        let (id, at) = self.link(conn, "reading");
        self.note("reading", u64::from(id.0), &[u8::from(on)]);
        if let Some(link) = self.core.net.links.get_mut(&id) {
            link.end_mut(at).reading = on;
        }
        if on {
            self.core.queue.push(self.core.now, Happening::Read { link: id, at });
        }
    }

    fn accepting(&mut self, listener: ListenerId, on: bool) {
        self.note("accepting", u64::from(listener.0), &[u8::from(on)]);
        let Some(own) = self.shell.listeners.get_mut(usize::from(listener.0)) else { return };
        own.accepting = on;
        if on {
            let life = self.shell.life();
            self.core.queue.push(self.core.now, Happening::Accept { life, listener: listener.0 });
        }
    }

    fn close(&mut self, conn: ConnId, how: Ending) {
        let (link, side) = self.link(conn, "close");
        self.note("close", u64::from(link.0), &[u8::from(how == Ending::Reset)]);
        self.core.close(link, side, how);
        self.shell.conns.remove(&conn);
        self.shell.tails.remove(&conn);
        self.shell.ended.push(conn);
    }

    fn dial(&mut self, conn: ConnId, target: &Target) {
        let nth = self.shell.dials.entry(target.address.clone()).or_default();
        *nth += 1;
        let link = self.core.dial(self.shell.id, conn, &target.address, *nth);
        self.note("dial", u64::from(link.0), format!("{:?}", target.address).as_bytes());
        let before = self.shell.conns.insert(conn, (link, Side::Dialler));
        assert!(before.is_none(), "rule broken: an id is dialled once: {conn:?}");
    }

    fn act(&mut self, id: ActId, action: Action) {
        self.note("act", id.number(), format!("{action:?}").as_bytes());
        // Actions of a node end in the order in which they began, as those on one disk do.
        let entity = u64::from(self.shell.id.number());
        let span = self.core.draws.span(Domain::Act, entity, id.number(), &self.core.act_time);
        let at = self.core.after(span).max(self.shell.acts_done_at);
        self.shell.acts_done_at = at;
        self.shell.acts.insert(id, action);
        self.core.queue.push(at, Happening::Acted { life: self.shell.life(), id });
    }

    fn event(&mut self, event: M::Event) {
        self.note("event", 0, format!("{event:?}").as_bytes());
        if let Some(witness) = self.witness.as_deref_mut() {
            let seq = witness.event(&event);
            self.shell.show(seq, "an event");
        }
        self.shell.events.push((core::time::Duration::from_nanos(self.core.now), event));
    }

    fn answer(&mut self, ticket: Ticket, answer: Result<M::Answer, Refused>) {
        self.note("answer", ticket.number(), format!("{answer:?}").as_bytes());
        if let Some(witness) = self.witness.as_deref_mut() {
            let seq = witness.answer(ticket, &answer);
            self.shell.show(seq, "an answer");
        }
        self.shell.answered(self.core.now, ticket, answer);
    }

    fn spare(&mut self) -> Option<Records> {
        self.shell.log.spare.pop()
    }
}
