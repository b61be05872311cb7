//! A lease authority that kills itself while it makes a record durable: `relay serve`'s node, driver and journal, and the
//! same home and arguments. What its home's file `die` says is when:
//!
//! - `before`: the journal has been given the batch, and has done nothing;
//! - `during`: another thread kills as soon as the journal's log is written to, and at the latest behind the commit;
//! - `after`: the batch is durable, and nobody has been told.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use relay_core::journal::{Journal, JournalError, Records, Seq};
use relay_core::lease::BootId;
use relay_core::machine::Durable;
use relay_core::peer::{Node, Settings};
use relay_mio::{Listener, Options};
use relay_node::home::Home;
use relay_node::journal::SqliteJournal;
use relay_node::service;
use relay_tests::fleet::id;
use relay_tests::loads::RELAY;

fn main() -> io::Result<()> {
    let dir = std::env::var_os("RELAY_HOME").ok_or_else(|| io::Error::other("RELAY_HOME is not set"))?;
    let home = Home::at(dir);
    let peers =
        service::Records::read(&home.keys()).map_err(|error| io::Error::other(format!("{error:?}")))?;
    let mut settings = Settings::new(id(RELAY));
    settings.dial_known = false;
    settings.boot = BootId::new("one start of the machine");
    // A nonce that is repeated after a restart hurts nobody here.
    let mut node = Node::new(settings, [1; 32], peers.peers, None);
    let journal = restore(&mut node, &home)?;
    let (newest, epoch) = (journal.newest(), journal.epoch());
    let listener = Listener::tcp(SocketAddr::from(([127, 0, 0, 1], 0)))?;
    let address = listener.tcp_address().ok_or_else(|| io::Error::other("no TCP listener"))?;
    let journal = Mortal { log: home.dir().join("link.db-wal"), die: home.dir().join("die"), journal };
    let options = Options { journal: Some(Box::new(journal)), epoch, ..Options::default() };
    let smol = std::env::args().any(|arg| arg == "smol");
    let start = if smol { relay_smol::start } else { relay_mio::start };
    let (_handle, events) = start(node, newest, vec![listener], options)?;
    let mut stdout = io::stdout();
    writeln!(stdout, r#"{{"event":"listening","addr":"{address}"}}"#)?;
    stdout.flush()?;
    while events.recv().is_some() {}
    Ok(())
}

fn restore(node: &mut Node, home: &Home) -> io::Result<SqliteJournal> {
    let mut journal = SqliteJournal::open(&home.journal_path("link")).map_err(io::Error::other)?;
    let mut base = Seq::NONE;
    if let Some((upto, snapshot)) = journal.snapshot().map_err(io::Error::other)? {
        node.restore_snapshot(&snapshot).map_err(|bad| io::Error::other(bad.reason))?;
        base = upto;
    }
    let mut bad = None;
    let replayed = journal
        .replay(base.next(), &mut |seq, record| bad = bad.take().or_else(|| node.restore(seq, record).err()));
    replayed.map_err(io::Error::other)?;
    bad.map_or(Ok(journal), |bad| Err(io::Error::other(bad.reason)))
}

/// A journal whose process dies with it.
struct Mortal {
    journal: SqliteJournal,
    log: PathBuf,
    die: PathBuf,
}

impl Journal for Mortal {
    fn newest(&self) -> Seq {
        self.journal.newest()
    }

    fn append(&mut self, epoch: u64, records: &Records) -> Result<(), JournalError> {
        let when = std::fs::read_to_string(&self.die).unwrap_or_default();
        match when.as_str() {
            "before" => die(),
            "during" => {
                let (log, before) = (self.log.clone(), length(&self.log));
                std::thread::spawn(move || {
                    while length(&log) == before {
                        std::hint::spin_loop();
                    }
                    die();
                });
            }
            _ => {}
        }
        let appended = self.journal.append(epoch, records);
        if matches!(when.as_str(), "during" | "after") {
            die();
        }
        appended
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

fn length(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |file| file.len())
}

/// kill -9, by its own hand.
fn die() -> ! {
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    loop {
        std::thread::park();
    }
}
