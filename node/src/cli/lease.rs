//! `relay lease`: what one machine of the fleet holds against all others.

use core::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use relay_core::message::lease::is_id;
use relay_core::text::PeerId;
use relay_core::time::Wall;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Context;
use super::lease_run::Run;
use super::live::{self, Item, Pace};
use super::span::{span, ttl};
use crate::clock;
use crate::failure::Failure;
use crate::home::peer_id;
use crate::service::{self, Claimed, Granted, LeaseView, Leases, Released, Request, Resource};
use crate::sessions::session_name;

/// How often the leases of another node are looked at again, whose changes nothing tells here.
const POLL: Duration = Duration::from_secs(1);

const HEADING: [&str; 7] = ["LEASE", "RESOURCE", "OWNER", "MODE", "ENDS", "TOKEN", "REASON"];

/// Claim, release and list the fleet's leases
///
/// One node keeps them, the authority: the one of --authority, else that of the configuration, else the relay serve that
/// runs here. docs/leases.md shows how a deployment is guarded with them.
#[derive(Debug, Subcommand)]
#[command(disable_help_subcommand = true, after_help = "Example:\n  relay lease claim res:deploy --ttl 10m")]
pub(super) enum Lease {
    Claim(Claim),
    Run(Run),
    Release(Release),
    /// List the leases that are held
    #[command(after_help = "Example:\n  relay lease list --watch")]
    List {
        /// Show it again whenever something changes
        #[arg(long)]
        watch: bool,
        #[command(flatten)]
        at: At,
    },
    /// Show one lease
    #[command(after_help = "Example:\n  relay lease show deploy-1")]
    Show {
        /// The lease's id
        #[arg(value_parser = lease_id)]
        id: String,
        #[command(flatten)]
        at: At,
    },
}

/// Claim a lease
///
/// It is held for --ttl, and renewed for as long as the session that holds it runs and is told of to the authority
/// (relay session). Claimed again with the same --id and --session it is granted again, for what is left of it.
#[derive(Args, Debug)]
#[command(
    after_help = "Example:\n  relay lease claim res:deploy --id deploy-1 --ttl 10m --reason \"release 1.4\""
)]
pub(super) struct Claim {
    #[command(flatten)]
    wanted: Wanted,
    /// The session that holds it [default: one of its own, which the answer tells]
    #[arg(long, value_name = "NAME", value_parser = session_name)]
    session: Option<String>,
    /// The lease's name, by which it is released [default: a new one]
    #[arg(long, value_name = "ID", value_parser = lease_id)]
    id: Option<String>,
}

/// What is claimed, and of whom.
#[derive(Args, Clone, Debug)]
pub(super) struct Wanted {
    /// What to hold: KIND:VALUE, or a path with wildcards, which is path_glob:PATH
    #[arg(value_name = "RESOURCE", value_parser = Resource::parse)]
    pub(super) resource: Resource,
    /// exclusive: no other owner holds what overlaps; advisory: known to others and in nobody's way
    #[arg(long, value_enum, value_name = "MODE", default_value_t = Mode::Exclusive, hide_possible_values = true)]
    pub(super) mode: Mode,
    /// How long it holds without a renewal, a second to 7 days: 90, 90s, 5m, 2h, 7d
    #[arg(long, value_name = "SPAN", default_value = "5m", value_parser = ttl)]
    pub(super) ttl: Duration,
    /// Why, for those who find it held
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub(super) reason: String,
    /// Wait in its queue where it is held
    #[arg(long)]
    pub(super) wait: bool,
    /// Wait no longer than this
    #[arg(long, value_name = "SPAN", value_parser = span, requires = "wait")]
    pub(super) timeout: Option<Duration>,
    #[command(flatten)]
    pub(super) at: At,
}

/// Release a lease
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  relay lease release deploy-1")]
pub(super) struct Release {
    /// The lease's id
    #[arg(value_parser = lease_id)]
    id: String,
    /// The session that holds it [default: the one that the authority names, where it is of this node]
    #[arg(long, value_name = "NAME", value_parser = session_name)]
    session: Option<String>,
    #[command(flatten)]
    at: At,
}

