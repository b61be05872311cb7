//! `relay peers`: the peers whose keys this node holds.

use core::net::SocketAddr;
use core::time::Duration;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use relay_core::peer::KnownAddress;
use relay_core::secret::Key;
use relay_core::text::PeerId;
use relay_core::time::Wall;
use serde::Serialize;

use super::live::{self, Item, Pace};
use super::{Context, secret, words};
use crate::clock::{self, rfc3339};
use crate::config::reachable_address;
use crate::failure::Failure;
use crate::home::peer_id;
use crate::keys::Peer;
use crate::service::{self, Live, Request};

/// List, add, show and forget paired peers
#[derive(Debug, Subcommand)]
#[command(disable_help_subcommand = true, after_help = "Example:\n  relay peers list")]
pub(super) enum Peers {
    /// List the peers that have a key here
    ///
    /// Where relay serve runs in this home, also how each link stands.
    #[command(after_help = "Example:\n  relay peers list --watch")]
    List {
        /// Show it again whenever something changes
        #[arg(long)]
        watch: bool,
    },
    Add(Add),
    /// Show one peer and all that is known of it
    ///
    /// Its addresses and, where relay serve runs in this home, its link and what it says of itself.
    #[command(after_help = "Example:\n  relay peers show build-2-1a2b3c4d")]
    Show {
        /// The peer's id
        #[arg(value_parser = peer_id)]
        id: PeerId,
        /// Show it again whenever something changes
        #[arg(long)]
        watch: bool,
    },
    /// Forget a peer: its key, its addresses and all else kept about it
    ///
    /// A link with it is closed at once, and it cannot come back until it is paired again.
    #[command(after_help = "Example:\n  relay peers forget build-2-1a2b3c4d")]
    Forget {
        /// The peer's id
        #[arg(value_parser = peer_id)]
        id: PeerId,
    },
    /// Remove what is left of peers that have no key
    ///
    /// Removes the .meta, .caps, .headroom and .beat files of peers without a key file, and temporary files that an
    /// interrupted write left more than ten minutes ago. Never removes a key or a file of another kind.
    #[command(after_help = "Example:\n  relay peers prune --dry-run")]
    Prune {
        /// Only say what would be removed
        #[arg(long)]
        dry_run: bool,
    },
}

/// Add a peer by its key
///
/// The key is best read from a file or from stdin: arguments are seen by other users and kept by the shell.
#[derive(Args, Debug)]
#[command(
    after_help = "Example:\n  relay peers add build-2-1a2b3c4d --key-file key.txt --addr 192.168.1.20:9847"
)]
pub(super) struct Add {
    /// The peer's id
    #[arg(value_parser = peer_id)]
    id: PeerId,
    #[command(flatten)]
    source: Source,
    /// Where the peer listens
    #[arg(long, value_name = "IP:PORT", value_parser = reachable_address)]
    addr: Option<SocketAddr>,
}

#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
struct Source {
    /// The key, 64 hex digits; - reads it from stdin
    #[arg(long, value_name = "HEX")]
    key: Option<String>,
    /// A file with the key; - reads it from stdin
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
}

#[derive(Serialize)]
struct PeerAnswer<'a> {
    id: &'a PeerId,
    paired: bool,
    addr: Option<String>,
    last_seen: Option<String>,
    addrs: Vec<AddressAnswer>,
    /// How it stands with the node that runs here; null where none does.
    live: Option<&'a Live>,
}

#[derive(Serialize)]
struct AddressAnswer {
    addr: String,
    last_seen: Option<String>,
}

#[derive(Serialize)]
struct Added<'a> {
    id: &'a PeerId,
    replaced: bool,
}

#[derive(Serialize)]
struct Forgotten<'a> {
    id: &'a PeerId,
    removed: &'a [String],
}

#[derive(Serialize)]
struct Pruned<'a> {
    removed: &'a [String],
    dry_run: bool,
}

impl Peers {
    pub(super) fn run(self, context: &mut Context<'_>) -> Result<(), Failure> {
        match self {
            Self::List { watch: false } => list(context),
            Self::List { watch: true } => live::watch(Some(&HEADING), Pace::WithEvents, context, |context| {
                let (peers, now) = (found(context)?.peers, clock::wall(context.now()));
                let aligned = context.out.is_aligned();
                Ok(items(&peers, now, |known| vec![row(known, now, aligned)]))
            }),
            Self::Add(add) => add.run(context),
            Self::Show { id, watch: false } => show(&id, context),
            Self::Show { id, watch: true } => live::watch(None, Pace::WithEvents, context, |context| {
                let mut peers = found(context)?.peers;
                peers.retain(|known| known.peer.id == id);
                let now = clock::wall(context.now());
                if peers.is_empty() {
                    Err(unknown(&id))
                } else {
                    Ok(items(&peers, now, |known| facts(known, now)))
                }
            }),
            Self::Forget { id } => forget(&id, context),
            Self::Prune { dry_run } => prune(dry_run, context),
        }
    }
}

