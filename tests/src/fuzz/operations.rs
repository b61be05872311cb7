//! Whole lives of a node, each decoded from bytes: what peers send, what the network does, what the owner asks.

use core::time::Duration;

use relay_core::message::{Kind, RawValue};
use relay_core::peer::{Command, PeerRecord, Report};

use super::rig::{NAME, PEERS, Rig, invite};
use crate::fleet::{id, wire};

/// Runs the life that the bytes spell; a law that it breaks panics.
pub fn node(data: &[u8]) {
    let mut from = Reader(data);
    let mut rig = Rig::new(from.byte());
    while !from.0.is_empty() {
        operation(&mut rig, &mut from);
    }
    rig.finish();
}

/// Takes what decides from the front of the bytes; behind their end all is zero.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn bytes(&mut self) -> &'a [u8] {
        let count = usize::from(self.byte()).min(self.0.len());
        let (taken, rest) = self.0.split_at(count);
        self.0 = rest;
        taken
    }

    fn peer(&mut self) -> &'static str {
        PEERS[usize::from(self.byte()) % PEERS.len()]
    }
}

fn operation(rig: &mut Rig, from: &mut Reader<'_>) {
    match from.byte() % 20 {
        0 | 1 => {
            rig.accepted(from.byte() % 4);
        }
        2 => {
            rig.dial_succeeds();
        }
        3 => rig.dial_fails(),
        4 => {
            let (number, bytes) = (from.byte(), from.bytes());
            on(rig, number, |rig, conn| rig.receive(conn, bytes));
        }
        5..=7 => prove(rig, from),
        8 | 9 => say(rig, from),
        10 => answer(rig, from),
        11 => {
            let number = from.byte();
            on(rig, number, Rig::eof);
        }
        12 => {
            let number = from.byte();
            on(rig, number, Rig::reset);
        }
        13 | 14 => {
            let millis = [1, 100, 1500, 10_001, 31_000, 91_000, 301_000][usize::from(from.byte()) % 7];
            rig.pass(Duration::from_millis(millis));
        }
        15 | 16 => command(rig, from),
        17 => rig.acted(!from.byte().is_multiple_of(4)),
        18 => rig.block(from.byte().is_multiple_of(2)),
        _ => {
            if from.byte() == 255 {
                rig.drain();
            }
        }
    }
}

fn on(rig: &mut Rig, number: u8, act: impl FnOnce(&mut Rig, relay_core::machine::ConnId)) {
    if let Some(conn) = rig.pick(number) {
        act(rig, conn);
    }
}

/// A handshake that is right, or almost.
fn prove(rig: &mut Rig, from: &mut Reader<'_>) {
    let Some(conn) = rig.pick(from.byte()) else { return };
    let (peer, form) = (from.peer(), from.byte());
    let nonce = rig.nonce(conn).unwrap_or_default();
    let extra = match form % 6 {
        0 => "",
        1 => r#","proto":1,"features":["frame-bin","headroom","unknown-ok"],"listen_port":9000"#,
        2 => r#","proto":1,"transient":true"#,
        3 => r#","proto":0,"features":["frame-bin"],"transient":true"#,
        4 => r#","transient":true"#,
        _ => r#","proto":1,"features":["unknown-ok"]"#,
    };
    let (claimed, key) = match form % 7 {
        0 => ("joiner", invite()),
        1 => (peer, invite()),
        _ => (peer, wire::key(peer, NAME)),
    };
    let payload = format!(r#"{{"proof":"{}"{extra}}}"#, key.prove(&nonce));
    let line = wire::text("1", "handshake", claimed, &payload) + "\n";
    let cut = if form >= 250 { line.len() / 2 } else { line.len() };
    rig.receive(conn, &line.as_bytes()[..cut]);
}

/// A message, in either framing.
fn say(rig: &mut Rig, from: &mut Reader<'_>) {
    let Some(conn) = rig.pick(from.byte()) else { return };
    let (kind, form) = (from.byte(), from.byte());
    let msg_type = Kind::ALL.get(usize::from(kind)).map_or("from_the_future", |kind| kind.as_str());
    let payload = match form % 4 {
        0 => "{}",
        1 => r#"{"request_id":"r","sessions":[],"listen_addrs":["10.0.0.7:1"],"headroom":{}}"#,
        2 => "null",
        _ => r#"{"capabilities":{"claudectl_version":"1","os":"x","arch":"y","tools":{}}}"#,
    };
    let text = wire::text(&format!("{}", form / 16), msg_type, "anybody", payload);
    let many = if form == 255 { 2000 } else { 1 };
    let frame = if form & 4 == 0 { (text + "\n").into_bytes() } else { wire::binary(&text) };
    rig.receive(conn, &frame.repeat(many));
}

/// A listener's part: a challenge, or an ack.
fn answer(rig: &mut Rig, from: &mut Reader<'_>) {
    let Some(conn) = rig.pick(from.byte()) else { return };
    let (peer, form) = (from.peer(), from.byte());
    let line = match form % 6 {
        0 | 1 => wire::challenge("0123"),
        2 => wire::ack(peer, r#"{"status":"denied"}"#),
        3 => wire::ack(peer, r#"{"status":"ok"}"#),
        _ => wire::ack(peer, r#"{"status":"ok","proto":1,"features":["frame-bin","headroom","unknown-ok"]}"#),
    };
    rig.receive(conn, &line);
}

fn command(rig: &mut Rig, from: &mut Reader<'_>) {
    let (peer, form) = (from.peer(), from.byte());
    let payload = || RawValue::from_string("{}".to_owned()).expect("an object");
    let record = |key| PeerRecord {
        id: id(peer),
        key,
        addresses: [([10, 0, 0, 5], 9000).into()].into_iter().collect(),
    };
    let key = || wire::key(peer, NAME);
    let reply_within = form.is_multiple_of(2).then(|| Duration::from_secs(3));
    rig.command(match form % 12 {
        0 => Command::Add { record: record(Some(key())), store: form >= 128 },
        1 => Command::Reload { peers: vec![record(Some(key()))], pending: (form >= 128).then(invite) },
        2 => Command::Forget { peer: id(peer) },
        3 => Command::Pend { key: (form >= 64).then(invite) },
        4 | 5 => {
            let (address, invite) = (([10, 0, 0, form % 4], 9000).into(), (form >= 128).then(invite));
            let peer = (form < 200).then(|| id(peer));
            Command::Connect { address, peer, invite, keep: form.is_multiple_of(2) }
        }
        6 | 7 => {
            let kind = if form >= 128 { Kind::LeaseList } else { Kind::DelegateTask };
            Command::Send { peer: id(peer), kind, payload: payload(), reply_within }
        }
        8 => {
            let Some(conn) = rig.pick(form / 12) else { return };
            Command::Reply { conn, kind: Kind::SessionReceived, payload: payload() }
        }
        9 => Command::Ping { peer: id(peer) },
        10 => Command::Report(Report { sessions: Some(payload()), ..Report::default() }),
        _ => Command::Peers,
    });
}
