//! `relay session`: who is alive on this machine.

use clap::Subcommand;
use serde::Serialize;

use super::Context;
use crate::failure::Failure;
use crate::sessions::{self, Life, session_name};

/// Say who is alive on this machine: what holds leases
///
/// A lease lives for as long as its session does. A session is a name that a process holds; it ends with that process,
/// or by name. relay serve tells peers which sessions are alive; while none runs, they are kept until one does.
#[derive(Debug, Subcommand)]
#[command(disable_help_subcommand = true, after_help = "Example:\n  relay session start deploy")]
pub(super) enum Session {
    /// Start a session, which nobody else here may have while it lives
    #[command(after_help = "Example:\n  relay session start deploy --pid 4711")]
    Start {
        /// Its name: 1 to 128 bytes, without control characters and without @
        #[arg(value_parser = session_name)]
        name: String,
        /// The process that it ends with [default: the one that runs this command, which is your shell]
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
        pid: Option<u32>,
    },
    /// End a session before its process does
    #[command(after_help = "Example:\n  relay session end deploy")]
    End {
        /// Its name
        #[arg(value_parser = session_name)]
        name: String,
    },
    /// List the sessions of this machine, and whether their processes run
    #[command(after_help = "Example:\n  relay session list")]
    List,
}

/// A session as it is shown.
#[derive(Serialize)]
struct Shown<'s> {
    name: &'s str,
    pid: u32,
    /// Null where the system does not say.
    alive: Option<bool>,
    started_at: &'s str,
    project: Option<&'s str>,
}

impl<'s> From<&'s sessions::Session> for Shown<'s> {
    fn from(session: &'s sessions::Session) -> Self {
        let alive = match session.life() {
            Life::Alive => Some(true),
            Life::Ended => Some(false),
            Life::Unknown => None,
        };
        let (name, started_at, project) = (&session.name, &session.started_at, session.project.as_deref());
        Self { name, pid: session.pid, alive, started_at, project }
    }
}

impl Session {
    pub(super) fn run(self, context: &mut Context<'_>) -> Result<(), Failure> {
        match self {
            Self::Start { name, pid } => start(&name, pid, context),
            Self::End { name } => end(&name, context),
            Self::List => list(context),
        }
    }
}

fn start(name: &str, pid: Option<u32>, context: &mut Context<'_>) -> Result<(), Failure> {
    let parent = || {
        let parent = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get().cast_unsigned());
        // Whoever is adopted has lost the process that it is asked for.
        parent.filter(|pid| *pid > 1).ok_or_else(|| {
            Failure::usage("the process that ran this command has ended", "Name one: --pid N.")
        })
    };
    let pid = pid.map_or_else(parent, Ok)?;
    let dir = std::env::current_dir().ok();
    let session = context.home.sessions().start(name, pid, dir.as_deref())?;
    let runs = context.serve()?.is_some();
    let out = &mut context.out;
    if out.is_json() {
        out.object(&Shown::from(&session));
    } else {
        out.line(&format!("session {name} is alive until process {pid} ends"));
    }
    if !runs {
        out.talk("relay serve is not running here: peers hear of it when it does.");
    }
    Ok(())
}

fn end(name: &str, context: &mut Context<'_>) -> Result<(), Failure> {
    let session = context.home.sessions().end(name)?;
    let out = &mut context.out;
    if out.is_json() {
        out.object(&serde_json::json!({"name": session.name, "pid": session.pid}));
    } else {
        out.line(&format!("session {name} has ended"));
    }
    Ok(())
}

fn list(context: &mut Context<'_>) -> Result<(), Failure> {
    let sessions = context.home.sessions().list()?;
    let out = &mut context.out;
    let shown = sessions.iter().map(Shown::from);
    if out.is_json() {
        shown.for_each(|session| out.object(&session));
        return Ok(());
    }
    let state = |alive| match alive {
        Some(true) => "alive",
        Some(false) => "ended",
        None => "unknown",
    };
    let row = |session: Shown<'_>| {
        let project = session.project.unwrap_or("-");
        let cells =
            [session.name, &session.pid.to_string(), state(session.alive), session.started_at, project];
        cells.map(ToOwned::to_owned).to_vec()
    };
    out.table(&["SESSION", "PROCESS", "STATE", "SINCE", "PROJECT"], shown.map(row).collect());
    Ok(())
}
