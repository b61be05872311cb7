//! What heartbeats say of each end.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::SocketAddr;

use crate::message::RawValue;
use crate::message::heartbeat::{Capabilities, Headroom, Heartbeat, Sessions};
use crate::time::{Mono, Wall};

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
    /// The name it gives itself; the authenticated id is what counts.
    pub worker_id: Option<alloc::string::String>,
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

    pub(super) const fn new(now: Mono, wall: Wall) -> Self {
        Self {
            beat: now,
            beat_wall: wall,
            worker_id: None,
            sessions: None,
            capabilities: None,
            listen_addrs: Vec::new(),
            headroom: None,
        }
    }

    /// Takes a heartbeat. What it does not speak of stays as it was; `headroom` counts only where it was agreed.
    pub(super) fn update(&mut self, beat: Heartbeat<'_>, now: Mono, wall: Wall, headroom_agreed: bool) {
        self.beat = now;
        self.beat_wall = wall;
        if beat.worker_id.is_some() {
            self.worker_id = beat.worker_id;
        }
        if let Some(sessions) = beat.sessions.map(Sessions::as_raw) {
            self.sessions = (sessions.get().len() <= Self::MAX_SESSIONS).then(|| sessions.to_owned());
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
}
