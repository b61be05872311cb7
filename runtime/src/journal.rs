//! The thread that commits: all that queued during the last commit goes into the next.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

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

    /// Opens again and repeats the batch until it is durable; `None` when the driver ended meanwhile.
    fn recover(&mut self, mut group: Records) -> Option<Seq> {
        let [mut pause, longest] = RETRY;
        loop {
            match self.batches.recv_timeout(pause) {
                Ok(more) => {
                    group.append(&more);
                    continue;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return None,
            }
            pause = (pause * 2).min(longest);
            if self.journal.reopen().is_ok() && self.journal.append(self.epoch, &group).is_ok() {
                return Some(group.last());
            }
        }
    }
}
