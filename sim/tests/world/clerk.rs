//! A small machine for these tests: it does what its commands say, tells what it hears, and keeps a count.

use relay_core::action::{ActOutput, Action};
use relay_core::journal::Seq;
use relay_core::machine::{
    BadRecord, CloseReason, ConnId, DialError, Durable, Input, Machine, Refused, Target, Ticket,
};
use relay_core::outbox::{Close, Outbox};
use relay_core::time::{Mono, Now};
use relay_sim::{Disk, Witness};

/// What a clerk is told to do.
#[derive(Debug)]
pub(crate) enum Do {
    Dial(Target),
    /// Sends to all connections.
    Say(String),
    /// Records a text, and answers with its place when that is durable.
    Record(String),
    Finish,
    Close(Close),
    Pause,
    Accept(bool),
    Act(Action),
    /// Wants a timer so many nanoseconds from now.
    Wake(u64),
}

/// What a clerk heard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Heard {
    Opened(ConnId),
    Text(String),
    Eof,
    Drained,
    Closed(ConnId, CloseReason),
    Failing,
    Resumed(Seq),
    Done(String),
    Woken(Mono),
    /// A record is durable.
    Kept(Seq),
}

#[derive(Default)]
pub(crate) struct Clerk {
    pub(crate) records: Vec<String>,
    pub(crate) newest: Seq,
    pub(crate) conns: Vec<ConnId>,
    /// Sends without waiting: the fault that the witness is there for.
    pub(crate) hasty: bool,
    wake: Option<Mono>,
    line: Vec<u8>,
}

impl Clerk {
    /// A clerk that knows what its disk kept.
    pub(crate) fn of(disk: &Disk) -> Self {
        disk.restore(Self::default()).expect("a journal that a clerk wrote")
    }

    fn reply(&self, conn: ConnId, out: &mut Outbox<Heard, Seq>) {
        let text = format!("rests on {}\n", self.newest.number());
        if self.hasty {
            out.send_free(conn, |buf| buf.extend_from_slice(text.as_bytes()));
        } else {
            out.send(conn, |buf| buf.extend_from_slice(text.as_bytes()));
        }
    }

    fn obey(&mut self, now: Now, ticket: Ticket, order: Do, out: &mut Outbox<Heard, Seq>) {
        match order {
            Do::Dial(target) => {
                let conn = out.dial(target);
                self.conns.push(conn);
            }
            Do::Say(text) => {
                for conn in &self.conns {
                    out.send(*conn, |buf| buf.extend_from_slice(text.as_bytes()));
                }
            }
            Do::Record(text) => {
                let seq = out.record(|buf| buf.extend_from_slice(text.as_bytes()));
                self.records.push(text);
                self.newest = seq;
                out.event(Heard::Kept(seq));
                out.answer(ticket, seq);
            }
            Do::Finish => self.conns.iter().for_each(|conn| out.finish(*conn)),
            Do::Close(how) => self.conns.iter().for_each(|conn| out.close(*conn, how)),
            Do::Pause => self.conns.iter().for_each(|conn| out.pause(*conn)),
            Do::Accept(on) => out.accepting(relay_core::machine::ListenerId(0), on),
            Do::Act(action) => {
                out.act(action);
            }
            Do::Wake(nanos) => {
                self.wake = Some(Mono::from_nanos(now.mono.as_nanos() + nanos));
            }
        }
    }
}

impl Machine for Clerk {
    type Command = Do;
    type Answer = Seq;
    type Event = Heard;