/// Who is asked.
#[derive(Args, Clone, Debug)]
pub(super) struct At {
    /// The peer that keeps the leases [default: the configured one, else this node]
    #[arg(long, value_name = "PEER", value_parser = peer_id)]
    pub(super) authority: Option<PeerId>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(super) enum Mode {
    /// No other owner holds what overlaps.
    Exclusive,
    /// In nobody's way.
    Advisory,
}

impl Wanted {
    /// The claim of this lease by this session.
    pub(super) fn claim(
        &self,
        lease_id: &str,
        session: &str,
        wait: bool,
        wait_within: Option<u64>,
    ) -> Request {
        Request::LeaseClaim {
            authority: self.at.authority.clone(),
            lease_id: lease_id.to_owned(),
            session: session.to_owned(),
            resource: self.resource.to_string(),
            mode: match self.mode {
                Mode::Exclusive => "exclusive".to_owned(),
                Mode::Advisory => "advisory".to_owned(),
            },
            ttl: self.ttl.as_secs(),
            reason: self.reason.clone(),
            wait,
            wait_within,
        }
    }
}

#[derive(Serialize)]
struct ClaimAnswer<'a> {
    authority: &'a str,
    lease: &'a LeaseView,
    session: &'a str,
    fencing_token: Option<u64>,
    certain_for: f64,
}

#[derive(Serialize)]
struct LeaseAnswer<'a> {
    authority: &'a str,
    #[serde(flatten)]
    lease: &'a LeaseView,
}

impl Lease {
    pub(super) fn run(self, context: &mut Context<'_>) -> Result<(), Failure> {
        match self {
            Self::Claim(claim) => claim.run(context),
            Self::Run(run) => run.run(context),
            Self::Release(release) => release.run(context),
            Self::List { watch: false, at } => list(&at, context),
            Self::List { watch: true, at } => watch(&at, context),
            Self::Show { id, at } => show(&id, &at, context),
        }
    }
}

impl Claim {
    fn run(self, context: &mut Context<'_>) -> Result<(), Failure> {
        let Self { wanted, session, id } = self;
        let session = session.map_or_else(|| context.own_session(), Ok)?;
        let lease_id = match id {
            Some(id) => id,
            None => format!("lease-{}", context.fresh_word()?),
        };
        let within = wanted.timeout.map(|span| span.as_secs());
        let request = wanted.claim(&lease_id, &session, wanted.wait, within);
        let granted = wanted.at.ask::<Claimed>(&request, context)?.held(&wanted.resource)?;
        tell(&granted, &session, context);
        Ok(())
    }
}

fn tell(granted: &Granted, session: &str, context: &mut Context<'_>) {
    let Granted { authority, lease, fencing_token, certain_until: _, certain_for } = granted;
    let (fencing_token, certain_for) = (*fencing_token, *certain_for);
    let out = &mut context.out;
    if out.is_json() {
        out.object(&ClaimAnswer { authority, lease, session, fencing_token, certain_for });
        return;
    }
    let certain = format!("for {certain_for:.0} s");
    let mut facts = facts(authority, lease);
    facts.insert(1, ("session", session.to_owned()));
    facts.push(("certain", certain));
    out.facts(&facts.iter().map(|(name, value)| (*name, value.as_str())).collect::<Vec<_>>());
    if fencing_token.is_none() {
        out.warn(&format!("authority \"{authority}\" gives no fencing tokens"));
    }
    out.talk(&format!(
        "It ends at {} unless session {session} runs and renews it. To end it before: relay lease release {}",
        lease.expires_at, lease.id
    ));
}

impl Release {
    fn run(self, context: &mut Context<'_>) -> Result<(), Failure> {
        let Self { id, session, at } = self;
        let session = session.map_or_else(|| holding_session(&id, &at, context), Ok)?;
        let request = Request::LeaseRelease { authority: at.authority.clone(), lease_id: id, session };
        let released: Released = at.ask(&request, context)?;
        if context.out.is_json() {
            context.out.object(&released);
        } else {
            context.out.line(&format!("released {}", released.id));
        }
        Ok(())
    }
}

/// The session that holds a lease, where it is one of this node.
fn holding_session(id: &str, at: &At, context: &mut Context<'_>) -> Result<String, Failure> {
    let (authority, lease) = find(id, at, context)?;
    let own = context.identity()?;
    match lease.owner.rsplit_once('@') {
        Some((session, peer)) if peer == own.as_str() => Ok(session.to_owned()),
        Some(_) | None => Err(Failure::refused(
            format!(
                "lease {id} of authority \"{authority}\" is held by {}, which is not of this node",
                lease.owner
            ),
            "Release it on that machine: relay lease release (there).",
        )),
    }
}

fn list(at: &At, context: &mut Context<'_>) -> Result<(), Failure> {
    let Leases { authority, leases, truncated } = at.leases(context)?;
    let now = clock::wall(context.now());
    let out = &mut context.out;
    if out.is_json() {
        leases.iter().for_each(|lease| out.object(&LeaseAnswer { authority: &authority, lease }));
    } else if leases.is_empty() {
        out.talk("No lease is held. Claim one: relay lease claim res:deploy");
    } else {
        let short = out.is_aligned();
        out.table(&HEADING, leases.iter().map(|lease| row(lease, now, short)).collect());
    }
    if truncated {
        out.warn("there are more, which do not fit an answer: these are the newest");
    }
    Ok(())
}

