//! Deeds on a driver, with sockets of this machine.

use std::ops::Range;

use relay_core::machine::{Refused, Target};
use relay_mio::{Options, Pending, RecvError, Reply};
use tempfile::TempDir;

use super::Stage;
use crate::actor::Folder;
use crate::client::Client;
use crate::probe::{Ask, Probe, Seen};
use crate::rig::{Over, PATIENCE, Rig, Running};

/// A driver's probe, and its clients.
pub struct Driven {
    // Before the driver, whose end waits for nobody.
    clients: Vec<Option<Client>>,
    pending: Vec<Pending<Reply<Probe>>>,
    answers: Vec<Option<Result<u64, Refused>>>,
    running: Running,
    over: Over,
    name: &'static str,
    _files: TempDir,
}

impl Driven {
    /// A probe under `rig`, whose event channel holds so many.
    ///
    /// # Panics
    /// Where the system has no socket or thread left.
    #[must_use]
    pub fn new(rig: &dyn Rig, over: Over, events: usize) -> Self {
        let files = TempDir::new().expect("the system has a place for temporary files");
        let actor = Box::new(Folder::new(files.path()));
        let running = Running::with(rig, over, Options { events, actor, ..Options::default() });
        Self {
            clients: Vec::new(),
            pending: Vec::new(),
            answers: Vec::new(),
            running,
            over,
            name: rig.name(),
            _files: files,
        }
    }

    fn client(&mut self, number: usize) -> &mut Client {
        self.clients[number].as_mut().expect("a client that left does nothing more")
    }
}

impl Stage for Driven {
    fn name(&self) -> String {
        format!("{} over {:?}", self.name, self.over)
    }

    fn connect(&mut self) {
        self.clients.push(Some(self.running.client()));
    }

    fn send(&mut self, client: usize, bytes: &[u8]) {
        self.client(client).send(bytes);
    }

    fn line(&mut self, client: usize) -> String {
        self.client(client).line()
    }

    fn rest(&mut self, client: usize) -> Option<Vec<u8>> {
        self.client(client).rest().ok()
    }

    fn finish(&mut self, client: usize) {
        self.client(client).finish();
    }

    fn reset(&mut self, client: usize) {
        self.clients[client].take().expect("a client that left does nothing more").reset();
    }

    fn leave(&mut self, client: usize) {
        self.clients[client] = None;
    }

    fn order(&mut self, ask: Ask) -> usize {
        self.pending.push(self.running.handle.command(ask).expect("the driver takes commands"));
        self.answers.push(None);
        self.pending.len() - 1
    }

    fn answer(&mut self, number: usize) -> Result<u64, Refused> {
        let pending = &self.pending[number];
        *self.answers[number].get_or_insert_with(|| pending.wait_timeout(PATIENCE).expect("an answer comes"))
    }

    fn target(&self) -> Target {
        self.running.place.target()
    }

    fn hold(&mut self, held: bool) {
        if held {
            self.running.disk.hold();
        } else {
            self.running.disk.release();
        }
    }

    fn fill(&mut self, full: bool) {
        self.running.disk.fill(full);
    }

    fn event(&mut self) -> Seen {
        self.running.until(|_| true)
    }

    fn until_gauge(&mut self, name: &str, values: Range<u64>) {
        self.running.until_gauge(name, |value| values.contains(&value));
    }

    fn shutdown(&mut self) {
        self.running.handle.shutdown(PATIENCE);
    }

    fn end(&mut self) -> Vec<Seen> {
        // Else it would be a race between the last events and the room that reading makes for them.
        assert!(self.running.handle.join(), "the driver's thread ends in order");
        let left = std::iter::from_fn(|| self.running.events.recv()).collect();
        assert_eq!(self.running.events.try_recv(), Err(RecvError::Ended));
        left
    }

    fn dropped(&self) -> u64 {
        self.running.events.dropped()
    }

    fn records(&self) -> Vec<String> {
        self.running.disk.records()
    }
}
