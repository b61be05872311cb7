//! `relay lease run`: a command that runs while a lease is held.

use std::ffi::OsString;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clap::Args;
use relay_core::lease::Patience;
use relay_core::text::PeerId;
use relay_core::time::Mono;
use serde::de::DeserializeOwned;

use super::Context;
use super::lease::Wanted;
use super::span::span;
use crate::control::Client;
use crate::failure::{Exit, Failure};
use crate::guard::{Denied, Grant, Guard, Keeper, NOT_GOT, NotReleased, Papers, Plan};
use crate::home::Home;
use crate::service::{Claimed, Leases, Released, Request, Resource};
use crate::sessions::{Life, Session, session_name};

/// Run a command while a lease is held
///
/// It claims, runs the command directly (no shell in between) and releases at its end, whatever that end was. Signals are
/// passed on to the command and what it started. It ends with the command's code (128 + n for a signal); 125 where the
/// lease was not got, 124 where --timeout was over first, 123 where it was lost while the command ran, 127 where the
/// command was not found. The command sees RELAY_LEASE_ID and RELAY_FENCING_TOKEN.
#[derive(Args, Debug)]
#[command(
    after_help = "Example:\n  relay lease run res:deploy --wait --timeout 10m --kill-on-loss -- ./deploy.sh --prod"
)]
pub(super) struct Run {
    #[command(flatten)]
    wanted: Wanted,
    /// The session that holds it: one that is alive, else a new one of the command [default: a new one]
    #[arg(long, value_name = "NAME", value_parser = session_name)]
    session: Option<String>,
    /// What to run, through sh -c, when the lease is lost while the command runs
    #[arg(long, value_name = "CMD")]
    on_loss: Option<OsString>,
    /// Stop the command when the lease is lost: TERM, then KILL after the grace
    #[arg(long)]
    kill_on_loss: bool,
    /// How long what is told to end may take before it is killed
    #[arg(long, value_name = "SPAN", value_parser = span, default_value = "10s")]
    grace: Duration,
    /// The command and its arguments
    #[arg(required = true, last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl Run {
    pub(super) fn run(self, context: &mut Context<'_>) -> Result<(), Failure> {
        let code = match self.guarded(context) {
            Ok(code) => code,
            Err(failure) if failure.exit == Exit::Usage => return Err(failure),
            Err(failure) => {
                context.out.fail(&failure);
                NOT_GOT
            }
        };
        context.end_with(code);
        Ok(())
    }

    fn guarded(self, context: &mut Context<'_>) -> Result<u8, Failure> {
        if context.serve()?.is_none() {
            return Err(not_running());
        }
        let guard = Guard::prepare(&self.command, !context.is_on_a_terminal())
            .map_err(|error| Failure::refused(format!("no process can be started: {error}"), "Try again."))?;
        let (session, own) = self.session(guard.pid(), context)?;
        let keeper: Arc<dyn Keeper> = Arc::new(Through {
            home: context.home.clone(),
            wanted: self.wanted.clone(),
            lease_id: format!("run-{}", context.fresh_word()?),
            session,
            line: Mutex::new(None),
        });
        let plan = Plan {
            wait: self.wanted.wait,
            timeout: self.wanted.timeout,
            on_loss: self.on_loss,
            kill_on_loss: self.kill_on_loss,
            grace: self.grace,
        };
        let code = guard.run(&keeper, &plan, &mut |failure| context.out.fail(failure));
        if let Some(own) = own
            && let Err(failure) = context.home.sessions().end_this(&own)
        {
            context.out.fail(&failure);
        }
        Ok(code)
    }

    /// The session that claims, and whether it was made for that.
    fn session(&self, pid: u32, context: &mut Context<'_>) -> Result<(String, Option<Session>), Failure> {
        let sessions = context.home.sessions();
        if let Some(name) = &self.session
            && sessions.list()?.iter().any(|there| there.name == *name && there.life() != Life::Ended)
        {
            return Ok((name.clone(), None));
        }
        let fresh = format!("run-{}", context.fresh_word()?);
        let name = self.session.clone().unwrap_or(fresh);
        let dir = std::env::current_dir().ok();
        let session = sessions.start(&name, pid, dir.as_deref())?;
        Ok((name, Some(session)))
    }
}

