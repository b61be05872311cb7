//! A driver's duties that are not about sockets.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use relay_core::action::{ActId, Action};
use relay_core::host::Host;
use relay_core::journal::{Journal, Records};
use relay_core::machine::{Machine, Refused, Ticket};
use relay_core::time::Now;

use crate::actor::{Actor, ActorThread, NoActions};
use crate::handle::{Gauges, Handle, Reply};
use crate::inbox::{Ask, Inbox, Mail, Wake};
use crate::journal::JournalThread;
use crate::queue::{Events, Sender, bounded};

/// How a machine is run. [`Options::default`] suits one without records or actions.
pub struct Options {
    /// Commands that may wait before [`Handle::command`] hands one back.
    pub commands: usize,
    /// Events that may wait before the newest are dropped and counted.
    pub events: usize,
    /// What records are written to; `None` for a machine that makes none: what it records all the same is durable at
    /// once.
    pub journal: Option<Box<dyn Journal>>,
    /// The epoch under which this writer appends.
    pub epoch: u64,
    /// What carries actions out.
    pub actor: Box<dyn Actor>,
}

impl Default for Options {
    fn default() -> Self {
        Self { commands: 1024, events: 4096, journal: None, epoch: 1, actor: Box::new(NoActions) }
    }
}

/// Stands between a driver's loop and all that is not a socket.
pub struct Desk<M: Machine + 'static> {
    inbox: Arc<Inbox<M>>,
    events: Sender<M::Event>,
    tickets: BTreeMap<Ticket, Sender<Reply<M>>>,
    journal: Option<JournalThread>,
    actor: ActorThread<M>,
    spare: Option<Records>,
    congested: bool,
}

impl<M: Machine + 'static> Desk<M> {
    /// Sets a desk up. `wake` ends the driver's sleep.
    ///
    /// # Errors
    /// The journal's thread could not be started.
    pub fn new(options: Options, wake: impl Wake) -> io::Result<(Self, Handle<M>, Events<M::Event>)> {
        let inbox = Inbox::new(options.commands, wake);
        let (sender, events) = bounded(options.events);
        let journal = options
            .journal
            .map(|journal| JournalThread::start(journal, options.epoch, Arc::clone(&inbox)))
            .transpose()?;
        let desk = Self {
            actor: ActorThread::new(options.actor, Arc::clone(&inbox)),
            inbox: Arc::clone(&inbox),
            events: sender,
            tickets: BTreeMap::new(),
            journal,
            spare: None,
            congested: false,
        };
        Ok((desk, Handle::new(inbox), events))
    }

    /// Tells the host all that came in since the last turn. While the host is congested the owner's commands wait, but a
    /// shutdown does not.
    pub fn deliver(&mut self, host: &mut Host<M>, now: Now) {
        self.congested = host.is_congested();
        let (mail, asks) = self.inbox.take(!self.congested);
        for mail in mail {
            match mail {
                Mail::Persisted(upto, records) => {
                    self.spare = Some(records);
                    host.persisted(now, upto);
                }
                Mail::PersistFailed => host.persist_failed(now),
                Mail::Resumed(upto) => host.resumed(now, upto),
                Mail::Acted(id, result) => host.acted(now, id, result),
            }
        }
        for ask in asks {
            match ask {
                Ask::Command(command, reply, noted) => {
                    let ticket = host.command(now, command);
                    let _ = noted.set(ticket);
                    self.tickets.insert(ticket, reply);
                }
                Ask::Drain(grace) => host.drain(now, now.mono.after(grace)),
                Ask::Gauges(reply) => {
                    let mut gauges = Gauges::new();
                    host.gauges(&mut |name, value| gauges.push((name, value)));
                    reply.send(gauges);
                }
            }
        }
        self.congested = host.is_congested();
    }

    /// The driver is about to sleep. False where something came in meanwhile: deliver again instead.
    #[must_use = "false means that the driver must not sleep"]
    pub fn sleep(&self) -> bool {
        self.inbox.sleep(!self.congested)
    }

    /// The driver no longer sleeps.
    pub fn woke(&self) {
        self.inbox.woke();
    }

    /// `Port::append`.
    pub fn append(&mut self, records: Records) {
        match &self.journal {
            Some(journal) => journal.append(records),
            None => self.inbox.post(Mail::Persisted(records.last(), records)),
        }
    }

    /// `Port::spare`.
    pub fn spare(&mut self) -> Option<Records> {
        self.spare.take()
    }

    /// `Port::act`.
    pub fn act(&mut self, id: ActId, action: Action) {
        self.actor.act(id, action);
    }

    /// `Port::event`.
    pub fn event(&mut self, event: M::Event) {
        self.events.send(event);
    }

    /// `Port::answer`.
    pub fn answer(&mut self, ticket: Ticket, answer: Result<M::Answer, Refused>) {
        if let Some(reply) = self.tickets.remove(&ticket) {
            reply.send(answer);
        }
    }
}

impl<M: Machine + 'static> Drop for Desk<M> {
    /// Refuses what has no answer, so that nobody waits for a machine that has ended.
    fn drop(&mut self) {
        let waiting = self.inbox.close();
        for reply in std::mem::take(&mut self.tickets).into_values() {
            reply.send(Err(Refused::Stopped));
        }
        for ask in waiting {
            match ask {
                Ask::Command(_, reply, _) => reply.send(Err(Refused::Stopped)),
                Ask::Drain(_) | Ask::Gauges(_) => {}
            }
        }
    }
}
