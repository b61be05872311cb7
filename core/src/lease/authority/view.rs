//! Leases as messages describe them.

use alloc::string::String;
use alloc::vec::Vec;

use super::super::table::Row;
use super::Authority;
use crate::message::Utc;
use crate::message::lease::Lease;
use crate::time::{Mono, Now};

/// What the existing peer calls the agent of every lease.
const AGENT: &str = "claude-code";
/// What a lease's keys and numbers take, in bytes, beside its texts.
const LEASE_BYTES: usize = 400;

impl Authority {
    /// The most bytes of leases in one list: what fits a frame of either framing.
    pub const LIST_BYTES: usize = 1_000_000;

    /// A lease whose owner renews until `renewed`, as it stands now.
    pub(super) fn view(&self, now: Now, row: &Row, renewed: Mono) -> Lease {
        Lease {
            id: String::from(&*row.id),
            owner_session_id: self.owners.name(row.owner),
            owner_agent: AGENT.into(),
            resource_kind: String::from(&*row.kind),
            resource_value: String::from(&*row.value),
            mode: row.mode.as_str().into(),
            reason: String::from(&*row.reason),
            acquired_at: Utc::from_secs(row.acquired.as_millis() / 1000),
            expires_at: self.shown_end(now, row, renewed),
            status: "active".into(),
            ttl_secs: row.ttl.as_secs(),
            fencing_token: Some(row.token.number()),
        }
    }

    /// When a lease ends unless it is renewed after now, by the clock that is shown: rounded down, so that nobody counts
    /// on more than there is.
    pub(super) fn shown_end(&self, now: Now, row: &Row, renewed: Mono) -> Utc {
        let end = row.granted.max(renewed.min(now.mono)).after(row.ttl);
        let left = u64::try_from(end.since(now.mono).as_millis()).unwrap_or(u64::MAX);
        Utc::from_secs(now.wall.as_millis().saturating_add(left) / 1000)
    }

    /// The leases that hold, the newest first, and whether there are more than fit.
    ///
    /// While the journal fails these are the durable ones: among them those whose end is not durable.
    pub(super) fn view_list(&self, now: Now) -> (Vec<Lease>, bool) {
        let (mut leases, mut bytes) = (Vec::new(), 0);
        if self.failing {
            for (_, lease) in self.ending.iter().rev() {
                let is_durable = lease.fencing_token.is_some_and(|token| token <= self.durable.number());
                if is_durable && !push(&mut leases, &mut bytes, lease.clone()) {
                    return (leases, true);
                }
            }
        }
        for (slot, row) in self.table.newest_first() {
            if self.failing && row.token > self.durable {
                continue;
            }
            let renewed = if self.failing {
                self.owners.renews_durably_until(row.owner, self.durable)
            } else {
                self.owners.renews_until(row.owner)
            };
            let is_over = !self.failing && !self.holds(slot, now.mono);
            if !is_over && !push(&mut leases, &mut bytes, self.view(now, row, renewed)) {
                return (leases, true);
            }
        }
        (leases, false)
    }
}

/// Adds a lease where it fits.
fn push(leases: &mut Vec<Lease>, bytes: &mut usize, lease: Lease) -> bool {
    let texts =
        [&lease.id, &lease.owner_session_id, &lease.resource_kind, &lease.resource_value, &lease.reason];
    // Each byte may be written as two.
    *bytes += LEASE_BYTES + texts.iter().map(|text| 2 * text.len()).sum::<usize>();
    let fits = *bytes <= Authority::LIST_BYTES;
    if fits {
        leases.push(lease);
    }
    fits
}
