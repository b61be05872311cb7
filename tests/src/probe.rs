//! A machine that uses every part of the contract at a client's word.
//!
//! A client sends lines:
//!
//! | line | what follows |
//! |---|---|
//! | `echo TEXT` | `TEXT`, resting on all that was recorded before |
//! | `free TEXT` | `TEXT`, resting on nothing |
//! | `keep TEXT` | a record, then `kept TEXT`; `refused` while the journal fails |
//! | `note TEXT` | a record, and nothing said of it |
//! | `bulk N` | a record of N bytes, and nothing said of it |
//! | `tell TEXT` | an event, resting on all that was recorded before |
//! | `flood N` | N bytes `.` and the end of the line |
//! | `later MS TEXT` | `TEXT` after so many milliseconds |
//! | `limit HIGH LOW CAP` | how much may be unsent from here on |
//! | `write NAME TEXT`, `remove NAME` | an action on a file; `done`, or why not |
//! | `read NAME LIMIT` | an action; the file's text, or why not |
//! | `dial tcp ADDRESS`, `dial unix PATH` | a connection that says `echo hello`, tells what it hears and finishes |
//! | `stay` | our direction stays open when the peer finishes, until `later` has said its last |
//! | `finish`, `close`, `abort` | our half-close, our close behind what is queued, our close at once |

use std::collections::BTreeMap;
use std::fmt::Write as _;

use relay_core::action::{ActId, ActOutput, Acted, Action, Contents, FilePath};
use relay_core::machine::{
    CloseReason, ConnId, Endpoint, Input, ListenerId, Machine, Opener, Target, Ticket,
};
use relay_core::outbox::{Close, Limits, Outbox};
use relay_core::time::{Mono, Now};

/// The longest line, in bytes.
const MAX_LINE: usize = 64 << 10;
/// With less room than this the probe stops reading a connection, in bytes.
const LITTLE: usize = 4 << 10;

/// What the probe tells. Connections and dials are numbered from 0 in the order in which they began.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(clippy::exhaustive_enums)]
pub enum Seen {
    /// A connection stands; true for one that was dialled.
    Opened(u64, bool),
    /// A dialled connection said this.
    Heard(u64, String),
    /// A client had this told.
    Told(u64, String),
    /// The peer half-closed.
    Eof(u64),
    /// The end.
    Closed(u64, CloseReason),
    /// The journal fails.
    Failing,
    /// The journal works again.
    Resumed,
    /// A shutdown was asked for.
    Draining,
}

/// What the probe is asked by its owner.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(clippy::exhaustive_enums)]
pub enum Ask {
    /// Answers the same.
    Echo(u64),
    /// Records, and answers the same once that is durable.
    Keep(u64),
    /// Never answers.
    Never,
    /// Dials, and answers the number of the dial.
    Dial(Target),
    /// Accepts from its listeners or not; answers 0.
    Accepting(bool),
    /// Aborts every connection; answers how many.
    AbortAll,
    /// Answers who the other end of a connection is: `uid << 32 | pid` of a unix socket, the port of TCP, and all ones
    /// where it is not known.
    Peer(u64),
}

/// The machine.
#[derive(Default)]
pub struct Probe {
    links: BTreeMap<ConnId, Link>,
    begun: u64,
    timers: BTreeMap<(Mono, u64), (ConnId, String)>,
    armed: u64,
    acts: BTreeMap<ActId, ConnId>,
    drained: u64,
    received: u64,
    draining: bool,
}

#[derive(Default)]
struct Link {
    number: u64,
    dialled: bool,
    /// The other end, as [`Ask::Peer`] has it.
    peer: Option<u64>,
    /// The begin of a line whose end has not come.
    tail: Vec<u8>,
    stay: bool,
    eof: bool,
    later: usize,
}

type Out = Outbox<Seen, u64>;

impl Probe {
    /// Listeners that the probe may be given.
    pub const LISTENERS: u16 = 4;

    fn begin(&mut self, conn: ConnId, dialled: bool) -> u64 {
        let number = self.begun;
        self.begun += 1;
        self.links.insert(conn, Link { number, dialled, ..Link::default() });
        number
    }

    fn meet(&mut self, conn: ConnId, peer: &Endpoint) {
        if let Some(link) = self.links.get_mut(&conn) {
            link.peer = Some(number_of(peer));
        }
    }

