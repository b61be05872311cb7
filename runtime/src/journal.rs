//! The thread that commits: all that queued during the last commit goes into the next.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use relay_core::journal::{Journal, Records, Seq};
use relay_core::machine::Machine;

use crate::inbox::{Inbox, Mail};

/// The most bytes of records in one commit.
const GROUP_BYTES: usize = 4 << 20;
/// How long after a failure the journal is opened again: doubled up to the second.
const RETRY: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(2)];

pub(crate) struct JournalThread {
    work: Option<Sender<Records>>,
    thread: Option<JoinHandle<()>>,
}

impl JournalThread {
    pub(crate) fn start<M: Machine + 'static>(
        journal: Box<dyn Journal>,
        epoch: u64,
        inbox: Arc<Inbox<M>>,
    ) -> std::io::Result<Self> {
        let (work, batches) = mpsc::channel();
        let run = move || Committer { journal, epoch, inbox, batches }.run();
        let thread = thread::Builder::new().name("relay-journal".into()).spawn(run)?;
        Ok(Self { work: Some(work), thread: Some(thread) })
    }

    pub(crate) fn append(&self, records: Records) {
        // A thread that is gone has panicked; that nothing is ever confirmed then is the safe end of it.
        let _ = self.work.as_ref().map(|work| work.send(records));
    }
}

impl Drop for JournalThread {
    /// Waits until all that was given is committed, or the journal fails.
    fn drop(&mut self) {
        self.work = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Committer<M: Machine + 'static> {
    journal: Box<dyn Journal>,
    epoch: u64,
    inbox: Arc<Inbox<M>>,
    batches: Receiver<Records>,
}

impl<M: Machine + 'static> Committer<M> {
    fn run(mut self) {
        while let Ok(mut group) = self.batches.recv() {
            self.gather(&mut group);
            if self.journal.append(self.epoch, &group).is_ok() {
                let upto = group.last();
                self.cut(&group);
                self.inbox.post(Mail::Persisted(upto, group));
            } else {
                self.inbox.post(Mail::PersistFailed);
                match self.recover(group) {
                    Some(upto) => self.inbox.post(Mail::Resumed(upto)),
                    None => return,
                }
            }
        }
    }

    fn gather(&mut self, group: &mut Records) {
        while group.size() < GROUP_BYTES
            && let Ok(more) = self.batches.try_recv()
        {
            group.append(&more);
        }
    }

    /// Cuts the journal behind a snapshot. Where that fails the older one stands, and nothing is lost but room.
    fn cut(&mut self, group: &Records) {
        if let Some((upto, snapshot)) = group.snapshot() {
            let _ = self.journal.put_snapshot(upto, snapshot);
        }
    }

