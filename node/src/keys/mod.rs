//! The keys of a home: `peers/<id>.key`, the one pending key, and what is known of each peer's addresses.
//!
//! A key file is the 64 hex digits of 32 bytes, mode 0600. White space round them and upper case are accepted; any
//! other content makes the peer unpaired, with a warning. Files are read afresh at each look-up, so that a key
//! added or removed counts from the next handshake on. Nothing that lies in the folder can do more harm than be
//! ignored with a warning: sub-directories, pipes, huge files and names that are not UTF-8 included.

use core::net::SocketAddr;
use core::time::Duration;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use relay_core::peer::Addresses;
use relay_core::secret::Key;
use relay_core::text::PeerId;
use zeroize::Zeroizing;

use crate::atomic;
use crate::failure::Failure;

/// Longest key file that is read, in bytes.
const MAX_KEY_FILE: usize = 1024;

/// Most entries of the folder that are looked at.
const MAX_ENTRIES: usize = 65_536;

/// How old a temporary file must be to count as left behind.
const STALE: Duration = Duration::from_secs(600);

/// What a node keeps about a peer beside its key, by ending; meaningless without the key.
const STATE_ENDINGS: [&str; 4] = ["meta", "caps", "headroom", "beat"];

/// The key folder; it need not exist yet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Keys {
    dir: PathBuf,
}

/// What is stored under a peer's id.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Stored {
    /// A key: the peer is paired.
    Paired(Key),
    /// A file that holds no key, and why; the peer is unpaired.
    Broken(String),
    /// Nothing.
    Absent,
}

/// One peer of a listing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Peer {
    /// Its id.
    pub id: PeerId,
    /// Its key; `None` where its file holds none.
    pub key: Option<Key>,
    /// Its addresses.
    pub addresses: Addresses,
}

impl Peer {
    /// Whether its file holds a key.
    #[must_use]
    pub const fn is_paired(&self) -> bool {
        self.key.is_some()
    }
}

/// The peers of a home, by id, and what was odd in the folder.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Listing {
    /// Every peer that has a key file, sorted by id.
    pub peers: Vec<Peer>,
    /// What was ignored and why, each a line for people.
    pub warnings: Vec<String>,
}

impl Keys {
    /// The keys in the folder `dir`.
    #[must_use]
    pub fn at(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    /// The folder.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// What is stored under a peer's id.
    ///
    /// # Errors
    /// If the system is short of what it takes to read a file.
    pub fn key(&self, peer: &PeerId) -> Result<Stored, Failure> {
        read_key(&self.path(peer.as_str(), "key"))
    }

    /// Every peer that has a key file.
    ///
    /// # Errors
    /// If the folder is there but cannot be read, or the system is short of what it takes to read a file.
    pub fn list(&self) -> Result<Listing, Failure> {
        let mut listing = Listing::default();
        for name in self.names(&mut listing.warnings)? {
            let Some(id) = name.strip_suffix(".key").filter(|id| !id.starts_with('.')) else {
                continue;
            };
            if id == PeerId::PENDING {
                continue;
            }
            let Some(id) = PeerId::parse(id) else {
                listing.warnings.push(format!(
                    "{name:?} in {} is not named after a peer id; ignored",
                    self.dir.display()
                ));
                continue;
            };
            let key = match self.key(&id)? {
                Stored::Paired(key) => Some(key),
                Stored::Absent => continue,
                Stored::Broken(why) => {
                    listing.warnings.push(format!("{why}; {id} counts as unpaired"));
                    None
                }
            };
            let (addresses, warning) = self.addresses(&id);
            listing.warnings.extend(warning);
            listing.peers.push(Peer { id, key, addresses });
        }
        listing.peers.sort_by(|one, two| one.id.cmp(&two.id));
        Ok(listing)
    }

    /// Stores a peer's key; says whether it took the place of another.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn add(&self, peer: &PeerId, key: &Key) -> Result<bool, Failure> {
        let replaced = match self.key(peer)? {
            Stored::Paired(old) => old != *key,
            Stored::Broken(_) => true,
            Stored::Absent => false,
        };
        self.write_key(&self.path(peer.as_str(), "key"), key)?;
        Ok(replaced)
    }