/// Keeps one lease through the service of a home, found anew for each request: it may be restarted meanwhile.
#[derive(Debug)]
struct Through {
    home: Home,
    wanted: Wanted,
    lease_id: String,
    session: String,
    /// What a waiting claim is asked over.
    line: Mutex<Option<UnixStream>>,
}

impl Through {
    fn authority(&self) -> Option<PeerId> {
        self.wanted.at.authority.clone()
    }

    fn ask<T: DeserializeOwned>(&self, request: &Request, is_waiting: bool) -> Result<T, Failure> {
        let mut client = Client::find(&self.home)?.ok_or_else(not_running)?;
        let line = || self.line.lock().unwrap_or_else(PoisonError::into_inner);
        if is_waiting {
            *line() = client.line().ok();
        }
        let answer = client.ask(request);
        if is_waiting {
            // Else the connection stays open.
            *line() = None;
        }
        let answer = answer?;
        serde_json::from_str(answer.get()).map_err(|_| {
            Failure::unreachable(
                "the relay serve that runs here answered something else",
                "Restart relay serve.",
            )
        })
    }

    fn resource(&self) -> &Resource {
        &self.wanted.resource
    }
}

impl Keeper for Through {
    fn claim(&self, wait: Option<Patience>) -> Result<Grant, Denied> {
        let wait_within = match wait {
            // Whole seconds, and not less than was asked for; what comes too late is given back here.
            Some(Patience::For(span)) => Some(span.as_secs() + u64::from(span.subsec_nanos() > 0)),
            Some(Patience::Endless) | None => None,
        };
        let request = self.wanted.claim(&self.lease_id, &self.session, wait.is_some(), wait_within);
        let claimed: Claimed = self.ask(&request, wait.is_some()).map_err(|failure| {
            if failure.exit == Exit::Usage { Denied::Refused(failure) } else { Denied::Unanswered(failure) }
        })?;
        let is_in_vain = matches!(claimed, Claimed::WaitedInVain { .. });
        match claimed.held(self.resource()) {
            Ok(granted) => Ok(Grant {
                papers: Papers { lease_id: granted.lease.id, fencing_token: granted.fencing_token },
                acquired_at: granted.lease.acquired_at,
                certain_until: Mono::from_nanos(granted.certain_until),
            }),
            Err(failure) if is_in_vain => Err(Denied::InVain(failure)),
            Err(failure) => Err(Denied::Refused(failure)),
        }
    }

    fn release(&self) -> Result<(), NotReleased> {
        let (authority, lease_id, session) = (self.authority(), self.lease_id.clone(), self.session.clone());
        let request = Request::LeaseRelease { authority, lease_id, session };
        let Err(failure) = self.ask::<Released>(&request, false) else { return Ok(()) };
        if failure.exit != Exit::Refused {
            return Err(NotReleased::Unanswered(failure));
        }
        // It is refused for more than one reason; whether it is held at all is what counts.
        let listed = self.ask::<Leases>(&Request::LeaseList { authority: self.authority() }, false);
        let is_gone = listed
            .is_ok_and(|all| !all.truncated && all.leases.iter().all(|lease| lease.id != self.lease_id));
        Err(if is_gone { NotReleased::NotHeld(failure) } else { NotReleased::Unanswered(failure) })
    }

    fn hang_up(&self) {
        if let Some(line) = self.line.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // One that has ended is hung up already.
            let _ = line.shutdown(Shutdown::Both);
        }
    }
}

fn not_running() -> Failure {
    Failure::unreachable(
        "relay serve is not running here, and leases are claimed through it",
        "Start it: relay serve.",
    )
}
