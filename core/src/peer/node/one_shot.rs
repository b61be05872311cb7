//! Connections for one exchange: a peer's, with the answers on them, and ours.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::string::String;
use core::time::Duration;

use super::asked::request_id;
use super::errand::Asker;
use super::link::Agreed;
use super::state::State;
use super::{Node, Out};
use crate::frame::Cutter;
use crate::machine::{CloseReason, ConnId};
use crate::message::{Envelope, FeatureSet, Kind};
use crate::outbox::Close;
use crate::peer::book::PeerIndex;
use crate::peer::command::{Answer, Failure, Message};
use crate::peer::fault::Fault;
use crate::peer::settings::Settings;
use crate::text;
use crate::time::{Mono, Now, Wall};

/// How long an open one-shot of a peer may be silent.
pub(super) const IDLE_TIME: Duration = Duration::from_secs(60);
/// How long a peer that closes nothing is waited for after our message left.
const TAKEN_TIME: Duration = Duration::from_millis(1500);
/// Open one-shots of one peer at once.
pub(super) const PER_PEER: usize = 256;

/// A one-shot that a peer opened. Answers go to it and to no other.
#[derive(Debug)]
pub(super) struct Inbound {
    pub(super) peer: PeerIndex,
    pub(super) features: FeatureSet,
    pub(super) cutter: Cutter,
    /// When it last said something, or half-closed.
    pub(super) since: Mono,
    pub(super) eof: bool,
    /// Requests whose answer is the owner's to give.
    pub(super) owed: u16,
}

/// A one-shot of ours, behind the ack.
#[derive(Debug)]
pub(super) struct Outbound {
    pub(super) peer: PeerIndex,
    pub(super) asker: Asker,
    pub(super) cutter: Cutter,
    /// The reply that is waited for.
    pub(super) reply: Option<Kind>,
    /// What the reply must name, where the request names itself.
    request_id: Option<String>,
    pub(super) deadline: Mono,
    /// Bytes that the socket had taken when the deadline was set.
    pub(super) progress: u64,
}

impl Inbound {
    pub(super) fn deadline(&self, settings: &Settings) -> Mono {
        self.since.after(if self.eof { settings.answer_time } else { IDLE_TIME })
    }
}

/// A peer's.
impl Node {
    pub(super) fn inbound(&mut self, now: Now, conn: ConnId, agreed: &Agreed) {
        self.book.get_mut(agreed.peer).heard().one_shots += 1;
        self.one_shots += 1;
        let inbound = Inbound {
            peer: agreed.peer,
            features: agreed.features,
            cutter: Cutter::new(agreed.framing()),
            since: now.mono,
            eof: false,
            owed: 0,
        };
        self.set_state(conn, State::Inbound(Box::new(inbound)));
        self.arm(conn);
    }

    pub(super) fn inbound_frame(&mut self, now: Now, conn: ConnId, envelope: &Envelope<'_>, out: &mut Out) {
        let Some(State::Inbound(inbound)) = self.state_mut(conn) else { return };
        inbound.since = now.mono;
        let (peer, features, framing) = (inbound.peer, inbound.features, inbound.cutter.framing());
        self.dispatch(now, conn, peer, features, framing, envelope, out);
        if out.room(conn) == 0 {
            out.pause(conn);
        }
    }

    /// Behind the peer's half-close all that is owed leaves; where nothing is, the end is at once.
    pub(super) fn inbound_eof(&mut self, now: Now, conn: ConnId, out: &mut Out) {
        let Some(State::Inbound(inbound)) = self.state_mut(conn) else { return };
        inbound.eof = true;
        inbound.since = now.mono;
        if inbound.owed == 0 {
            self.end_inbound(conn, Close::Flush, out);
        } else {
            self.arm(conn);
        }
    }

    pub(super) fn inbound_due(&mut self, now: Now, conn: ConnId, out: &mut Out) {
        // One that is paused has itself to thank.
        if out.waits_for_turn(conn)
            && !out.is_paused(conn)
            && let Some(State::Inbound(inbound)) = self.state_mut(conn)
        {
            inbound.since = now.mono;
        }
        match self.state(conn) {
            Some(State::Inbound(inbound)) if inbound.deadline(&self.settings) <= now.mono => {
                self.end_inbound(conn, Close::Flush, out);
            }
            Some(_) | None => self.arm(conn),
        }
    }

    pub(super) fn end_inbound(&mut self, conn: ConnId, how: Close, out: &mut Out) {
        let State::Inbound(inbound) = self.take_state(conn) else { return };
        self.book.get_mut(inbound.peer).heard().one_shots -= 1;
        self.one_shots -= 1;
        // An orderly end tells the peer that all it sent was taken. Before its own end that is not known, so it sees a
        // reset, unless answers are still to reach it.
        let early = !inbound.eof && out.unsent(conn) == 0;
        out.close(conn, if early { Close::Abort } else { how });
    }
}

/// Ours.
impl Node {
    /// The message is queued and our half closed: what the peer does now says whether it was taken.
    #[expect(clippy::too_many_arguments, reason = "what a dial knows when it has succeeded")]
    pub(super) fn outbound(
        &mut self,
        now: Now,
        conn: ConnId,
        agreed: &Agreed,
        cutter: Cutter,
        asker: Asker,
        reply: Option<(Kind, Duration)>,
        request_id: Option<String>,
        out: &mut Out,
    ) {
        out.finish(conn);
        let outbound = Outbound {
            peer: agreed.peer,
            asker,
            cutter,
            reply: reply.map(|(kind, _)| kind),
            request_id,
            deadline: now.mono.after(reply.map_or(TAKEN_TIME, |(_, within)| within)),
            progress: out.progress(conn),
        };
        self.set_state(conn, State::Outbound(Box::new(outbound)));
        self.arm(conn);
    }