    /// Removes everything kept about a peer: its key, addresses and every other `<id>.*` file. Returns their names,
    /// sorted; none if nothing was kept.
    ///
    /// The key goes first, so that an interruption leaves the peer unpaired. Ids hold no dot, so one peer's files are
    /// never taken for another's. What another process is writing just now stays. A service that still has a link to the peer must drop it.
    ///
    /// # Errors
    /// If a file cannot be removed.
    pub fn forget(&self, peer: &PeerId) -> Result<Vec<String>, Failure> {
        // An invite that the peer redeemed must not let it in again.
        self.close_if_redeemed_by(peer)?;
        let mut names = self.names(&mut Vec::new())?;
        names.retain(|name| owner_of(name) == Some(peer.as_str()));
        names.sort_by_key(|name| (!name.ends_with(".key"), name.clone()));
        names.retain(|name| !self.dir.join(name).is_dir());
        let (temporary, names): (Vec<_>, Vec<_>) = names.into_iter().partition(|name| is_temporary(name));
        self.remove_all(&names)?;
        let mut removed = names;
        // One that is being written belongs to somebody who pairs anew.
        for name in temporary {
            let path = self.dir.join(&name);
            let gone = atomic::remove_abandoned(&path);
            if gone.map_err(|error| Failure::io("remove", &path, &error))? {
                removed.push(name);
            }
        }
        removed.sort();
        Ok(removed)
    }

    /// Names what [`Keys::prune`] would remove at `now`, sorted.
    ///
    /// These are the `.meta`, `.caps`, `.headroom` and `.beat` files of peers that have no key file, and temporary
    /// files that an interrupted write left more than ten minutes ago. Never a key, never a file of another kind.
    ///
    /// # Errors
    /// If the folder is there but cannot be read.
    pub fn stale(&self, now: SystemTime) -> Result<Vec<String>, Failure> {
        let names = self.names(&mut Vec::new())?;
        let mut stale: Vec<String> = names
            .into_iter()
            .filter(|name| {
                let path = self.dir.join(name);
                if is_temporary(name) {
                    return is_old(&path, now);
                }
                let Some((id, ending)) = name.split_once('.') else {
                    return false;
                };
                PeerId::parse(id).is_some()
                    && STATE_ENDINGS.contains(&ending)
                    && !path.is_dir()
                    && fs::symlink_metadata(self.path(id, "key"))
                        .is_err_and(|e| e.kind() == io::ErrorKind::NotFound)
            })
            .collect();
        stale.sort();
        Ok(stale)
    }

    /// Removes what [`Keys::stale`] names, and returns it.
    ///
    /// # Errors
    /// If the folder cannot be read or a file not removed.
    pub fn prune(&self, now: SystemTime) -> Result<Vec<String>, Failure> {
        let stale = self.stale(now)?;
        self.remove_all(&stale)?;
        Ok(stale)
    }

    /// The pending key: the one that the next unknown peer may redeem.
    ///
    /// # Errors
    /// If the system is short of what it takes to read a file.
    pub fn pending(&self) -> Result<Stored, Failure> {
        read_key(&self.path(PeerId::PENDING, "key"))
    }