    fn step(&mut self, now: Now, input: Input<'_, Do>, out: &mut Outbox<Heard, Seq>) {
        match input {
            Input::Opened { conn, .. } => {
                if !self.conns.contains(&conn) {
                    self.conns.push(conn);
                }
                out.event_free(Heard::Opened(conn));
            }
            Input::Bytes { conn, data } => {
                self.line.extend_from_slice(data);
                let whole = data.contains(&b'\n');
                while whole && let Some(end) = self.line.iter().position(|byte| *byte == b'\n') {
                    let line = String::from_utf8_lossy(&self.line[..end]).into_owned();
                    self.line.drain(..=end);
                    if let Some(text) = line.strip_prefix("ask ") {
                        self.newest = out.record(|buf| buf.extend_from_slice(text.as_bytes()));
                        self.records.push(text.to_owned());
                        self.reply(conn, out);
                        out.event_free(Heard::Text("ask".to_owned()));
                    } else {
                        out.event_free(Heard::Text(line));
                    }
                }
            }
            Input::Eof { .. } => out.event_free(Heard::Eof),
            Input::Drained { .. } => out.event_free(Heard::Drained),
            Input::Closed { conn, why, .. } => {
                self.conns.retain(|known| *known != conn);
                out.event_free(Heard::Closed(conn, why));
            }
            Input::Persisted { .. } | Input::Drain { .. } | Input::Timer => {}
            Input::PersistFailed { .. } => out.event_free(Heard::Failing),
            Input::Resumed { upto } => out.event_free(Heard::Resumed(upto)),
            Input::Acted { result, .. } => out.event_free(Heard::Done(match result {
                Ok(ActOutput::Contents(contents)) => {
                    String::from_utf8_lossy(contents.as_bytes()).into_owned()
                }
                other => format!("{other:?}"),
            })),
            Input::Command { ticket, command } => self.obey(now, ticket, command, out),
        }
        if self.wake.is_some_and(|due| due <= now.mono) {
            self.wake = None;
            out.event_free(Heard::Woken(now.mono));
        }
    }

    fn deadline(&self) -> Option<Mono> {
        self.wake
    }

    fn idle(&self) -> bool {
        self.conns.is_empty()
    }
}

impl Durable for Clerk {
    fn restore(&mut self, seq: Seq, record: &[u8]) -> Result<(), BadRecord> {
        let text = String::from_utf8(record.to_vec()).map_err(|_| BadRecord { reason: "no text" })?;
        self.records.push(text);
        self.newest = seq;
        Ok(())
    }

    fn snapshot(&self, into: &mut Vec<u8>) {
        into.extend_from_slice(format!("{}\n", self.newest.number()).as_bytes());
        into.extend_from_slice(self.records.join("\n").as_bytes());
    }

    fn restore_snapshot(&mut self, snapshot: &[u8]) -> Result<(), BadRecord> {
        let text = String::from_utf8(snapshot.to_vec()).map_err(|_| BadRecord { reason: "no text" })?;
        let mut lines = text.lines().map(str::to_owned);
        let newest = lines.next().and_then(|line| line.parse().ok());
        self.newest = Seq::new(newest.ok_or(BadRecord { reason: "no number" })?);
        self.records = lines.collect();
        Ok(())
    }
}

/// Reads the record that a clerk's replies, events and answers say they rest on.
pub(crate) struct Reader;

impl Witness<Clerk> for Reader {
    fn bytes(&mut self, tail: &mut Vec<u8>) -> Option<Seq> {
        let mut newest = None;
        while let Some(end) = tail.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = tail.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            let named = line.strip_prefix("rests on ").and_then(|rest| rest.trim().parse().ok());
            newest = newest.max(named.map(Seq::new));
        }
        newest
    }

    fn event(&mut self, event: &Heard) -> Option<Seq> {
        if let Heard::Kept(seq) = event { Some(*seq) } else { None }
    }

    fn answer(&mut self, _ticket: Ticket, answer: &Result<Seq, Refused>) -> Option<Seq> {
        answer.as_ref().ok().copied()
    }
}

/// The texts that a node heard, joined.
pub(crate) fn texts(events: &[(core::time::Duration, Heard)]) -> Vec<&str> {
    events
        .iter()
        .filter_map(|(_, heard)| if let Heard::Text(text) = heard { Some(&**text) } else { None })
        .collect()
}

/// How often a node heard something.
pub(crate) fn count(events: &[(core::time::Duration, Heard)], wanted: impl Fn(&Heard) -> bool) -> usize {
    events.iter().filter(|(_, heard)| wanted(heard)).count()
}

/// Why a node's connections and dials ended.
pub(crate) fn ends(events: &[(core::time::Duration, Heard)]) -> Vec<CloseReason> {
    let why = |heard: &Heard| if let Heard::Closed(_, why) = heard { Some(*why) } else { None };
    events.iter().filter_map(|(_, heard)| why(heard)).collect()
}

pub(crate) const REFUSED: CloseReason = CloseReason::DialFailed(DialError::Refused);
pub(crate) const TIMED_OUT: CloseReason = CloseReason::DialFailed(DialError::TimedOut);