    pub(super) fn outbound_frame(&mut self, now: Now, conn: ConnId, envelope: &Envelope<'_>, out: &mut Out) {
        let Some(State::Outbound(outbound)) = self.state(conn) else { return };
        let Some(kind) = envelope.msg_type.known() else { return };
        if outbound.reply != Some(kind) {
            return;
        }
        // An answer to another request may be waited for by that one, and says nothing here.
        if let Some(asked) = &outbound.request_id
            && request_id(envelope.payload).as_ref() != Some(asked)
        {
            let peer = outbound.peer;
            self.is_stray_answer(now, peer, kind, envelope, out);
            return;
        }
        let message = Message {
            peer: self.book.get(outbound.peer).id.clone(),
            conn,
            id: text::clip(&envelope.id, Message::MAX_ID),
            kind,
            one_shot: true,
            repeated: false,
            timestamp: Wall::from_millis(envelope.timestamp),
            payload: envelope.payload.to_owned(),
        };
        self.finish_outbound(now, conn, Answer::Replied(message), Close::Flush, out);
    }

    pub(super) fn outbound_eof(&mut self, now: Now, conn: ConnId, out: &mut Out) {
        let Some(State::Outbound(outbound)) = self.state(conn) else { return };
        let answer = if outbound.reply.is_some() || out.unsent(conn) > 0 {
            Answer::Failed(Failure::NotTaken)
        } else {
            Answer::Sent { taken: true }
        };
        self.finish_outbound(now, conn, answer, Close::Flush, out);
    }

    pub(super) fn outbound_due(&mut self, now: Now, conn: ConnId, out: &mut Out) {
        let Some(State::Outbound(outbound)) = self.state_mut(conn) else { return };
        if outbound.deadline > now.mono {
            self.arm(conn);
            return;
        }
        let (progress, unsent) = (out.progress(conn), out.unsent(conn));
        if outbound.reply.is_none() && unsent > 0 && progress > outbound.progress {
            // A long message that is still on its way.
            outbound.progress = progress;
            outbound.deadline = now.mono.after(TAKEN_TIME);
            self.arm(conn);
        } else if outbound.reply.is_none() && unsent == 0 {
            // It left, and the peer, which has not closed, has had time to refuse it.
            self.finish_outbound(now, conn, Answer::Sent { taken: false }, Close::Flush, out);
        } else {
            // What is said to have failed must not arrive later.
            self.fail_outbound(now, conn, Failure::TimedOut, out);
        }
    }

    pub(super) fn outbound_fault(&mut self, now: Now, conn: ConnId, fault: Fault, out: &mut Out) {
        self.fail_outbound(now, conn, Failure::Fault(fault), out);
    }

    pub(super) fn outbound_closed(&mut self, now: Now, conn: ConnId, why: CloseReason, out: &mut Out) {
        let failure = match why {
            CloseReason::Finished => Failure::NotTaken,
            CloseReason::Asked
            | CloseReason::Reset
            | CloseReason::TimedOut
            | CloseReason::DialFailed(_)
            | CloseReason::Overflow
            | CloseReason::NotDurable
            | CloseReason::Stopped
            | CloseReason::Failed => Failure::Connection(why),
        };
        self.fail_outbound(now, conn, failure, out);
    }

    pub(super) fn fail_outbound(&mut self, now: Now, conn: ConnId, failure: Failure, out: &mut Out) {
        self.finish_outbound(now, conn, Answer::Failed(failure), Close::Abort, out);
    }

    fn finish_outbound(&mut self, now: Now, conn: ConnId, answer: Answer, how: Close, out: &mut Out) {
        let State::Outbound(outbound) = self.take_state(conn) else { return };
        self.dials -= 1;
        out.close(conn, how);
        self.tell(now, outbound.asker, answer, out);
    }

    /// What a command's payload is sent as over a link that stands.
    pub(super) fn send_over_link(
        &mut self,
        now: Now,
        conn: ConnId,
        kind: Kind,
        payload: &crate::message::RawValue,
        out: &mut Out,
    ) -> Result<(), Failure> {
        let framing = match self.state(conn) {
            Some(State::Link(link)) if !link.eof => link.cutter.framing(),
            Some(_) | None => return Err(Failure::Gone),
        };
        self.send(now, conn, framing, kind, payload, out).map_err(Failure::Unsendable)
    }

    /// Answers a message on its own connection; the last owed answer behind a half-close ends it.
    pub(super) fn reply(
        &mut self,
        now: Now,
        conn: ConnId,
        kind: Kind,
        payload: &crate::message::RawValue,
        out: &mut Out,
    ) -> Result<(), Failure> {
        let (framing, last) = match self.state_mut(conn) {
            Some(State::Link(link)) => {
                link.owed = link.owed.saturating_sub(1);
                (link.cutter.framing(), link.eof && link.owed == 0)
            }
            Some(State::Inbound(inbound)) => {
                inbound.owed = inbound.owed.saturating_sub(1);
                (inbound.cutter.framing(), inbound.eof && inbound.owed == 0)
            }
            Some(
                State::Vacant
                | State::Greeted(_)
                | State::Storing(_)
                | State::Dialling(_)
                | State::Outbound(_)
                | State::Closing,
            )
            | None => return Err(Failure::Gone),
        };
        let sent = self.send(now, conn, framing, kind, payload, out).map_err(Failure::Unsendable);
        if last {
            match self.state(conn) {
                Some(State::Link(_)) => {
                    let reason = crate::peer::command::DownReason::PeerClosed;
                    self.end_link(now, conn, reason, Close::Flush, out);
                }
                Some(_) | None => self.end_inbound(conn, Close::Flush, out),
            }
        }
        sent
    }
}
