//! Fairness: whose a connection is, and texts that are too long to be worked on in one turn.

use alloc::vec::Vec;

use super::state::State;
use super::{Node, Out};
use crate::host::Host;
use crate::machine::{ConnId, Share};
use crate::message::Reading;
use crate::peer::admission::Origin;
use crate::time::Now;

/// The most that acting on a message is taken to cost: a whole turn.
const TURN: usize = Host::<Node>::TURN_WORK;
/// Acting on a message skips over its text this many times as fast as checking it walks.
const SKIPPED: usize = 4;

/// Whether the next frame has to wait for a turn: the allowance is spent, or inflating it takes a turn of its own.
pub(super) const fn must_wait(inflates: bool, out: &Out) -> bool {
    out.allowance() == 0 || (inflates && out.allowance() < TURN)
}

impl Node {
    /// Before it has proved itself a connection is its address's, and then its peer's.
    pub(super) fn share_of(&self, conn: ConnId) -> Share {
        let peer = |index: u32| Share::of(1, u64::from(index));
        match self.state(conn) {
            Some(State::Greeted(greeted)) => match greeted.origin {
                Origin::Address(core::net::IpAddr::V4(address)) => Share::of(2, u64::from(address.to_bits())),
                Origin::Address(core::net::IpAddr::V6(address)) => {
                    Share::of(3, (address.to_bits() >> 64) as u64)
                }
                Origin::Local => Share::of(4, 0),
            },
            Some(State::Link(link)) => peer(link.peer),
            Some(State::Inbound(inbound)) => peer(inbound.peer),
            Some(State::Outbound(outbound)) => peer(outbound.peer),
            Some(State::Vacant | State::Storing(_) | State::Dialling(_) | State::Closing) | None => {
                Share::alone(conn)
            }
        }
    }

    /// Begins with a long text, whose pieces are the work of further turns.
    pub(super) fn read_large(&mut self, now: Now, conn: ConnId, text: Vec<u8>, out: &mut Out) {
        match Reading::new(text) {
            Ok(reading) => {
                self.large.insert(conn, reading);
                out.leave(conn, &[]);
            }
            Err(fault) => self.fault(now, conn, fault.into(), out),
        }
    }

    /// Goes on with a long text, and acts on its message once all is checked.
    pub(super) fn read_on(&mut self, now: Now, conn: ConnId, out: &mut Out) {
        let Some(mut reading) = self.large.remove(&conn) else { return };
        let acting = reading.size() / SKIPPED;
        match reading.advance(out.allowance()) {
            Ok(Some(work)) => {
                out.spend(work);
                if out.allowance() >= acting.min(TURN) {
                    out.spend(acting);
                    match reading.envelope() {
                        Ok(envelope) => self.frame(now, conn, &envelope, out),
                        Err(fault) => self.fault(now, conn, fault.into(), out),
                    }
                    return;
                }
            }
            Ok(None) => out.spend(out.allowance()),
            Err(fault) => {
                self.fault(now, conn, fault.into(), out);
                return;
            }
        }
        self.large.insert(conn, reading);
        out.leave(conn, &[]);
    }
}
