//! What heartbeats say of each end.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::SocketAddr;

use crate::message::RawValue;
use crate::message::heartbeat::{Capabilities, Headroom, Heartbeat, Sessions};
use crate::text::PeerId;
use crate::time::{Mono, Now, Wall};

/// What our own heartbeats say. Empty at the start: such a heartbeat is a sign of life alone.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Our sessions, a JSON array; `None` to say nothing of sessions.
    pub sessions: Option<Box<RawValue>>,
    /// What this machine has.
    pub capabilities: Option<Capabilities>,
    /// Where we can be reached.
    pub listen_addrs: Vec<SocketAddr>,
    /// What this machine has to spare: sent only where both ends agreed to speak of it.
    pub headroom: Option<Headroom>,
}

/// The newest that a peer's heartbeats said.
#[derive(Clone, Debug)]
pub struct PeerReport {
    /// When its last heartbeat came.
    pub beat: Mono,
    /// The same, to be shown.
    pub beat_wall: Wall,
    /// The name it gives itself, where that is another than its authenticated id, which is what counts.
    pub worker_id: Option<String>,
    /// Its sessions, a JSON array, where it ever spoke of sessions.
    pub sessions: Option<Box<RawValue>>,
    /// What its machine has.
    pub capabilities: Option<Box<Capabilities>>,
    /// Where it says that it can be reached.
    pub listen_addrs: Vec<SocketAddr>,
    /// What its machine has to spare, and when it said so.
    pub headroom: Option<Box<(Mono, Headroom)>>,
}

impl PeerReport {
    /// The longest list of sessions that is kept of a peer, in bytes; of a longer one nothing is kept.
    pub const MAX_SESSIONS: usize = 256 << 10;

    pub(super) fn new(beat: Now, said: Option<&Said>) -> Self {
        let Said { worker_id, sessions, capabilities, listen_addrs, headroom } =
            said.cloned().unwrap_or_default();
        let (beat, beat_wall) = (beat.mono, beat.wall);
        Self { beat, beat_wall, worker_id, sessions, capabilities, listen_addrs, headroom }
    }
}

/// What a peer's heartbeats said beyond that it lives: the fields of a [`PeerReport`].
#[derive(Clone, Debug, Default)]
pub(super) struct Said {
    worker_id: Option<String>,
    sessions: Option<Box<RawValue>>,
    capabilities: Option<Box<Capabilities>>,
    listen_addrs: Vec<SocketAddr>,
    headroom: Option<Box<(Mono, Headroom)>>,
}

impl Said {
    /// Takes a heartbeat of `peer`. What it does not speak of stays as it was; `headroom` counts only where it was
    /// agreed.
    pub(super) fn update(&mut self, peer: &PeerId, beat: Heartbeat<'_>, now: Mono, headroom_agreed: bool) {
        if let Some(name) = beat.worker_id {
            self.worker_id = (name != peer.as_str()).then_some(name);
        }
        if let Some(sessions) = beat.sessions.map(Sessions::as_raw) {
            let kept = sessions.get().len() <= PeerReport::MAX_SESSIONS;
            self.sessions = kept.then(|| sessions.to_owned());
        }
        if let Some(capabilities) = beat.capabilities {
            self.capabilities = Some(Box::new(capabilities));
        }
        if !beat.listen_addrs.is_empty() {
            self.listen_addrs = beat.listen_addrs;
        }
        if headroom_agreed && let Some(headroom) = beat.headroom {
            self.headroom = Some(Box::new((now, headroom)));
        }
    }

    /// Whether nothing was said.
    pub(super) const fn is_empty(&self) -> bool {
        self.worker_id.is_none()
            && self.sessions.is_none()
            && self.capabilities.is_none()
            && self.listen_addrs.is_empty()
            && self.headroom.is_none()
    }
}
