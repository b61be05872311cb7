//! The node as the fleet's lease authority: requests of peers and of the owner, and what heartbeats renew.

use super::{Node, Out};
use crate::frame::Framing;
use crate::journal::Seq;
use crate::lease::{Change, Effects, Record};
use crate::machine::{BadRecord, ConnId, Durable};
use crate::message::heartbeat::Sessions;
use crate::message::lease::{Field, LeaseFault, LeaseRequest, LeaseResult, Outcome};
use crate::message::{Feature, FeatureSet, Kind};
use crate::peer::book::PeerIndex;
use crate::peer::command::Event;
use crate::text::PeerId;
use crate::time::Now;

/// Records what the authority decides, and tells it.
pub(super) struct Scribe<'a>(pub(super) &'a mut Out);

impl Effects for Scribe<'_> {
    fn record(&mut self, record: &Record<'_>) -> Seq {
        self.0.record(|bytes| record.write(bytes))
    }

    fn changed(&mut self, change: Change) {
        self.0.event(Event::Lease(change));
    }
}

impl Node {
    /// The peer that keeps the fleet's leases; `None` for this node itself.
    pub(super) fn authority_elsewhere(&self) -> Option<&PeerId> {
        self.settings.authority.as_ref().filter(|authority| **authority != self.settings.id)
    }

    /// Answers a peer's request for leases, on the connection that asked.
    #[expect(clippy::too_many_arguments, reason = "what a link and a one-shot know of themselves")]
    pub(super) fn lease_request(
        &mut self,
        now: Now,
        conn: ConnId,
        peer: PeerIndex,
        features: FeatureSet,
        framing: Framing,
        request: Result<LeaseRequest, LeaseFault>,
        out: &mut Out,
    ) {
        let peer = self.book.get(peer).id.clone();
        let mut result = match request {
            Ok(request) => self.judge_lease(now, &peer, request, out),
            Err(fault) if fault.field == Field::RequestId => LeaseResult::from(fault),
            // Who keeps no leases says that, whatever else is wrong.
            Err(fault) => match self.kept_elsewhere(&fault.request_id) {
                Some(result) => result,
                None => LeaseResult::from(fault),
            },
        };
        if !features.contains(Feature::LeaseFence) {
            strip_tokens(&mut result.outcome);
        }
        let sent = self.send(now, conn, framing, Kind::LeaseResult, &result, out);
        debug_assert!(sent.is_ok(), "an answer about leases fits a frame");
    }

    /// What the authority says to a request of `peer`, which is this node itself for the owner's.
    pub(super) fn judge_lease(
        &mut self,
        now: Now,
        peer: &PeerId,
        request: LeaseRequest,
        out: &mut Out,
    ) -> LeaseResult {
        if let Some(result) = self.kept_elsewhere(request.request_id()) {
            return result;
        }
        let effects = &mut Scribe(out);
        match request {
            LeaseRequest::Claim(claim) => {
                let outcome = self.leases.claim(now, peer, &claim, effects);
                LeaseResult { request_id: claim.request_id, outcome }
            }
            LeaseRequest::Release(release) => {
                let outcome = self.leases.release(now, peer, &release, effects);
                LeaseResult { request_id: release.request_id, outcome }
            }
            LeaseRequest::List(list) => {
                LeaseResult { request_id: list.request_id, outcome: self.leases.list(now) }
            }
        }
    }

    /// The answer to every request where another node keeps the leases.
    fn kept_elsewhere(&self, request_id: &str) -> Option<LeaseResult> {
        let (own, authority) = (&self.settings.id, self.authority_elsewhere()?);
        let message =
            alloc::format!("\"{own}\" is no lease authority: the fleet's leases are kept by \"{authority}\"");
        Some(LeaseResult { request_id: request_id.into(), outcome: Outcome::Error(message) })
    }

    /// The sessions of a heartbeat renew what they hold.
    pub(super) fn renew_leases(&mut self, now: Now, peer: &PeerId, sessions: Sessions<'_>, out: &mut Out) {
        if self.authority_elsewhere().is_none() {
            self.leases.heard(now, peer, |visit| sessions.each_running(visit), &mut Scribe(out));
        }
    }
}

/// Rows up to which a snapshot is made while the node runs: it is one piece of work, about a microsecond a row, which
/// nobody should notice. A larger state is cut at the next start.
const SNAPSHOT_ROWS: usize = 1 << 14;

impl Node {
    /// Whether so much was recorded that the journal should be cut.
    #[must_use]
    pub const fn wants_snapshot(&self, newest: Seq) -> bool {
        newest.number() - self.snapped.number() >= self.settings.snapshot_every
    }

    /// Gives the journal a snapshot now and then, behind what this step recorded.
    pub(super) fn snap(&mut self, out: &mut Out) {
        let newest = out.recorded();
        if self.wants_snapshot(newest) && out.has_recorded() && self.leases.rows() <= SNAPSHOT_ROWS {
            self.snapped = newest;
            out.snapshot(|into| self.leases.snapshot(into));
        }
    }
}

impl Durable for Node {
    fn restore(&mut self, seq: Seq, record: &[u8]) -> Result<(), BadRecord> {
        if self.snapped == Seq::NONE {
            self.snapped = Seq::new(seq.number() - 1);
        }
        self.leases.restore(seq, Record::read(record)?)
    }

    fn snapshot(&self, into: &mut alloc::vec::Vec<u8>) {
        self.leases.snapshot(into);
    }

    fn restore_snapshot(&mut self, snapshot: &[u8]) -> Result<(), BadRecord> {
        self.leases.restore_snapshot(snapshot)
    }
}

/// Takes fencing tokens out of an answer for a peer that does not speak of them.
fn strip_tokens(outcome: &mut Outcome) {
    match outcome {
        Outcome::Granted(lease) => lease.fencing_token = None,
        Outcome::List { leases, .. } => leases.iter_mut().for_each(|lease| lease.fencing_token = None),
        Outcome::Conflict(_)
        | Outcome::Queued { .. }
        | Outcome::WaiterGone
        | Outcome::Released
        | Outcome::NotOwner { .. }
        | Outcome::NotFound
        | Outcome::NotActive { .. }
        | Outcome::Error(_) => {}
    }
}