    /// Opens again and repeats the batch until it is durable; `None` when the driver ended meanwhile.
    fn recover(&mut self, mut group: Records) -> Option<Seq> {
        let [mut pause, longest] = RETRY;
        loop {
            // Until a time, not for a time: a machine that goes on recording must not put the next try off for ever.
            let again = Instant::now() + pause;
            loop {
                match self.batches.recv_timeout(again.saturating_duration_since(Instant::now())) {
                    Ok(more) => group.append(&more),
                    Err(RecvTimeoutError::Timeout) => break,
                    Err(RecvTimeoutError::Disconnected) => return None,
                }
                if Instant::now() >= again {
                    break;
                }
            }
            pause = (pause * 2).min(longest);
            if self.journal.reopen().is_ok() && self.journal.append(self.epoch, &group).is_ok() {
                self.cut(&group);
                return Some(group.last());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use relay_core::action::{ActId, Action};
    use relay_core::host::Host;
    use relay_core::journal::{JournalError, NullJournal};
    use relay_core::machine::{ConnId, Input, ListenerId, Refused, Target, Ticket};
    use relay_core::outbox::Outbox;
    use relay_core::port::{Ending, Port, Wrote};
    use relay_core::time::{Mono, Now};

    use super::*;
    use crate::desk::{Desk, Options};
    use crate::inbox::Wake;

    /// Fails its first batch.
    #[derive(Default)]
    struct Stumbling {
        journal: NullJournal,
        failed: bool,
    }

    impl Journal for Stumbling {
        fn newest(&self) -> Seq {
            self.journal.newest()
        }

        fn append(&mut self, epoch: u64, records: &Records) -> Result<(), JournalError> {
            if std::mem::replace(&mut self.failed, true) {
                return self.journal.append(epoch, records);
            }
            Err(JournalError::Failed)
        }

        fn reopen(&mut self) -> Result<Seq, JournalError> {
            self.journal.reopen()
        }

        fn replay(&mut self, from: Seq, each: &mut dyn FnMut(Seq, &[u8])) -> Result<(), JournalError> {
            self.journal.replay(from, each)
        }

        fn put_snapshot(&mut self, upto: Seq, snapshot: &[u8]) -> Result<(), JournalError> {
            self.journal.put_snapshot(upto, snapshot)
        }

        fn snapshot(&mut self) -> Result<Option<(Seq, Vec<u8>)>, JournalError> {
            self.journal.snapshot()
        }
    }

    /// Records at every command, whether the journal works or not, and answers with whether it did.
    #[derive(Default)]
    struct Stubborn;

    impl Machine for Stubborn {
        type Command = ();
        type Answer = ();
        type Event = bool;

        fn step(&mut self, _now: Now, input: Input<'_, ()>, out: &mut Outbox<bool, ()>) {
            match input {
                Input::Command { ticket, command: () } => {
                    out.record(|record| record.push(b'x'));
                    out.answer(ticket, ());
                }
                Input::PersistFailed { .. } => out.event_free(false),
                Input::Resumed { .. } => out.event_free(true),
                Input::Opened { .. }
                | Input::Bytes { .. }
                | Input::Eof { .. }
                | Input::Drained { .. }
                | Input::Closed { .. }
                | Input::Persisted { .. }
                | Input::Acted { .. }
                | Input::Drain { .. }
                | Input::Timer => {}
            }
        }

        fn deadline(&self) -> Option<Mono> {
            None
        }
    }

    struct Nobody;

    impl Wake for Nobody {
        fn wake(&self) {}
    }

    /// The parts of a port that are not about sockets.
    struct Socketless(Desk<Stubborn>);

    impl Port<Stubborn> for Socketless {
        fn append(&mut self, records: Records) {
            self.0.append(records);
        }
        fn write(&mut self, _conn: ConnId, _bytes: &[u8]) -> Wrote {
            Wrote::Blocked
        }
        fn finish(&mut self, _conn: ConnId) {}
        fn reading(&mut self, _conn: ConnId, _on: bool) {}
        fn accepting(&mut self, _listener: ListenerId, _on: bool) {}
        fn close(&mut self, _conn: ConnId, _how: Ending) {}
        fn dial(&mut self, _conn: ConnId, _target: &Target) {}
        fn act(&mut self, _id: ActId, _action: Action) {}
        fn event(&mut self, event: bool) {
            self.0.event(event);
        }
        fn answer(&mut self, ticket: Ticket, answer: Result<(), Refused>) {
            self.0.answer(ticket, answer);
        }
    }

    #[test]
    fn a_machine_that_goes_on_recording_does_not_put_the_next_try_off() {
        let journal: Box<dyn Journal> = Box::new(Stumbling::default());
        let options = Options { journal: Some(journal), ..Options::default() };
        let (desk, handle, events) = Desk::new(options, Nobody).unwrap();
        let mut port = Socketless(desk);
        let mut host = Host::new(Stubborn, Seq::NONE);
        let until = Instant::now() + Duration::from_secs(20);
        let mut told = Vec::new();
        // A record every other millisecond, so that the journal's thread is never without one for as long as it waits.
        while told.last() != Some(&true) {
            assert!(Instant::now() < until, "the journal was never opened again");
            let _ = handle.command(());
            port.0.deliver(&mut host, Now::default());
            let _ = host.settle(Now::default(), &mut port);
            told.extend(events.recv_timeout(Duration::from_millis(2)));
        }
        assert_eq!(told, [false, true]);
    }
}
