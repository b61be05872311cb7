//! How a node behaves.

use alloc::string::String;
use core::net::SocketAddr;
use core::time::Duration;

use crate::lease::BootId;
use crate::message::{Feature, FeatureSet};
use crate::text::PeerId;

/// How a node behaves. Fixed for its life.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Who this node is.
    pub id: PeerId,
    /// What it calls its version: sent in handshakes, never compared.
    pub version: String,
    /// The features that it advertises.
    pub features: FeatureSet,
    /// Whether it speaks protocol version 1. A node from before it advertises nothing and is told nothing.
    pub proto: bool,
    /// How often it sends a heartbeat on each link: [`Settings::HEARTBEAT`], within [`Settings::HEARTBEAT_BOUNDS`].
    pub heartbeat: Duration,
    /// Lasting links at once. One-shots are never refused for it.
    pub max_links: usize,
    /// Whether it dials the peers that it has addresses of, and dials again when a link is lost.
    pub dial_known: bool,
    /// How long an answer that the owner owes may take once the peer has half-closed: [`Settings::ANSWER_TIME`]. The
    /// peer may be gone as well as waiting, and its descriptor is held for as long.
    pub answer_time: Duration,
    /// The peer that keeps the fleet's leases; `None` where this node keeps its own.
    pub authority: Option<PeerId>,
    /// Which start of the machine the monotonic clock counts from: what leases keep across a restart of the program.
    pub boot: BootId,
    /// Records behind a snapshot after which the next one is due: [`Settings::SNAPSHOT_EVERY`].
    pub snapshot_every: u64,
    /// Where it accepts connections, where it does: what decides whether a dialled peer is told a port.
    pub listening: Option<SocketAddr>,
}

impl Settings {
    /// How often a heartbeat is sent unless somebody says otherwise.
    pub const HEARTBEAT: Duration = Duration::from_secs(30);
    /// The shortest and the longest interval.
    pub const HEARTBEAT_BOUNDS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(300)];
    /// Lasting links at once, unless somebody says otherwise.
    pub const MAX_LINKS: usize = 4096;
    /// How long an answer may take behind a half-close, unless somebody says otherwise.
    pub const ANSWER_TIME: Duration = Duration::from_secs(30);
    /// Records behind a snapshot after which the next one is due, unless somebody says otherwise.
    pub const SNAPSHOT_EVERY: u64 = 1 << 16;
    /// What this version of the project does on a link: features are advertised only where they are kept.
    pub const FEATURES: FeatureSet = FeatureSet::EMPTY
        .with(Feature::FrameBin)
        .with(Feature::Headroom)
        .with(Feature::LeaseFence)
        .with(Feature::LeaseFleet)
        .with(Feature::UnknownOk);

    /// The defaults, for a node of this identity.
    #[must_use]
    pub fn new(id: PeerId) -> Self {
        Self {
            id,
            version: String::from(env!("CARGO_PKG_VERSION")),
            features: Self::FEATURES,
            proto: true,
            heartbeat: Self::HEARTBEAT,
            max_links: Self::MAX_LINKS,
            dial_known: true,
            answer_time: Self::ANSWER_TIME,
            authority: None,
            boot: BootId::default(),
            snapshot_every: Self::SNAPSHOT_EVERY,
            listening: None,
        }
    }

    /// The port that a dialled peer is told, so that it can dial back to the address that it sees.
    ///
    /// Only where that address leads here: a socket bound to every interface, or to the very one that is dialled from,
    /// which is known for loopback alone.
    #[must_use]
    pub fn listen_port_for(&self, dialled: &SocketAddr) -> Option<u16> {
        let listening = self.listening?;
        let reachable =
            listening.ip().is_unspecified() || (listening.ip().is_loopback() && dialled.ip().is_loopback());
        reachable.then_some(listening.port()).filter(|port| *port != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_told_only_where_it_leads_here() {
        let mut settings = Settings::new(PeerId::parse("a").unwrap());
        let told = |settings: &Settings, dialled: &str| settings.listen_port_for(&dialled.parse().unwrap());
        assert_eq!(told(&settings, "10.0.0.1:9847"), None);
        settings.listening = Some("0.0.0.0:9000".parse().unwrap());
        assert_eq!(told(&settings, "10.0.0.1:9847"), Some(9000));
        settings.listening = Some("127.0.0.1:9000".parse().unwrap());
        assert_eq!(told(&settings, "10.0.0.1:9847"), None);
        assert_eq!(told(&settings, "127.0.0.1:9847"), Some(9000));
        settings.listening = Some("10.0.0.2:9000".parse().unwrap());
        assert_eq!(told(&settings, "10.0.0.1:9847"), None);
    }
}
