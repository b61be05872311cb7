//! A node's journal: opened, replayed into the node before its first step, and cut where it has grown long.

use std::fs;

use relay_core::journal::{Journal, JournalError, Seq};
use relay_core::lease::BootId;
use relay_core::machine::{BadRecord, Durable};
use relay_core::peer::Node;
use relay_runtime::Clock;

use crate::failure::Failure;
use crate::home::Home;
use crate::journal::SqliteJournal;

/// Records behind the snapshot beyond which a start makes a new one, so that the next start reads few.
const MANY: u64 = 10_000;

/// Opens the journal of a home and restores the node from it.
///
/// # Errors
/// It cannot be opened or read, or holds what this version cannot have written.
pub(super) fn restore(node: &mut Node, home: &Home) -> Result<SqliteJournal, Failure> {
    let mut journal = SqliteJournal::open(&home.journal_path("link"))?;
    let snapshot = journal.snapshot().map_err(|error| unreadable(&journal, error))?;
    let base = match snapshot {
        Some((upto, bytes)) => {
            node.restore_snapshot(&bytes).map_err(|bad| unfit(&journal, upto, &bad))?;
            upto
        }
        None => Seq::NONE,
    };
    let mut first = None;
    let replayed = journal.replay(base.next(), &mut |seq, record| {
        if first.is_none() {
            first = node.restore(seq, record).err().map(|bad| (seq, bad));
        }
    });
    replayed.map_err(|error| unreadable(&journal, error))?;
    if let Some((seq, bad)) = first {
        return Err(unfit(&journal, seq, &bad));
    }
    let newest = journal.newest();
    if newest.number() - base.number() > MANY {
        let mut bytes = Vec::new();
        node.snapshot(&mut bytes);
        // The records stand where it fails.
        if let Err(error) = journal.put_snapshot(newest, &bytes) {
            tracing::warn!("the journal could not be cut: {error}");
        }
    }
    Ok(journal)
}

/// Which start of the machine its monotonic clock counts from. Where the system does not say, the moment of it, which a
/// set clock moves: leases then have their full time again, which is safe.
pub(super) fn boot() -> BootId {
    let said = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let said = said.trim();
    if !said.is_empty() {
        return BootId::new(said);
    }
    let now = Clock.now();
    let started =
        now.wall.as_millis() / 1000 - (now.mono.as_nanos() / 1_000_000_000).min(now.wall.as_millis() / 1000);
    BootId::new(&format!("since {}", started / 10))
}

fn unreadable(journal: &SqliteJournal, error: JournalError) -> Failure {
    let what = journal.fault().map_or_else(|| error.to_string(), ToString::to_string);
    Failure::check(
        format!("the journal {} cannot be read: {what}", journal.path().display()),
        "See how far it holds: relay journal verify. Then put a backup in its place.",
    )
}

fn unfit(journal: &SqliteJournal, seq: Seq, bad: &BadRecord) -> Failure {
    Failure::check(
        format!(
            "the journal {} holds what this version cannot restore: record {}: {}",
            journal.path().display(),
            seq.number(),
            bad.reason
        ),
        "Run the version that wrote it, which relay journal verify names, or put a backup in its place.",
    )
}
