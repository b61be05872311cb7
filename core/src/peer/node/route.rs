//! What happened to a connection goes to what the connection is doing.

use alloc::vec::Vec;
use core::mem;

use super::large::must_wait;
use super::state::{Slot, State};
use super::{BEFORE_PROOF, FRAME_WORK, LARGE, Node, Out};
use crate::frame;
use crate::machine::{CloseReason, ConnId};
use crate::message::Envelope;
use crate::outbox::Close;
use crate::peer::command::{DownReason, Failure, HandshakeFailure};
use crate::peer::fault::Fault;
use crate::time::Now;

impl Node {
    pub(super) fn connection_due(&mut self, now: Now, conn: ConnId, out: &mut Out) {
        match self.state(conn) {
            Some(State::Greeted(_)) => self.greeted_due(now, conn, out),
            Some(State::Storing(_) | State::Closing | State::Vacant) | None => {}
            Some(State::Dialling(_)) => self.dial_due(now, conn, out),
            Some(State::Link(_)) => self.link_due(now, conn, out),
            Some(State::Inbound(_)) => self.inbound_due(now, conn, out),
            Some(State::Outbound(_)) => self.outbound_due(now, conn, out),
        }
    }

    pub(super) fn bytes(&mut self, now: Now, conn: ConnId, mut data: &[u8], out: &mut Out) {
        if let Some(State::Storing(storing)) = self.state_mut(conn) {
            storing.rest.extend_from_slice(data);
            if storing.rest.len() > frame::MAX_FRAME {
                self.fault(now, conn, Fault::TooMuchBeforeProof, out);
            }
            return;
        }
        self.read_on(now, conn, out);
        let mut inflated = mem::take(&mut self.inflated);
        while let Some(cutter) = self.cutter(conn) {
            let inflates = cutter.would_inflate(data) > LARGE;
            if must_wait(inflates, out) || self.large.contains_key(&conn) || out.is_paused(conn) {
                if !data.is_empty() {
                    out.leave(conn, data);
                }
                break;
            }
            let Some(cutter) = self.cutter(conn) else { break };
            match cutter.cut(&mut data, &mut inflated) {
                Ok(None) => break,
                Ok(Some(text)) => {
                    self.counts.frames += 1;
                    out.spend(if inflates { out.allowance() } else { FRAME_WORK });
                    if text.len() > LARGE {
                        // What was inflated is all of the buffer.
                        let text = if inflates { mem::take(&mut inflated) } else { text.into() };
                        self.read_large(now, conn, text, out);
                        continue;
                    }
                    out.spend(text.len());
                    match Envelope::parse(text) {
                        Ok(envelope) => self.frame(now, conn, &envelope, out),
                        Err(fault) => self.fault(now, conn, fault.into(), out),
                    }
                }
                Err(fault) => self.fault(now, conn, fault.into(), out),
            }
            if let Some(State::Storing(storing)) = self.state_mut(conn) {
                storing.rest.extend_from_slice(data);
                break;
            }
        }
        if inflated.capacity() > frame::MAX_FRAME {
            inflated = Vec::new();
        }
        self.inflated = inflated;
        self.note_partial(now, conn, out);
        self.arm(conn);
    }

    pub(super) fn frame(&mut self, now: Now, conn: ConnId, envelope: &Envelope<'_>, out: &mut Out) {
        match self.state(conn) {
            Some(State::Greeted(_)) => self.greeted_frame(now, conn, envelope, out),
            Some(State::Dialling(_)) => self.dialling_frame(now, conn, envelope, out),
            Some(State::Link(_)) => self.link_frame(now, conn, envelope, out),
            Some(State::Inbound(_)) => self.inbound_frame(now, conn, envelope, out),
            Some(State::Outbound(_)) => self.outbound_frame(now, conn, envelope, out),
            Some(State::Vacant | State::Storing(_) | State::Closing) | None => {}
        }
    }

    /// The peer broke the protocol: its connection closes, and nothing of the frame was acted on.
    pub(super) fn fault(&mut self, now: Now, conn: ConnId, fault: Fault, out: &mut Out) {
        self.counts.faults += 1;
        match self.state(conn) {
            Some(State::Greeted(_) | State::Storing(_)) => {
                self.end_greeting(now, conn, Close::Flush, Some(HandshakeFailure::Fault(fault)), out);
            }
            Some(State::Dialling(_)) => self.dialling_fault(now, conn, fault, out),
            Some(State::Link(_)) => self.link_fault(now, conn, fault, out),
            Some(State::Inbound(_)) => self.end_inbound(conn, Close::Flush, out),
            Some(State::Outbound(_)) => self.outbound_fault(now, conn, fault, out),
            Some(State::Vacant | State::Closing) | None => {}
        }
    }