fn watch(at: &At, context: &mut Context<'_>) -> Result<(), Failure> {
    // Where this node keeps them its events tell of each change.
    let pace = if at.is_elsewhere(context)? { Pace::Alone(POLL) } else { Pace::WithEvents };
    live::watch(Some(&HEADING), pace, context, |context| {
        let Leases { authority, leases, truncated: _ } = at.leases(context)?;
        let (now, short) = (clock::wall(context.now()), context.out.is_aligned());
        let item = |lease: &LeaseView| Item {
            id: lease.id.clone(),
            rows: vec![row(lease, now, short)],
            changes: format!("{} {} {} {:?}", lease.resource, lease.owner, lease.mode, lease.fencing_token),
            object: serde_json::to_value(LeaseAnswer { authority: &authority, lease }).unwrap_or_default(),
        };
        Ok(leases.iter().map(item).collect())
    })
}

fn show(id: &str, at: &At, context: &mut Context<'_>) -> Result<(), Failure> {
    let (authority, lease) = find(id, at, context)?;
    let out = &mut context.out;
    if out.is_json() {
        out.object(&LeaseAnswer { authority: &authority, lease: &lease });
    } else {
        let facts = facts(&authority, &lease);
        out.facts(&facts.iter().map(|(name, value)| (*name, value.as_str())).collect::<Vec<_>>());
    }
    Ok(())
}

fn find(id: &str, at: &At, context: &mut Context<'_>) -> Result<(String, LeaseView), Failure> {
    let Leases { authority, leases, truncated } = at.leases(context)?;
    match leases.into_iter().find(|lease| lease.id == id) {
        Some(lease) => Ok((authority, lease)),
        None if truncated => Err(Failure::refused(
            format!("lease {id} is not among the newest, which are all that fit an answer"),
            "Name the session that holds it: --session NAME.",
        )),
        None => Err(service::not_found(&authority, id)),
    }
}

fn facts(authority: &str, lease: &LeaseView) -> Vec<(&'static str, String)> {
    let LeaseView { id, resource, owner, mode, reason, acquired_at, expires_at, ttl, fencing_token } = lease;
    let token = fencing_token.map_or_else(|| "-".to_owned(), |token| token.to_string());
    vec![
        ("lease", id.clone()),
        ("resource", resource.clone()),
        ("owner", owner.clone()),
        ("mode", mode.clone()),
        ("reason", if reason.is_empty() { "-".to_owned() } else { reason.clone() }),
        ("since", acquired_at.clone()),
        ("until", expires_at.clone()),
        ("ttl", format!("{ttl} s")),
        ("token", token),
        ("authority", authority.to_owned()),
    ]
}

/// A lease's row of a list; on a terminal it is short.
fn row(lease: &LeaseView, now: Wall, short: bool) -> Vec<String> {
    let ends = clock::read_rfc3339(&lease.expires_at).filter(|_| short);
    let ends = ends.map_or_else(
        || lease.expires_at.clone(),
        |at| clock::ahead(Duration::from_millis(at.as_millis().saturating_sub(now.as_millis()))),
    );
    vec![
        lease.id.clone(),
        lease.resource.clone(),
        lease.owner.clone(),
        lease.mode.clone(),
        ends,
        lease.fencing_token.map_or_else(|| "-".to_owned(), |token| token.to_string()),
        if lease.reason.is_empty() { "-".to_owned() } else { lease.reason.clone() },
    ]
}

impl At {
    /// Asks the serve that runs here; without one, a peer that keeps the leases is asked directly.
    pub(super) fn ask<T: DeserializeOwned>(
        &self,
        request: &Request,
        context: &mut Context<'_>,
    ) -> Result<T, Failure> {
        if context.serve()?.is_none() && !self.is_elsewhere(context)? {
            return Err(service::keeps_none());
        }
        context.ask(request)
    }

    fn leases(&self, context: &mut Context<'_>) -> Result<Leases, Failure> {
        self.ask(&Request::LeaseList { authority: self.authority.clone() }, context)
    }

    /// Whether another node is the authority, as far as this command knows: a serve has its own flag for it.
    fn is_elsewhere(&self, context: &mut Context<'_>) -> Result<bool, Failure> {
        let named = self.authority.clone().or(context.config()?.authority);
        let own = context.home.identity()?;
        Ok(named.is_some() && named != own)
    }
}

/// Reads the id of a lease that a user gave.
///
/// # Errors
/// The rule, in a line for people.
fn lease_id(text: &str) -> Result<String, String> {
    let rule = "the id of a lease is 1 to 96 printable ASCII characters without space and @";
    is_id(text).then(|| text.to_owned()).ok_or_else(|| rule.to_owned())
}
