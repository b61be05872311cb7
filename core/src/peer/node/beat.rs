//! Heartbeats, both ways.

use alloc::boxed::Box;
use alloc::string::ToString;
use core::mem;
use core::time::Duration;

use super::state::{Link, State};
use super::{Node, Out};
use crate::machine::ConnId;
use crate::message::heartbeat::{Heartbeat, Sessions};
use crate::message::{Feature, FeatureSet, Kind, RawValue};
use crate::peer::book::PeerIndex;
use crate::peer::report::Report;
use crate::text::PeerId;
use crate::time::{Mono, Now};

/// The payloads of our heartbeats: without headroom, and with it.
pub(super) fn payloads(id: &PeerId, report: &Report) -> [Box<RawValue>; 2] {
    let render = |headroom| {
        let beat = Heartbeat {
            worker_id: Some(id.as_str().to_string()),
            sessions: report.sessions.as_deref().and_then(Sessions::new),
            capabilities: report.capabilities.clone(),
            listen_addrs: report.listen_addrs.clone(),
            headroom,
        };
        serde_json::value::to_raw_value(&beat).unwrap_or_default()
    };
    [render(None), render(report.headroom.clone())]
}

impl Node {
    /// When a new link's second heartbeat leaves: within the last quarter of an interval, so that links that came up
    /// together do not beat together.
    pub(super) fn first_beat(&self, now: Now, noise: u64) -> Mono {
        let interval = self.settings.heartbeat;
        let quarter = (interval / 4).as_nanos() as u64;
        now.mono.after(interval - Duration::from_nanos(noise % quarter.max(1)))
    }

    pub(super) fn beat(&mut self, now: Now, conn: ConnId, out: &mut Out) {
        let Some(State::Link(link)) = self.state(conn) else { return };
        let Link { features, cutter, .. } = link;
        let framing = cutter.framing();
        let which = usize::from(features.contains(Feature::Headroom));
        let payload = mem::take(&mut self.beats[which]);
        // A report too large for a frame must not end the sign of life that it rides on.
        if self.send(now, conn, framing, Kind::Heartbeat, &payload, out).is_err() {
            let bare = self.send(now, conn, framing, Kind::Heartbeat, &serde_json::json!({}), out);
            debug_assert!(bare.is_ok(), "an empty heartbeat fits a frame");
        }
        self.beats[which] = payload;
    }

    pub(super) fn heard_beat(
        &mut self,
        now: Now,
        conn: ConnId,
        peer: PeerIndex,
        features: FeatureSet,
        payload: &RawValue,
        out: &mut Out,
    ) {
        if let Some(State::Link(link)) = self.state_mut(conn) {
            link.life.beat(now.mono);
        }
        let known = self.book.get_mut(peer);
        // Somebody whose key was taken away while it was linked is not listened to any more.
        if known.key.is_none() {
            return;
        }
        let beat = Heartbeat::parse(payload);
        let mut learned = false;
        for address in &beat.listen_addrs {
            learned |= known.addresses.advertised(*address);
        }
        (known.beat, known.beaten) = (now, true);
        if let Some(sessions) = beat.sessions {
            let id = known.id.clone();
            self.renew_leases(now, &id, sessions, out);
        }
        let known = self.book.get_mut(peer);
        let mut said = known.heard.as_mut().map(|heard| mem::take(&mut heard.said)).unwrap_or_default();
        said.update(&known.id, beat, now.mono, features.contains(Feature::Headroom));
        if !said.is_empty() {
            known.heard().said = said;
        }
        if learned {
            self.store_addresses(peer, out);
        }
    }
}