    fn bytes(&mut self, now: Now, conn: ConnId, data: &[u8], out: &mut Out) {
        self.received += data.len() as u64;
        let Some(link) = self.links.get_mut(&conn) else { return };
        let mut held = std::mem::take(&mut link.tail);
        held.extend_from_slice(data);
        let mut rest = held.as_slice();
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let line = String::from_utf8_lossy(&rest[..end]).into_owned();
            rest = &rest[end + 1..];
            self.line(now, conn, &line, out);
        }
        if rest.len() > MAX_LINE {
            out.close(conn, Close::Abort);
        } else if let Some(link) = self.links.get_mut(&conn) {
            link.tail = rest.to_vec();
        }
        if out.room(conn) < LITTLE {
            out.pause(conn);
        }
    }

    fn line(&mut self, now: Now, conn: ConnId, line: &str, out: &mut Out) {
        let Some(link) = self.links.get_mut(&conn) else { return };
        let number = link.number;
        if link.dialled {
            out.event(Seen::Heard(number, line.to_owned()));
            out.finish(conn);
            return;
        }
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "echo" => say(out, conn, rest),
            "free" => say_free(out, conn, rest),
            "keep" if out.writable() => {
                out.record(|record| record.extend_from_slice(rest.as_bytes()));
                say(out, conn, &format!("kept {rest}"));
            }
            "keep" => say_free(out, conn, "refused"),
            "note" => {
                out.record(|record| record.extend_from_slice(rest.as_bytes()));
            }
            "bulk" => {
                let count = rest.parse().unwrap_or(0);
                out.record(|record| record.resize(record.len() + count, b'.'));
            }
            "tell" => out.event(Seen::Told(number, rest.to_owned())),
            "flood" => {
                let count = rest.parse().unwrap_or(0);
                out.send_free(conn, |bytes| {
                    bytes.resize(count, b'.');
                    bytes.push(b'\n');
                });
            }
            "later" => {
                let (span, text) = rest.split_once(' ').unwrap_or((rest, ""));
                link.later += 1;
                self.armed += 1;
                let due = now.mono.after(std::time::Duration::from_millis(span.parse().unwrap_or(1)));
                self.timers.insert((due, self.armed), (conn, text.to_owned()));
            }
            "limit" => {
                let mut marks = rest.split(' ').filter_map(|mark| mark.parse().ok());
                if let (Some(high), Some(low), Some(cap)) = (marks.next(), marks.next(), marks.next()) {
                    out.limit(conn, Limits { high, low, cap });
                }
            }
            "write" => {
                let (name, text) = rest.split_once(' ').unwrap_or((rest, ""));
                let contents = Contents::public(text.as_bytes().to_vec());
                self.act(conn, name, |path| Action::WriteFile { path, contents }, out);
            }
            "remove" => self.act(conn, rest, |path| Action::RemoveFile { path }, out),
            "read" => {
                let (name, limit) = rest.split_once(' ').unwrap_or((rest, ""));
                let limit = limit.parse().unwrap_or(MAX_LINE);
                self.act(conn, name, |path| Action::ReadFile { path, limit }, out);
            }
            "dial" => match target(rest) {
                Some(target) => {
                    let conn = out.dial(target);
                    self.begin(conn, true);
                }
                None => say_free(out, conn, "bad target"),
            },
            "stay" => link.stay = true,
            "finish" => out.finish(conn),
            "close" => out.close(conn, Close::Flush),
            "abort" => out.close(conn, Close::Abort),
            _ => say_free(out, conn, "what?"),
        }
    }

    fn act(&mut self, conn: ConnId, name: &str, action: impl FnOnce(FilePath) -> Action, out: &mut Out) {
        match FilePath::new(name) {
            Some(path) => {
                let id = out.act(action(path));
                self.acts.insert(id, conn);
            }
            None => say_free(out, conn, "no path"),
        }
    }

    fn command(&mut self, ticket: Ticket, command: Ask, out: &mut Out) {
        match command {
            Ask::Echo(value) => out.answer(ticket, value),
            Ask::Keep(value) => {
                out.record(|record| {
                    let mut text = String::new();
                    let _ = write!(text, "{value}");
                    record.extend_from_slice(text.as_bytes());
                });
                out.answer(ticket, value);
            }
            Ask::Never => {}
            Ask::Dial(target) => {
                let conn = out.dial(target);
                let number = self.begin(conn, true);
                out.answer(ticket, number);
            }
            Ask::Accepting(on) => {
                accepting(out, on);
                out.answer(ticket, 0);
            }
            Ask::AbortAll => {
                for conn in self.links.keys() {
                    out.close(*conn, Close::Abort);
                }
                out.answer(ticket, self.links.len() as u64);
            }
            Ask::Peer(number) => {
                let link = self.links.values().find(|link| link.number == number);
                out.answer(ticket, link.and_then(|link| link.peer).unwrap_or(u64::MAX));
            }
        }
    }

    /// Fires what is due, all at once: a probe has few timers.
    fn fire(&mut self, now: Now, out: &mut Out) {
        while let Some(entry) = self.timers.first_entry()
            && entry.key().0 <= now.mono
        {
            let (conn, text) = entry.remove();
            say_free(out, conn, &text);
            if let Some(link) = self.links.get_mut(&conn) {
                link.later -= 1;
                finish_if_over(link, conn, out);
            }
        }
    }
}

