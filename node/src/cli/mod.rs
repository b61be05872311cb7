//! The command line: `relay <command>`.
//!
//! stdout is the answer and stderr the talk; `--json` makes the answer one object a line. A command group is a file
//! here: its arguments, and a `run` that takes a [`Context`]. To add one: a file, a variant of `Command`, its arm in
//! `dispatch`, and its name in `help::GROUPS`.

mod config;
mod connect;
mod context;
mod help;
mod identity;
mod invite;
mod join;
mod journal;
mod lease;
mod lease_run;
mod live;
mod log;
mod output;
mod pairing;
mod peers;
mod secret;
mod send;
mod serve;
mod session;
mod span;
mod words;
mod world;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{ArgAction, Args, ColorChoice, FromArgMatches, Parser, Subcommand, ValueEnum};

pub use context::Context;
pub use output::Output;
pub use world::{Addresses, System, Terminals, ThisSystem, World};

use crate::failure::{Exit, Failure};
use crate::guard;

/// Relays that pair, keep links alive and share leases, tasks and knowledge.
#[derive(Debug, Parser)]
#[command(name = "relay", version = VERSION, max_term_width = 100, subcommand_required = true)]
#[command(arg_required_else_help = true)]
#[command(after_help = "Example:\n  relay invite --format link")]
struct Cli {
    #[command(flatten)]
    globals: Globals,
    #[command(subcommand)]
    command: Command,
}

const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (peer link protocol 1)");

/// What every command takes.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Everywhere")]
pub struct Globals {
    /// The folder with this node's identity and keys [default: RELAY_HOME, else ~/.relay]
    #[arg(long, global = true, value_name = "DIR")]
    pub home: Option<PathBuf>,
    /// The configuration file [default: config.toml in the home]
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Answer with one JSON object a line
    #[arg(long, global = true)]
    pub json: bool,
    /// Say more on stderr; twice for still more
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub verbose: u8,
    /// Say nothing on stderr but errors
    #[arg(short, long, global = true)]
    pub quiet: bool,
    /// Use colour: auto (on a terminal, unless NO_COLOR is set), always or never
    #[arg(long, global = true, value_enum, default_value_t = When::Auto, value_name = "WHEN")]
    #[arg(hide_possible_values = true)]
    pub color: When,
}

/// When to use colour.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum When {
    /// On a terminal, unless NO_COLOR is set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

#[derive(Debug, Subcommand)]
enum Command {
    Serve(serve::Serve),
    Identity(identity::Identity),
    #[command(subcommand)]
    Config(config::Config),
    Pair(pairing::Pair),
    Accept(pairing::Accept),
    Invite(invite::Invite),
    Join(join::Join),
    Connect(connect::Connect),
    Ping(send::Ping),
    Send(send::Send),
    #[command(subcommand)]
    Peers(peers::Peers),
    #[command(subcommand)]
    Lease(lease::Lease),
    #[command(subcommand)]
    Session(session::Session),
    #[command(subcommand)]
    Journal(journal::Journal),
}

fn dispatch(command: Command, context: &mut Context<'_>) -> Result<(), Failure> {
    match command {
        Command::Serve(command) => command.run(context),
        Command::Connect(command) => command.run(context),
        Command::Join(command) => command.run(context),
        Command::Ping(command) => command.run(context),
        Command::Send(command) => command.run(context),
        Command::Identity(command) => command.run(context),
        Command::Config(command) => command.run(context),
        Command::Pair(command) => command.run(context),
        Command::Accept(command) => command.run(context),
        Command::Invite(command) => command.run(context),
        Command::Peers(command) => command.run(context),
        Command::Lease(command) => command.run(context),
        Command::Session(command) => command.run(context),
        Command::Journal(command) => command.run(context),
    }
}

/// Runs the program in the process that it is.
#[must_use]
pub fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().collect();
    if let Some(code) = guard::become_command(&args) {
        return ExitCode::from(code);
    }
    // Not locked: a service's other threads write to the same streams.
    let (mut stdin, mut stdout, mut stderr) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
    let mut world = World {
        vars: std::env::vars_os().collect(),
        terminals: Terminals::of_this_process(),
        stdin: &mut stdin,
        stdout: &mut stdout,
        stderr: &mut stderr,
        system: &mut ThisSystem,
    };
    ExitCode::from(run(args, &mut world))
}

/// Runs one command line (the program's name first) in `world`, and returns the exit code.
pub fn run(args: impl IntoIterator<Item = OsString>, world: &mut World<'_>) -> u8 {
    let args: Vec<OsString> = args.into_iter().collect();
    let when = asked_colour(&args);
    let parsed = help::command()
        .color(ColorChoice::Always)
        .try_get_matches_from(&args)
        .and_then(|matches| Cli::from_arg_matches(&matches));
    match parsed {
        Ok(cli) => act(cli, world),
        Err(error) => explain(&error, when, world),
    }
}

fn act(cli: Cli, world: &mut World<'_>) -> u8 {
    let colour = world.colour(cli.globals.color, world.terminals.stderr);
    let outcome = Context::new(&cli.globals, world).and_then(|mut context| {
        let outcome = dispatch(cli.command, &mut context);
        // What was answered before a failure is still delivered; the failure counts.
        let delivered = context.out.finish();
        outcome.and(delivered).map(|()| context.code())
    });
    let failure = match outcome {
        Ok(code) => return code,
        Err(failure) => failure,
    };
    let text = failure.to_string();
    let text = if colour { text.replacen("relay:", "\u{1b}[1;31mrelay:\u{1b}[0m", 1) } else { text };
    // With stderr gone there is nobody left to tell; the exit code still does.
    let _ = writeln!(world.stderr, "{text}");
    failure.exit.code()
}

/// Help, the version, or what is wrong with the command line.
fn explain(error: &clap::Error, when: When, world: &mut World<'_>) -> u8 {
    let asked = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    let terminal = if asked { world.terminals.stdout } else { world.terminals.stderr };
    let colour = world.colour(when, terminal);
    let styled = error.render();
    let text = if colour { styled.ansi().to_string() } else { styled.to_string() };
    let text = if asked { without_blanks(&text) } else { text.replacen("error:", "relay:", 1) };
    let to: &mut dyn std::io::Write = if asked { &mut *world.stdout } else { &mut *world.stderr };
    let written = to.write_all(text.as_bytes()).and_then(|()| to.flush());
    match written {
        _ if !asked => Exit::Usage.code(),
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Exit::Refused.code(),
        Ok(()) | Err(_) => 0,
    }
}

/// A text whose empty lines are empty: help indents the line before a default.
fn without_blanks(text: &str) -> String {
    let mut lines: Vec<_> = text.lines().map(str::trim_end).collect();
    lines.push("");
    lines.join("\n")
}

/// What `--color` says, read before the command line is known to be well formed.
fn asked_colour(args: &[OsString]) -> When {
    let mut words = args.iter().filter_map(|arg| arg.to_str());
    while let Some(word) = words.next() {
        let value = if word == "--color" { words.next() } else { word.strip_prefix("--color=") };
        if let Some(when) = value.and_then(|value| When::from_str(value, false).ok()) {
            return when;
        }
    }
    When::Auto
}

#[cfg(test)]
mod tests;
