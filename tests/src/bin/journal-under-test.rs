//! Works on a journal as a process of its own, so that it can be killed and have a disk of its own.
//!
//! - `write PATH SEED` appends batches for ever and says `durable N` behind each, or `cut N` behind a snapshot.
//! - `fill DIR` fills the filesystem of DIR, makes room and goes on; it says how that went.

use std::io::{self, Write};
use std::path::Path;

use relay_core::journal::{Journal, JournalError, Records, Seq};
use relay_node::journal::{SqliteJournal, verify};
use relay_tests::batches::{Batches, filler};

fn main() -> io::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["write", path, seed] => write(Path::new(path), seed.parse().map_err(io::Error::other)?),
        ["fill", dir] => fill(Path::new(dir)),
        _ => Err(io::Error::other("write PATH SEED, or fill DIR")),
    }
}

fn say(line: &str) -> io::Result<()> {
    let mut stdout = io::stdout();
    writeln!(stdout, "{line}")?;
    stdout.flush()
}

fn write(path: &Path, seed: u64) -> io::Result<()> {
    let mut journal = SqliteJournal::open(path).map_err(io::Error::other)?;
    let epoch = journal.epoch();
    let mut batches = Batches::new(seed, journal.newest());
    say("open")?;
    loop {
        let batch = batches.next_batch();
        journal.append(epoch, &batch).map_err(io::Error::other)?;
        say(&format!("durable {}", batch.last().number()))?;
        if batches.draw(16) == 0 {
            let upto = Seq::new(batch.last().number().saturating_sub(5));
            journal.put_snapshot(upto, upto.number().to_string().as_bytes()).map_err(io::Error::other)?;
            say(&format!("cut {}", upto.number()))?;
        }
    }
}

/// A batch of one record, large enough that few of them fill the disk.
fn large(seq: Seq) -> Records {
    let mut records = Records::reuse(Records::default(), seq);
    records.push(|out| out.extend(filler(seq, 20_000)));
    records
}

fn fill(dir: &Path) -> io::Result<()> {
    let ballast = dir.join("ballast");
    // More than half, since all that the journal's log holds is written a second time before it goes on.
    std::fs::write(&ballast, vec![0; 1280 << 10])?;
    let path = dir.join("link.db");
    let mut journal = SqliteJournal::open(&path).map_err(io::Error::other)?;
    let epoch = journal.epoch();
    let refused = loop {
        let batch = large(journal.newest().next());
        match journal.append(epoch, &batch) {
            Ok(()) => {}
            Err(error) => {
                say(&format!("append {error:?}"))?;
                break batch;
            }
        }
    };
    let durable = journal.newest();
    // Whether it opens on a full disk is left open; that it takes nothing is not.
    let again = journal.reopen().and_then(|_| journal.append(epoch, &refused));
    say(&format!("again {:?}", again.err()))?;
    std::fs::remove_file(&ballast)?;
    let held = journal.reopen().map_err(io::Error::other)?;
    say(&format!("held {}", i128::from(held.number()) - i128::from(durable.number())))?;
    journal.append(epoch, &refused).map_err(io::Error::other)?;
    journal.append(epoch, &large(refused.last().next())).map_err(io::Error::other)?;
    drop(journal);
    let mut journal = SqliteJournal::open(&path).map_err(io::Error::other)?;
    let mut whole = true;
    let replayed: Result<(), JournalError> = journal
        .replay(Seq::new(1), &mut |seq, record| whole &= record.iter().copied().eq(filler(seq, 20_000)));
    replayed.map_err(io::Error::other)?;
    let newest = i128::from(journal.newest().number()) - i128::from(durable.number());
    let faults = verify(&path).map_err(io::Error::other)?.faults;
    say(&format!("newest {newest} whole {whole} faults {faults}"))
}
