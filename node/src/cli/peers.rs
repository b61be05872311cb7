//! `relay peers`: the peers whose keys this node holds.

use core::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use relay_core::secret::Key;
use relay_core::text::PeerId;
use relay_core::time::Wall;
use serde::Serialize;

use super::{Context, secret};
use crate::clock::rfc3339;
use crate::config::reachable_address;
use crate::failure::Failure;
use crate::home::peer_id;
use crate::keys::{Peer, Stored};

/// List, add, show and forget paired peers
#[derive(Debug, Subcommand)]
#[command(after_help = "Example:\n  relay peers list")]
pub(super) enum Peers {
    /// List the peers that have a key here
    #[command(after_help = "Example:\n  relay peers list --json")]
    List,
    Add(Add),
    /// Show one peer and every address known of it
    #[command(after_help = "Example:\n  relay peers show build-2-1a2b3c4d")]
    Show {
        /// The peer's id
        #[arg(value_parser = peer_id)]
        id: PeerId,
    },
    /// Forget a peer: its key, its addresses and all else kept about it
    ///
    /// A service that runs in this home keeps an open link to it until that link ends; it cannot come back.
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
    addr: Option<&'a str>,
    last_seen: Option<String>,
    addrs: Vec<AddressAnswer<'a>>,
}

#[derive(Serialize)]
struct AddressAnswer<'a> {
    addr: &'a str,
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
            Self::List => list(context),
            Self::Add(add) => add.run(context),
            Self::Show { id } => show(id, context),
            Self::Forget { id } => forget(&id, context),
            Self::Prune { dry_run } => prune(dry_run, context),
        }
    }
}

fn list(context: &mut Context<'_>) -> Result<(), Failure> {
    let listing = context.home.keys().list()?;
    let out = &mut context.out;
    for warning in &listing.warnings {
        out.warn(warning);
    }
    if out.is_json() {
        listing.peers.iter().for_each(|peer| out.object(&answer(peer)));
    } else if listing.peers.is_empty() {
        out.talk("No peer is paired yet. Pair one: relay invite (here), relay join LINK (there).");
    } else {
        let row = |peer: &Peer| {
            let answer = answer(peer);
            let state = if peer.paired { "paired" } else { "unpaired" };
            let seen = answer.last_seen.unwrap_or_else(|| "-".to_owned());
            vec![peer.id.to_string(), state.to_owned(), answer.addr.unwrap_or("-").to_owned(), seen]
        };
        let rows = listing.peers.iter().map(row).collect();
        out.table(&["PEER", "STATE", "ADDRESS", "LAST SEEN"], rows);
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

fn show(id: PeerId, context: &mut Context<'_>) -> Result<(), Failure> {
    let keys = context.home.keys();
    let paired = match keys.key(&id)? {
        Stored::Paired(_) => true,
        Stored::Broken(why) => {
            context.out.warn(&format!("{why}; {id} counts as unpaired"));
            false
        }
        Stored::Absent => return Err(unknown(&id)),
    };
    let (meta, warning) = keys.meta(&id);
    let out = &mut context.out;
    warning.into_iter().for_each(|warning| out.warn(&warning));
    let peer = Peer { id, paired, meta };
    let answer = answer(&peer);
    if out.is_json() {
        out.object(&answer);
        return Ok(());
    }
    let mut facts =
        vec![("id", peer.id.to_string()), ("state", if paired { "paired" } else { "unpaired" }.to_owned())];
    for address in answer.addrs {
        let seen =
            address.last_seen.map_or_else(|| "never seen there".to_owned(), |at| format!("last seen {at}"));
        facts.push(("address", format!("{} ({seen})", address.addr)));
    }
    let facts: Vec<_> = facts.iter().map(|(name, value)| (*name, value.as_str())).collect();
    out.facts(&facts);
    Ok(())
}

fn forget(id: &PeerId, context: &mut Context<'_>) -> Result<(), Failure> {
    let removed = context.home.keys().forget(id)?;
    if removed.is_empty() {
        return Err(unknown(id));
    }
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

fn answer(peer: &Peer) -> PeerAnswer<'_> {
    let seen = |millis| if millis == 0 { None } else { rfc3339(Wall::from_millis(millis)) };
    let addrs: Vec<_> = peer
        .meta
        .addrs
        .iter()
        .map(|a| AddressAnswer { addr: &a.addr, last_seen: seen(a.last_seen) })
        .collect();
    PeerAnswer {
        id: &peer.id,
        paired: peer.paired,
        addr: addrs.first().map(|a| a.addr),
        last_seen: peer.meta.last_seen().and_then(rfc3339),
        addrs,
    }
}

fn unknown(id: &PeerId) -> Failure {
    Failure::refused(format!("peer \"{id}\" is not known here"), "relay peers list shows those that are.")
}