impl Machine for Probe {
    type Command = Ask;
    type Answer = u64;
    type Event = Seen;

    fn step(&mut self, now: Now, input: Input<'_, Ask>, out: &mut Out) {
        match input {
            Input::Opened { conn, by: Opener::Accepted(_), peer, .. } => {
                let number = self.begin(conn, false);
                self.meet(conn, peer);
                out.event_free(Seen::Opened(number, false));
                if self.draining {
                    out.close(conn, Close::Flush);
                }
            }
            Input::Opened { conn, by: Opener::Dialled, peer, .. } => {
                self.meet(conn, peer);
                if let Some(link) = self.links.get(&conn) {
                    out.event_free(Seen::Opened(link.number, true));
                    say_free(out, conn, "echo hello");
                }
            }
            Input::Bytes { conn, data } => self.bytes(now, conn, data, out),
            Input::Eof { conn } => {
                if let Some(link) = self.links.get_mut(&conn) {
                    link.eof = true;
                    out.event_free(Seen::Eof(link.number));
                    finish_if_over(link, conn, out);
                }
            }
            Input::Drained { .. } => self.drained += 1,
            Input::Closed { conn, why, .. } => {
                if let Some(link) = self.links.remove(&conn) {
                    out.event_free(Seen::Closed(link.number, why));
                }
                self.timers.retain(|_, (other, _)| *other != conn);
            }
            Input::Persisted { .. } | Input::Timer => {}
            Input::PersistFailed { .. } => out.event_free(Seen::Failing),
            Input::Resumed { .. } => out.event_free(Seen::Resumed),
            Input::Acted { id, result } => {
                if let Some(conn) = self.acts.remove(&id) {
                    say_free(out, conn, &acted(result));
                }
            }
            Input::Drain { .. } => {
                self.draining = true;
                accepting(out, false);
                out.event_free(Seen::Draining);
                for conn in self.links.keys() {
                    out.close(*conn, Close::Flush);
                }
            }
            Input::Command { ticket, command } => self.command(ticket, command, out),
        }
        self.fire(now, out);
    }

    fn deadline(&self) -> Option<Mono> {
        self.timers.first_key_value().map(|((due, _), _)| *due)
    }

    fn gauges(&self, sink: &mut dyn FnMut(&'static str, u64)) {
        sink("links", self.links.len() as u64);
        sink("drained", self.drained);
        sink("received", self.received);
    }
}

fn finish_if_over(link: &Link, conn: ConnId, out: &mut Out) {
    if link.eof && (!link.stay || link.later == 0) {
        out.finish(conn);
    }
}

fn say(out: &mut Out, conn: ConnId, text: &str) {
    out.send(conn, |bytes| push_line(bytes, text));
}

fn say_free(out: &mut Out, conn: ConnId, text: &str) {
    out.send_free(conn, |bytes| push_line(bytes, text));
}

fn push_line(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend_from_slice(text.as_bytes());
    bytes.push(b'\n');
}

fn acted(result: Acted) -> String {
    match result {
        Ok(ActOutput::Contents(contents)) => String::from_utf8_lossy(contents.as_bytes()).into_owned(),
        Ok(_) => "done".to_owned(),
        Err(error) => error.to_string(),
    }
}

/// An other end as a number: the user and the process of a unix socket, the port of TCP; all ones where it is not known.
fn number_of(peer: &Endpoint) -> u64 {
    match peer {
        Endpoint::Tcp(address) => u64::from(address.port()),
        Endpoint::Unix { uid: Some(uid), pid: Some(pid) } => u64::from(*uid) << 32 | u64::from(*pid),
        Endpoint::Unix { .. } | _ => u64::MAX,
    }
}

fn accepting(out: &mut Out, on: bool) {
    for listener in 0..Probe::LISTENERS {
        out.accepting(ListenerId(listener), on);
    }
}

fn target(text: &str) -> Option<Target> {
    match text.split_once(' ')? {
        ("tcp", address) => address.parse().ok().map(Target::tcp),
        ("unix", path) => Some(Target::unix(path)),
        _ => None,
    }
}
