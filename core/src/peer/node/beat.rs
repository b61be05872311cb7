//! Heartbeats, both ways.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::string::ToString;
use core::mem;
use core::time::Duration;

use super::state::{Link, State};
use super::{BATCH, Node, Out, TICK};
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

/// The shortest time between two rounds of heartbeats that leave out of turn, over all links.
const NEWS_EVERY: Duration = Duration::from_secs(1);

/// Heartbeats out of turn: which of our sessions run is told to every link as soon as it changes, since a lease is held
/// for as long as its session is told of. The phases in which links beat stay as they are.
#[derive(Debug, Default)]
pub(super) struct News {
    /// The sessions that run, as they were told last.
    told: BTreeSet<Box<str>>,
    /// When the round that is owed goes on.
    due: Option<Mono>,
    /// The first connection that the round has still to come to.
    slot: usize,
    /// No round begins before.
    next: Mono,
}

impl News {
    pub(super) const fn deadline(&self) -> Option<Mono> {
        self.due
    }

    /// Takes what a report says; a round is owed where it is another set than before.
    fn hear(&mut self, now: Mono, sessions: Sessions<'_>) {
        let named = running(sessions);
        if named == self.told {
            return;
        }
        self.told = named;
        // One that is under way begins again: whom it came to already was told what was so before.
        let begun = self.due.is_some() && self.slot > 0;
        if begun || self.due.is_none() {
            (self.due, self.slot) = (Some(now.max(self.next)), 0);
        }
    }
}

fn running(sessions: Sessions<'_>) -> BTreeSet<Box<str>> {
    let mut named = BTreeSet::new();
    sessions.each_running(|session| {
        named.insert(session.into());
    });
    named
}

impl Node {
    /// The same, whose first heartbeats say this, where later ones say what [`Command::Report`] told last.
    ///
    /// [`Command::Report`]: crate::peer::Command::Report
    #[must_use]
    pub fn reporting(mut self, report: &Report) -> Self {
        self.beats = payloads(&self.settings.id, report);
        if let Some(sessions) = report.sessions.as_deref().and_then(Sessions::new) {
            self.news.told = running(sessions);
        }
        self
    }

    /// Takes what our heartbeats are to say. Our own sessions renew what they hold here, where this node keeps leases.
    pub(super) fn report(&mut self, now: Now, report: &Report, out: &mut Out) {
        self.beats = payloads(&self.settings.id, report);
        let Some(sessions) = report.sessions.as_deref().and_then(Sessions::new) else { return };
        self.news.hear(now.mono, sessions);
        let own = self.settings.id.clone();
        self.renew_leases(now, &own, sessions, out);
    }

    /// Sends the heartbeats that are owed out of turn, as many as one step may.
    pub(super) fn news_due(&mut self, now: Now, out: &mut Out) {
        if self.news.due.is_none_or(|due| due > now.mono) {
            return;
        }
        if self.news.slot == 0 {
            self.news.next = now.mono.after(NEWS_EVERY);
        }
        let end = self.slots.len().min(self.news.slot + BATCH);
        for slot in self.news.slot..end {
            let conn = self.slots[slot].conn;
            // One whose last bytes have not left would only queue another behind them.
            if matches!(self.state(conn), Some(State::Link(_))) && out.unsent(conn) == 0 {
                self.beat(now, conn, out);
            }
        }
        let is_done = end == self.slots.len();
        self.news.slot = if is_done { 0 } else { end };
        self.news.due = (!is_done).then(|| now.mono.after(TICK));
    }

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
