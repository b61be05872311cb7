//! What the journal costs: a group of records made durable beside a bare sync of the same disk, by turns, and the time to
//! read a long journal.
//!
//! It runs in the folder for temporary files, or in `RELAY_BENCH_DIR`; a folder in memory measures nothing. Prints tables;
//! measures nothing in a test run.
#![allow(clippy::print_stdout, reason = "the table is what a bench is for")]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use relay_core::journal::{Journal, Records, Seq};
use relay_node::journal::{SqliteJournal, verify};

/// How often each is measured.
const ROUNDS: u64 = 500;
/// Records in a group.
const GROUPS: [u64; 3] = [1, 20, 250];
/// The size of a record, in bytes.
const RECORD: usize = 150;
/// The records of the long journal.
const LONG: u64 = 100_000;
/// What a bare sync writes, in bytes.
const BLOCK: usize = 4096;
/// The blocks that it goes round.
const BLOCKS: u64 = 1000;

fn main() {
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    let folder = std::env::var_os("RELAY_BENCH_DIR").map_or_else(std::env::temp_dir, Into::into);
    let dir = tempfile::tempdir_in(folder).expect("there is a folder to measure in");
    commits(dir.path());
    replays(&dir.path().join("long.db"));
}

fn batch(first: Seq, count: u64) -> Records {
    let mut records = Records::reuse(Records::default(), first);
    for seq in 0..count {
        records.push(|out| {
            let head = format!("{{\"lease\":{}", first.number() + seq);
            out.extend_from_slice(head.as_bytes());
            out.extend(core::iter::repeat_n(b'x', RECORD - head.len()));
        });
    }
    records
}

fn commits(dir: &Path) {
    let block = [0x5a; BLOCK];
    let bare = File::create_new(dir.join("bare")).expect("the folder is new");
    for number in 0..BLOCKS {
        bare.write_all_at(&block, number * BLOCK as u64).expect("the disk has room");
    }
    bare.sync_all().expect("the disk works");
    let open = |count| SqliteJournal::open(&dir.join(format!("{count}.db"))).expect("the folder is new");
    let mut journals = GROUPS.map(|count| (count, open(count), Vec::new()));
    let mut syncs = Vec::new();
    for round in 0..ROUNDS {
        let began = Instant::now();
        bare.write_all_at(&block, (round % BLOCKS) * BLOCK as u64).expect("the blocks are there");
        bare.sync_data().expect("the disk works");
        syncs.push(began.elapsed());
        for (count, journal, times) in &mut journals {
            let batch = batch(journal.newest().next(), *count);
            let began = Instant::now();
            journal.append(journal.epoch(), &batch).expect("the disk works");
            times.push(began.elapsed());
        }
    }
    println!("{:<28} {:>10} {:>10} {:>14}", "", "p50 us", "p99 us", "records/s, p50");
    row("fdatasync of 4 KiB", &mut syncs, None);
    for (count, _, mut times) in journals {
        row(&format!("append of {count}"), &mut times, Some(count));
    }
}

fn row(name: &str, times: &mut [Duration], records: Option<u64>) {
    times.sort_unstable();
    let [p50, p99] = [times[times.len() / 2], times[times.len() * 99 / 100]];
    let each = records.map_or_else(String::new, |count| format!("{:.0}", count as f64 / p50.as_secs_f64()));
    println!("{name:<28} {:>10} {:>10} {each:>14}", p50.as_micros(), p99.as_micros());
}

fn replays(path: &Path) {
    let mut journal = SqliteJournal::open(path).expect("the folder is new");
    let began = Instant::now();
    while journal.newest().number() < LONG {
        let batch = batch(journal.newest().next(), 250);
        journal.append(journal.epoch(), &batch).expect("the disk works");
    }
    println!("\n{LONG} records of {RECORD} B: {} ms to write in groups of 250", began.elapsed().as_millis());
    drop(journal);
    let mut times: [Vec<Duration>; 3] = Default::default();
    for _ in 0..5 {
        let began = Instant::now();
        let mut journal = SqliteJournal::open(path).expect("it was closed");
        times[0].push(began.elapsed());
        let began = Instant::now();
        let mut count = 0;
        journal.replay(Seq::new(1), &mut |_, _| count += 1).expect("it holds");
        times[1].push(began.elapsed());
        assert_eq!(count, LONG);
        let began = Instant::now();
        assert_eq!(verify(path).expect("it can be read").faults, 0);
        times[2].push(began.elapsed());
    }
    for (what, times) in ["open", "replay", "verify"].into_iter().zip(&mut times) {
        times.sort_unstable();
        println!("{what:<8} {:>8.1} ms", times[times.len() / 2].as_secs_f64() * 1000.0);
    }
}