    /// Stores the pending key in place of any other: one invitation is open at a time.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn set_pending(&self, key: &Key) -> Result<(), Failure> {
        self.write_key(&self.path(PeerId::PENDING, "key"), key)
    }

    /// Removes the pending key where a peer holds it: it was redeemed, and a crash came before its file was removed.
    /// Says whether it did. For a home where no node runs: a running one removes it by itself.
    ///
    /// # Errors
    /// If the files cannot be read or changed.
    pub fn close_redeemed(&self) -> Result<bool, Failure> {
        // The usual home has no invite open, and its keys need not be read.
        let Ok(Stored::Paired(pending)) = self.pending() else { return Ok(false) };
        let redeemed = self.list()?.peers.iter().any(|peer| peer.key.as_ref() == Some(&pending));
        if redeemed {
            self.remove_all(&[format!("{}.key", PeerId::PENDING)])?;
        }
        Ok(redeemed)
    }

    fn close_if_redeemed_by(&self, peer: &PeerId) -> Result<bool, Failure> {
        let redeemed = match (self.key(peer), self.pending()) {
            (Ok(Stored::Paired(key)), Ok(Stored::Paired(pending))) => key == pending,
            // What cannot be read holds no key.
            (Ok(_) | Err(_), Ok(_) | Err(_)) => false,
        };
        if redeemed {
            self.remove_all(&[format!("{}.key", PeerId::PENDING)])?;
        }
        Ok(redeemed)
    }

    /// A peer's addresses, and a warning if its file is broken (it then counts as none).
    #[must_use]
    pub fn addresses(&self, peer: &PeerId) -> (Addresses, Option<String>) {
        let path = self.path(peer.as_str(), "meta");
        let broken =
            |why: &str| (Addresses::default(), Some(format!("{} is ignored: {why}", path.display())));
        match atomic::read_text(&path, Addresses::MAX_FILE) {
            Ok(None) => (Addresses::default(), None),
            Ok(Some(text)) => match Addresses::from_meta(&text) {
                Some(addresses) => (addresses, None),
                None => broken("it is no record of addresses"),
            },
            Err(error) => broken(&error.to_string()),
        }
    }

    /// Puts `addr` first among a peer's addresses, as its owner says; it need not have been met there. Says whether
    /// it was noted: nothing is noted for a peer without a key file.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn prefer(&self, peer: &PeerId, addr: SocketAddr) -> Result<bool, Failure> {
        if self.key(peer)? == Stored::Absent {
            return Ok(false);
        }
        let mut addresses = self.addresses(peer).0;
        addresses.prefer(addr);
        let path = self.path(peer.as_str(), "meta");
        atomic::write(&path, addresses.to_meta().as_bytes(), atomic::PRIVATE)
            .map_err(|error| Failure::io("write", &path, &error))?;
        Ok(true)
    }

    fn write_key(&self, path: &Path, key: &Key) -> Result<(), Failure> {
        atomic::make_dir(&self.dir).map_err(|error| Failure::io("make", &self.dir, &error))?;
        let hex = Zeroizing::new(key.to_hex());
        atomic::write(path, hex.as_bytes(), atomic::PRIVATE)
            .map_err(|error| Failure::io("write", path, &error))
    }

    fn remove_all(&self, names: &[String]) -> Result<(), Failure> {
        for name in names {
            let path = self.dir.join(name);
            atomic::remove(&path).map_err(|error| Failure::io("remove", &path, &error))?;
        }
        Ok(())
    }

    /// The names in the folder that are UTF-8, up to a bound; none if there is no folder.
    fn names(&self, warnings: &mut Vec<String>) -> Result<Vec<String>, Failure> {
        let failed = |error: &io::Error| Failure::io("read", &self.dir, error);
        let entries = match fs::read_dir(&self.dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed(&error)),
        };
        let mut names = Vec::new();
        for entry in entries {
            match entry.map_err(|error| failed(&error))?.file_name().into_string() {
                Ok(name) if names.len() < MAX_ENTRIES => names.push(name),
                Ok(_) => {
                    let dir = self.dir.display();
                    warnings.push(format!("{dir} has more than {MAX_ENTRIES} entries; the rest is ignored"));
                    break;
                }
                Err(name) => {
                    warnings.push(format!("{name:?} in {} is not UTF-8; ignored", self.dir.display()));
                }
            }
        }
        Ok(names)
    }

    fn path(&self, id: &str, ending: &str) -> PathBuf {
        self.dir.join(format!("{id}.{ending}"))
    }
}

fn read_key(path: &Path) -> Result<Stored, Failure> {
    let broken = |why: &str| Stored::Broken(format!("{} holds no key: {why}", path.display()));
    match atomic::read_text(path, MAX_KEY_FILE) {
        Ok(None) => Ok(Stored::Absent),
        Ok(Some(text)) => {
            Ok(Key::from_hex(&text).map_or_else(|| broken("not 64 hex digits"), Stored::Paired))
        }
        // It says nothing about the file, and passes: whoever asks must ask again.
        Err(error) if is_shortage(&error) => Err(Failure::io("read", path, &error)),
        Err(error) => Ok(broken(&error.to_string())),
    }
}

/// Whether no file could be read just now.
fn is_shortage(error: &io::Error) -> bool {
    relay_runtime::is_exhausted(error) || error.kind() == io::ErrorKind::Interrupted
}

fn is_temporary(name: &str) -> bool {
    name.starts_with('.') && name.ends_with(atomic::TEMPORARY)
}

/// The peer that a file belongs to: `<id>.<anything>`, or a temporary file on its way to that name.
fn owner_of(name: &str) -> Option<&str> {
    let name = if is_temporary(name) { &name[1..] } else { name };
    name.split_once('.').map(|(id, _)| id)
}

fn is_old(path: &Path, now: SystemTime) -> bool {
    let changed = fs::symlink_metadata(path).and_then(|meta| meta.modified());
    changed.is_ok_and(|changed| now.duration_since(changed).is_ok_and(|age| age > STALE))
}

#[cfg(test)]
mod tests;
