//! A machine whose peers and owner say what it does, line by line.

use std::collections::BTreeMap;
use std::time::Duration;

use relay_core::action::{Acted, Action, FilePath};
use relay_core::machine::{
    CloseReason, ConnId, Endpoint, Input, ListenerId, Machine, Opener, Target, Ticket,
};
use relay_core::outbox::{Close, Outbox};
use relay_core::time::{Mono, Now};

#[derive(Debug)]
pub(crate) enum Ask {
    Echo(u64),
    Dial(Target),
    Send(ConnId, &'static [u8]),
    Finish(ConnId),
    Close(ConnId, Close),
    /// Answers when the record is durable.
    Keep(String),
    Accept(bool),
    Events(u64),
    /// Answers after this long.
    After(Duration),
    /// Removes a file, which tells an event.
    Act,
    /// Is never answered.
    Never,
    Panic,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Done,
    Number(u64),
    Conn(ConnId),
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    Opened(ConnId, Opener, Endpoint),
    Bytes(ConnId, Vec<u8>),
    Eof(ConnId),
    Closed(ConnId, CloseReason, usize),
    Number(u64),
    Acted(Acted),
    Failed,
    Resumed,
    Draining,
}

#[derive(Default)]
struct Peer {
    dialled: bool,
    waits: bool,
    tail: Vec<u8>,
}

#[derive(Default)]
pub(crate) struct Puppet {
    peers: BTreeMap<ConnId, Peer>,
    alarm: Option<(Mono, Ticket)>,
    /// Tells what happens to connections. Off where nobody would read that much.
    quiet: bool,
}

type Out = Outbox<Heard, Answer>;

impl Puppet {
    /// One that tells nothing of connections.
    pub(crate) fn quiet() -> Self {
        Self { quiet: true, ..Self::default() }
    }

    fn tell(&self, out: &mut Out, heard: Heard) {
        if !self.quiet {
            out.event_free(heard);
        }
    }

    /// Carries out whole lines while there is room for their answers.
    fn read_lines(&mut self, conn: ConnId, out: &mut Out) {
        let Some(peer) = self.peers.get_mut(&conn) else { return };
        let tail = std::mem::take(&mut peer.tail);
        let mut rest = &tail[..];
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            if out.room(conn) < 64 << 10 {
                out.pause(conn);
                break;
            }
            peer.waits |= line(conn, &rest[..end], out);
            rest = &rest[end + 1..];
        }
        peer.tail = rest.to_vec();
    }

    fn command(&mut self, now: Now, ticket: Ticket, command: Ask, out: &mut Out) {
        let answer = match command {
            Ask::Echo(number) => Answer::Number(number),
            Ask::Dial(target) => {
                let conn = out.dial(target);
                self.peers.insert(conn, Peer { dialled: true, ..Peer::default() });
                Answer::Conn(conn)
            }
            Ask::Send(conn, bytes) => {
                out.send(conn, |into| into.extend_from_slice(bytes));
                Answer::Done
            }
            Ask::Finish(conn) => {
                out.finish(conn);
                Answer::Done
            }
            Ask::Close(conn, how) => {
                out.close(conn, how);
                Answer::Done
            }
            Ask::Keep(text) => {
                Answer::Number(out.record(|into| into.extend_from_slice(text.as_bytes())).number())
            }
            Ask::Accept(on) => {
                out.accepting(ListenerId(0), on);
                Answer::Done
            }
            Ask::Events(count) => {
                (0..count).for_each(|number| out.event(Heard::Number(number)));
                Answer::Done
            }
            Ask::After(span) => {
                self.alarm = Some((now.mono.after(span), ticket));
                return;
            }
            Ask::Act => {
                let path = FilePath::new("a/file").expect("it leads nowhere else");
                out.act(Action::RemoveFile { path });
                Answer::Done
            }
            Ask::Never => return,
            Ask::Panic => panic!("asked to"),
        };
        out.answer(ticket, answer);
    }
}

/// What a peer may ask, a line each. True where it is to be told when it was drained.
fn line(conn: ConnId, line: &[u8], out: &mut Out) -> bool {
    let line = std::str::from_utf8(line).expect("the tests' peers send text");
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    let say = |into: &mut Vec<u8>| {
        into.extend_from_slice(rest.as_bytes());
        into.push(b'\n');
    };
    match word {
        "say" => out.send_free(conn, say),
        "keep" => {
            out.record(|into| into.extend_from_slice(rest.as_bytes()));
            out.send(conn, say);
        }
        "who" => {
            let who = format!("{}.{}\n", conn.slot(), conn.generation());
            out.send_free(conn, |into| into.extend_from_slice(who.as_bytes()));
        }
        "pause" => {
            out.pause(conn);
            return true;
        }
        "finish" => out.finish(conn),
        "flush" => out.close(conn, Close::Flush),
        "abort" => out.close(conn, Close::Abort),
        "panic" => panic!("asked to"),
        other => panic!("no peer says {other}"),
    }
    false
}

impl Machine for Puppet {
    type Command = Ask;
    type Answer = Answer;
    type Event = Heard;

    fn step(&mut self, now: Now, input: Input<'_, Ask>, out: &mut Out) {
        match input {
            Input::Opened { conn, by, peer, .. } => {
                self.tell(out, Heard::Opened(conn, by, *peer));
                self.peers.entry(conn).or_default();
            }
            Input::Bytes { conn, data } => {
                let Some(peer) = self.peers.get_mut(&conn) else { return };
                if peer.dialled {
                    self.tell(out, Heard::Bytes(conn, data.to_vec()));
                } else {
                    peer.tail.extend_from_slice(data);
                    self.read_lines(conn, out);
                }
            }
            Input::Eof { conn } => {
                self.tell(out, Heard::Eof(conn));
                if self.peers.get(&conn).is_some_and(|peer| !peer.dialled) {
                    out.send(conn, |into| into.extend_from_slice(b"end\n"));
                    out.finish(conn);
                }
            }
            Input::Drained { conn } => {
                let Some(peer) = self.peers.get_mut(&conn) else { return };
                if std::mem::take(&mut peer.waits) {
                    out.send_free(conn, |into| into.extend_from_slice(b"drained\n"));
                }
                self.read_lines(conn, out);
            }
            Input::Closed { conn, why, unsent } => {
                self.peers.remove(&conn);
                self.tell(out, Heard::Closed(conn, why, unsent));
            }
            Input::Persisted { .. } => {}
            Input::PersistFailed { .. } => self.tell(out, Heard::Failed),
            Input::Resumed { .. } => self.tell(out, Heard::Resumed),
            Input::Acted { result, .. } => self.tell(out, Heard::Acted(result)),
            Input::Drain { .. } => {
                self.tell(out, Heard::Draining);
                out.accepting(ListenerId(0), false);
                for conn in self.peers.keys() {
                    out.close(*conn, Close::Flush);
                }
            }
            Input::Timer => {}
            Input::Command { ticket, command } => self.command(now, ticket, command, out),
        }
        if let Some((due, ticket)) = self.alarm
            && due <= now.mono
        {
            self.alarm = None;
            out.answer(ticket, Answer::Done);
        }
    }

    fn deadline(&self) -> Option<Mono> {
        self.alarm.map(|(due, _)| due)
    }

    fn idle(&self) -> bool {
        self.alarm.is_none()
    }
}