const HEADING: [&str; 5] = ["PEER", "STATE", "LINK", "ADDRESS", "LAST SEEN"];

/// A peer, from its files and from the node that runs here.
struct Known {
    peer: Peer,
    live: Option<Live>,
}

struct Found {
    peers: Vec<Known>,
    warnings: Vec<String>,
}

/// Every peer with a key file, and every one that the running node has a link with all the same.
fn found(context: &Context<'_>) -> Result<Found, Failure> {
    let listing = context.home.keys().list()?;
    let mut lives: Vec<Live> = match context.serve()? {
        Some(mut serve) => {
            let answer = serve.ask(&Request::Peers)?;
            serde_json::from_str(answer.get()).map_err(|_| {
                Failure::refused(
                    "the relay serve that runs here answered something else",
                    "Restart relay serve.",
                )
            })?
        }
        None => Vec::new(),
    };
    let mut live = |id: &PeerId| {
        let at = lives.iter().position(|live| live.id == id.as_str())?;
        Some(lives.swap_remove(at))
    };
    let mut peers: Vec<_> =
        listing.peers.into_iter().map(|peer| Known { live: live(&peer.id), peer }).collect();
    for live in lives.into_iter().filter(|live| live.link.is_some()) {
        if let Some(id) = PeerId::parse(&live.id) {
            let peer = Peer { id, key: None, addresses: relay_core::peer::Addresses::default() };
            peers.push(Known { peer, live: Some(live) });
        }
    }
    peers.sort_by(|one, two| one.peer.id.cmp(&two.peer.id));
    Ok(Found { peers, warnings: listing.warnings })
}

fn items(peers: &[Known], now: Wall, rows: impl Fn(&Known) -> Vec<Vec<String>>) -> Vec<Item> {
    let item = |known: &Known| {
        let live = known.live.as_ref();
        let changes =
            (known.peer.is_paired(), live.map(|live| (&live.link, live.dialling, live.retry_in.is_some())));
        let said =
            live.map(|live| (&live.listen_addrs, live.capabilities.as_ref().map(|raw| raw.get().len())));
        Item {
            id: known.peer.id.to_string(),
            rows: rows(known),
            changes: format!("{changes:?} {said:?} {:?}", known.peer.addresses),
            object: serde_json::to_value(answer(known, now)).unwrap_or_default(),
        }
    };
    peers.iter().map(item).collect()
}

/// A peer's row of a list; on a terminal it is short.
fn row(known: &Known, now: Wall, short: bool) -> Vec<String> {
    let answer = answer(known, now);
    let state = if known.peer.is_paired() { "paired" } else { "unpaired" };
    let link = known.live.as_ref().map_or_else(|| "-".to_owned(), Live::state);
    let seen = seen(known, now).map(|(at, age)| if short { clock::ago(age) } else { at });
    vec![
        known.peer.id.to_string(),
        state.to_owned(),
        link,
        answer.addr.unwrap_or_else(|| "-".to_owned()),
        seen.unwrap_or_else(|| "-".to_owned()),
    ]
}

fn list(context: &mut Context<'_>) -> Result<(), Failure> {
    let Found { peers, warnings } = found(context)?;
    let now = clock::wall(context.now());
    let out = &mut context.out;
    for warning in &warnings {
        out.warn(warning);
    }
    if out.is_json() {
        peers.iter().for_each(|known| out.object(&answer(known, now)));
    } else if peers.is_empty() {
        out.talk("No peer is paired yet. Pair one: relay invite (here), relay join LINK (there).");
    } else {
        let short = out.is_aligned();
        out.table(&HEADING, peers.iter().map(|known| row(known, now, short)).collect());
    }
    Ok(())
}

impl Add {
    fn run(self, context: &mut Context<'_>) -> Result<(), Failure> {
        let text = match (&self.source.key, &self.source.key_file) {
            (Some(key), _) => secret::argument(key, "key", context)?,
            (None, Some(path)) => secret::file(path, "key", context)?,
            (None, None) => {
                return Err(Failure::usage(
                    "no key is given",
                    "Give one: --key-file FILE, or --key-file - for stdin.",
                ));
            }
        };
        let key = Key::from_hex(&text).ok_or_else(|| {
            Failure::usage(
                "that is no key: it has 64 hex digits",
                "A code of 16 digits goes to: relay accept.",
            )
        })?;
        let id = context.identity()?;
        if self.id == id {
            return Err(Failure::refused(
                format!("{id} is this machine itself"),
                "Give the other machine's id.",
            ));
        }
        let keys = context.home.keys();
        let replaced = keys.add(&self.id, &key)?;
        if let Some(addr) = self.addr {
            keys.prefer(&self.id, addr)?;
        }
        context.keys_changed()?;
        if context.out.is_json() {
            context.out.object(&Added { id: &self.id, replaced });
        } else {
            context.out.line(&format!("added {}", self.id));
        }
        if replaced {
            context.out.talk(&format!("The earlier key of {} was replaced.", self.id));
        }
        Ok(())
    }
}