    pub(super) fn eof(&mut self, now: Now, conn: ConnId, out: &mut Out) {
        if let Some(cutter) = self.cutter(conn)
            && let Err(fault) = cutter.eof()
        {
            self.fault(now, conn, fault.into(), out);
            return;
        }
        match self.state(conn) {
            Some(State::Greeted(_)) => self.end_greeting(now, conn, Close::Flush, None, out),
            // The ack is owed still; the end is seen again behind it.
            Some(State::Storing(_)) => {
                if let Some(State::Storing(storing)) = self.state_mut(conn) {
                    storing.eof = true;
                }
            }
            Some(State::Dialling(_)) => self.dialling_eof(now, conn, out),
            Some(State::Link(_)) => self.link_eof(now, conn, out),
            Some(State::Inbound(_)) => self.inbound_eof(now, conn, out),
            Some(State::Outbound(_)) => self.outbound_eof(now, conn, out),
            Some(State::Vacant | State::Closing) | None => {}
        }
    }

    pub(super) fn closed(&mut self, now: Now, conn: ConnId, why: CloseReason, out: &mut Out) {
        match self.state(conn) {
            Some(State::Greeted(_) | State::Storing(_)) => {
                self.end_greeting(now, conn, Close::Abort, None, out);
            }
            Some(State::Dialling(_)) => self.dialling_closed(now, conn, why, out),
            Some(State::Link(_)) => self.link_closed(now, conn, why, out),
            Some(State::Inbound(_)) => self.end_inbound(conn, Close::Abort, out),
            Some(State::Outbound(_)) => self.outbound_closed(now, conn, why, out),
            Some(State::Vacant | State::Closing) | None => {}
        }
        if let Some(slot) = self.slots.get_mut(conn.slot())
            && slot.conn == conn
        {
            slot.state = State::Vacant;
        }
        self.large.remove(&conn);
        self.timers.set(conn.slot() as u32, None);
    }

    pub(super) fn stop_connection(&mut self, now: Now, conn: ConnId, out: &mut Out) {
        match self.state(conn) {
            Some(State::Greeted(_) | State::Storing(_)) => {
                self.end_greeting(now, conn, Close::Abort, None, out);
            }
            Some(State::Dialling(_)) => self.abandon_dial(now, conn, Failure::Stopping, out),
            Some(State::Link(_)) => self.end_link(now, conn, DownReason::Stopped, Close::Flush, out),
            // Answers that are on their way still leave.
            Some(State::Inbound(_)) => self.end_inbound(conn, Close::Flush, out),
            Some(State::Outbound(_)) => self.fail_outbound(now, conn, Failure::Stopping, out),
            Some(State::Vacant | State::Closing) | None => {}
        }
    }

    /// Starts or ends the time that a partial frame has, and bounds what came before a proof.
    fn note_partial(&mut self, now: Now, conn: ConnId, out: &mut Out) {
        let Some(cutter) = self.cutter(conn) else { return };
        let (partial, buffered) = (cutter.is_partial(), cutter.buffered());
        match self.state_mut(conn) {
            Some(State::Link(link)) => {
                // The rest of a frame cannot come while nobody reads.
                let partial = partial && link.life.is_read();
                if partial && !link.partial {
                    link.since = now.mono;
                }
                link.partial = partial;
            }
            Some(State::Greeted(greeted)) => {
                let before = mem::replace(&mut greeted.buffered, buffered);
                self.unproven_bytes = self.unproven_bytes - before + buffered;
                if self.unproven_bytes > BEFORE_PROOF {
                    self.end_greediest(now, out);
                }
            }
            Some(
                State::Vacant
                | State::Storing(_)
                | State::Dialling(_)
                | State::Inbound(_)
                | State::Outbound(_)
                | State::Closing,
            )
            | None => {}
        }
    }

    /// Where too much came before proofs, the connection that sent the most of it pays.
    fn end_greediest(&mut self, now: Now, out: &mut Out) {
        let held = |slot: &Slot| match &slot.state {
            State::Greeted(greeted) => greeted.buffered,
            State::Vacant
            | State::Storing(_)
            | State::Dialling(_)
            | State::Link(_)
            | State::Inbound(_)
            | State::Outbound(_)
            | State::Closing => 0,
        };
        if let Some(conn) = self.slots.iter().max_by_key(|slot| held(slot)).map(|slot| slot.conn) {
            self.fault(now, conn, Fault::TooMuchBeforeProof, out);
        }
    }
}
