//! `relay journal`: the durable records of this node's services.

use std::io;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use relay_core::journal::Seq;
use serde::Serialize;

use super::Context;
use crate::failure::Failure;
use crate::journal::{self, BackedUp, Tally, Verified};

/// Check, export and back up the journals of this node
///
/// All of it works beside the service that writes the journal, and shows it as it is at one moment.
#[derive(Debug, Subcommand)]
#[command(disable_help_subcommand = true, after_help = "Example:\n  relay journal verify")]
pub(super) enum Journal {
    /// Check every checksum, that no record is missing, the snapshot, and the structure of the file
    #[command(after_help = "Example:\n  relay journal verify --journal link")]
    Verify {
        #[command(flatten)]
        which: Which,
    },
    /// Print every record as a JSON object on a line of its own, the snapshot first
    ///
    /// A record that is JSON is in it as a text, any other in base64.
    #[command(after_help = "Example:\n  relay journal export > link.ndjson")]
    Export {
        #[command(flatten)]
        which: Which,
    },
    /// Copy a journal into one new file, which only its owner can read
    ///
    /// The copy is read back before it has its name. To use it, stop the service and put it in the place of the
    /// journal, without the files ending in -wal and -shm that stood beside that one.
    #[command(after_help = "Example:\n  relay journal backup link-backup.db")]
    Backup {
        /// The file to make; one that is there is not written over
        file: PathBuf,
        #[command(flatten)]
        which: Which,
    },
}

#[derive(Args, Debug)]
pub(super) struct Which {
    /// Whose journal: link, in link.db in the home
    #[arg(long, value_enum, default_value_t = Name::Link, value_name = "NAME", hide_possible_values = true)]
    journal: Name,
}

/// A service that keeps a journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Name {
    Link,
}

impl Name {
    const fn text(self) -> &'static str {
        match self {
            Self::Link => "link",
        }
    }
}

#[derive(Serialize)]
struct VerifiedAnswer<'a> {
    journal: &'a str,
    path: String,
    ok: bool,
    format: u32,
    written_by: Option<&'a str>,
    epoch: Option<u64>,
    records: u64,
    first: Option<u64>,
    newest: u64,
    snapshot: Option<u64>,
    faults: u64,
    first_fault: Option<FaultAnswer>,
}

#[derive(Serialize)]
struct FaultAnswer {
    seq: Option<u64>,
    what: String,
}

#[derive(Serialize)]
struct BackupAnswer<'a> {
    journal: &'a str,
    path: String,
    to: String,
    bytes: u64,
    records: u64,
    newest: u64,
    ok: bool,
}

impl Journal {
    pub(super) fn run(self, context: &mut Context<'_>) -> Result<(), Failure> {
        match self {
            Self::Verify { which } => verify(which.journal, context),
            Self::Export { which } => export(which.journal, context),
            Self::Backup { file, which } => backup(&file, which.journal, context),
        }
    }
}

fn verify(name: Name, context: &mut Context<'_>) -> Result<(), Failure> {
    let path = context.home.journal_path(name.text());
    let verified = journal::verify(&path)?;
    let out = &mut context.out;
    let number = |seq: Option<Seq>| seq.map(Seq::number);
    if out.is_json() {
        let fault = verified.fault.as_ref();
        out.object(&VerifiedAnswer {
            journal: name.text(),
            path: path.display().to_string(),
            ok: verified.fault.is_none(),
            format: verified.format,
            written_by: verified.written_by.as_deref(),
            epoch: verified.epoch,
            records: verified.records,
            first: number(verified.first),
            newest: verified.newest.number(),
            snapshot: number(verified.snapshot),
            faults: verified.faults,
            first_fault: fault.map(|fault| FaultAnswer { seq: number(fault.seq), what: fault.to_string() }),
        });
    } else {
        let known = |number: Option<u64>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
        out.facts(&[
            ("journal", &path.display().to_string()),
            ("written by", &format!("relay {}", verified.written_by.as_deref().unwrap_or("?"))),
            ("epoch", &known(verified.epoch)),
            ("records", &verified.records.to_string()),
            ("first", &known(number(verified.first))),
            ("newest", &verified.newest.number().to_string()),
            ("snapshot up to", &known(number(verified.snapshot))),
            ("faults", &verified.faults.to_string()),
        ]);
    }
    holds(&path, &verified)
}

/// The failure that a journal with faults is.
fn holds(path: &Path, verified: &Verified) -> Result<(), Failure> {
    let Some(fault) = &verified.fault else { return Ok(()) };
    let more = match verified.faults {
        0 | 1 => String::new(),
        faults => format!(", the first of {faults} faults"),
    };
    Err(Failure::check(
        format!("the journal {} is damaged: {fault}{more}", path.display()),
        "What can be read: relay journal export. Then stop the service and put a backup in its place.",
    ))
}

fn export(name: Name, context: &mut Context<'_>) -> Result<(), Failure> {
    let path = context.home.journal_path(name.text());
    let out = &mut context.out;
    let exported = journal::each_row(&path, &mut |row| {
        out.object(row);
        // Nobody is left to read: what went wrong is told when the answer ends.
        if out.is_open() { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
    });
    if !out.is_open() {
        return Ok(());
    }
    let Tally { records, faults } = exported?;
    out.talk(&format!("{records} records of {}.", path.display()));
    if faults == 0 {
        return Ok(());
    }
    Err(Failure::check(
        format!("{faults} rows of {} have a checksum that does not hold", path.display()),
        "They are printed with \"checksum_ok\":false. Put a backup in the journal's place.",
    ))
}

fn backup(to: &Path, name: Name, context: &mut Context<'_>) -> Result<(), Failure> {
    let path = context.home.journal_path(name.text());
    let BackedUp { verified, bytes } = journal::backup(&path, to)?;
    let out = &mut context.out;
    if out.is_json() {
        out.object(&BackupAnswer {
            journal: name.text(),
            path: path.display().to_string(),
            to: to.display().to_string(),
            bytes,
            records: verified.records,
            newest: verified.newest.number(),
            ok: verified.fault.is_none(),
        });
    } else {
        let newest = verified.newest.number();
        out.line(&format!("{} holds the journal up to record {newest}, {bytes} bytes", to.display()));
    }
    holds(to, &verified)
}