fn show(id: &PeerId, context: &mut Context<'_>) -> Result<(), Failure> {
    let Found { peers, warnings } = found(context)?;
    let known = peers.into_iter().find(|known| known.peer.id == *id).ok_or_else(|| unknown(id))?;
    let now = clock::wall(context.now());
    let out = &mut context.out;
    let about = |warning: &&String| warning.contains(&format!("{id}."));
    warnings.iter().filter(about).for_each(|warning| out.warn(warning));
    if out.is_json() {
        out.object(&answer(&known, now));
    } else {
        out.rows(&facts(&known, now));
    }
    Ok(())
}

/// All that is known of a peer, by name.
fn facts(known: &Known, now: Wall) -> Vec<Vec<String>> {
    let paired = if known.peer.is_paired() { "paired" } else { "unpaired" };
    let mut facts = vec![("id", known.peer.id.to_string()), ("state", paired.to_owned())];
    for address in answer(known, now).addrs {
        let seen =
            address.last_seen.map_or_else(|| "never seen there".to_owned(), |at| format!("last seen {at}"));
        facts.push(("address", format!("{} ({seen})", address.addr)));
    }
    if let Some(live) = &known.live {
        facts.extend(words::of_live(live));
    }
    facts.into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect()
}

/// Through the node that runs here, so that its link ends and it brings no file back; else the files alone.
fn forget(id: &PeerId, context: &mut Context<'_>) -> Result<(), Failure> {
    let removed = match context.serve()? {
        Some(_) => context.ask::<service::Forgotten>(&Request::Forget { peer: id.clone() })?.removed,
        None => {
            let removed = context.home.keys().forget(id)?;
            if removed.is_empty() {
                return Err(unknown(id));
            }
            removed
        }
    };
    if context.out.is_json() {
        context.out.object(&Forgotten { id, removed: &removed });
    } else {
        context.out.line(&format!("forgot {id}"));
        context.out.detail(1, &format!("removed: {}", removed.join(", ")));
    }
    Ok(())
}

fn prune(dry_run: bool, context: &mut Context<'_>) -> Result<(), Failure> {
    let (keys, now) = (context.home.keys(), context.now());
    let removed = if dry_run { keys.stale(now)? } else { keys.prune(now)? };
    let out = &mut context.out;
    if out.is_json() {
        out.object(&Pruned { removed: &removed, dry_run });
    } else if removed.is_empty() {
        out.talk("There is nothing to remove.");
    } else {
        removed.iter().for_each(|name| out.line(name));
    }
    Ok(())
}

/// When a peer was last seen, and how long ago: a linked one at its newest heartbeat, any other as its file says.
fn seen(known: &Known, now: Wall) -> Option<(String, Duration)> {
    if let Some(live) = known.live.as_ref().filter(|live| live.link.is_some()) {
        let beat = live.heartbeat_at.clone().zip(live.heartbeat_age);
        return match beat {
            Some((at, age)) => Some((at, Duration::try_from_secs_f64(age).unwrap_or_default())),
            None => rfc3339(now).map(|at| (at, Duration::ZERO)),
        };
    }
    let at = known.peer.addresses.last_seen()?;
    let age = Duration::from_millis(now.as_millis().saturating_sub(at.as_millis()));
    rfc3339(at).map(|at| (at, age))
}

fn answer(known: &Known, now: Wall) -> PeerAnswer<'_> {
    let Known { peer, live } = known;
    let address = |known: &KnownAddress| AddressAnswer {
        addr: known.address.to_string(),
        last_seen: (known.last_seen.as_millis() > 0).then(|| rfc3339(known.last_seen)).flatten(),
    };
    let addrs: Vec<_> = peer.addresses.iter().map(address).collect();
    PeerAnswer {
        id: &peer.id,
        paired: peer.is_paired(),
        addr: addrs.first().map(|first| first.addr.clone()),
        last_seen: seen(known, now).map(|(at, _)| at),
        addrs,
        live: live.as_ref(),
    }
}

fn unknown(id: &PeerId) -> Failure {
    Failure::refused(format!("peer \"{id}\" is not known here"), "relay peers list shows those that are.")
}
