//! B6: a peer that asks for much costs only itself, counted in work and turns, whatever a machine's speed.

use relay_core::action::{ActId, Action};
use relay_core::host::Host;
use relay_core::journal::{Records, Seq};
use relay_core::machine::{ConnId, Endpoint, ListenerId, Refused, Target, Ticket};
use relay_core::peer::{Answer, Event, Node, PeerRecord, Settings};
use relay_core::port::{Ending, Port, Wrote};
use relay_core::secret::Key;
use relay_core::text::PeerId;
use relay_core::time::{Mono, Now, Wall};

/// Frames of one read: each 16 KiB that come to 4 MiB.
const FRAMES: usize = 3;
/// What one of them takes alone: a turn to inflate it, so many to check it, and one to act on it.
const TURNS: usize = 2 + (4 << 20) / Host::<Node>::TURN_WORK;

#[derive(Default)]
struct Wires {
    written: Vec<(ConnId, Vec<u8>)>,
    silenced: Vec<ConnId>,
}

impl Port<Node> for Wires {
    fn append(&mut self, _: Records) {}

    fn write(&mut self, conn: ConnId, bytes: &[u8]) -> Wrote {
        self.written.push((conn, bytes.to_vec()));
        Wrote::Bytes(bytes.len())
    }

    fn finish(&mut self, _: ConnId) {}

    fn reading(&mut self, conn: ConnId, on: bool) {
        self.silenced.retain(|silenced| *silenced != conn);
        if !on {
            self.silenced.push(conn);
        }
    }

    fn accepting(&mut self, _: ListenerId, _: bool) {}

    fn close(&mut self, _: ConnId, _: Ending) {}

    fn dial(&mut self, _: ConnId, _: &Target) {}

    fn act(&mut self, _: ActId, _: Action) {}

    fn event(&mut self, _: Event) {}

    fn answer(&mut self, _: Ticket, _: Result<Answer, Refused>) {}
}

/// A relay with the peers `greedy`, `greedy2` and `victim`.
struct Rig {
    host: Host<Node>,
    wires: Wires,
}

fn id(name: &str) -> PeerId {
    PeerId::parse(name).expect("a valid id")
}

fn key(name: &str) -> Key {
    Key::from_bytes([name.len() as u8; 32])
}

fn now() -> Now {
    Now { mono: Mono::from_nanos(1_000_000), wall: Wall::from_millis(1_700_000_000_000) }
}

fn message(msg_type: &str, from: &str, payload: &str) -> String {
    format!(r#"{{"id":"m","msg_type":"{msg_type}","from_peer":"{from}","timestamp":1,"payload":{payload}}}"#)
}

impl Rig {
    fn new() -> Self {
        let peers = ["greedy", "greedy2", "victim"].map(|name| PeerRecord {
            id: id(name),
            key: Some(key(name)),
            addresses: core::iter::empty().collect(),
        });
        let mut settings = Settings::new(id("relay"));
        settings.dial_known = false;
        let node = Node::new(settings, [1; 32], peers.into(), None);
        Self { host: Host::new(node, Seq::NONE), wires: Wires::default() }
    }

    /// A one-shot of a peer, in binary frames where it says so.
    fn connect(&mut self, name: &str, features: &str) -> ConnId {
        let peer = Endpoint::Tcp(([10, 0, 0, name.len() as u8], 4000).into());
        let conn = self.host.accepted(now(), ListenerId(0), &peer, None).expect("there is room");
        self.settle_all();
        let challenge = self.wires.written.pop().expect("a challenge").1;
        let challenge: serde_json::Value = serde_json::from_slice(&challenge).expect("it is JSON");
        let proof = key(name).prove(challenge["payload"]["nonce"].as_str().expect("a nonce"));
        let hello = format!(r#"{{"proof":"{proof}","proto":1,"transient":true,"features":[{features}]}}"#);
        self.host.received(now(), conn, (message("handshake", name, &hello) + "\n").as_bytes());
        self.settle_all();
        let ack = self.wires.written.pop().expect("an ack").1;
        assert!(String::from_utf8(ack).expect("it is text").contains(r#""status":"ok""#));
        conn
    }

    fn settle(&mut self) -> bool {
        self.host.settle(now(), &mut self.wires)
    }

    fn settle_all(&mut self) {
        while self.settle() {}
    }

    fn gauge(&self, name: &str) -> u64 {
        let mut found = 0;
        self.host.gauges(&mut |gauge, value| {
            if gauge == name {
                found = value;
            }
        });
        found
    }

    /// Asks on a connection, and says whether one settle later the answer has left.
    fn is_answered_in_one_turn(&mut self, conn: ConnId) -> bool {
        self.wires.written.clear();
        let ask = message("lease_list", "victim", r#"{"request_id":"r"}"#) + "\n";
        self.host.received(now(), conn, ask.as_bytes());
        let _ = self.settle();
        self.wires.written.iter().any(|(to, _)| *to == conn)
    }
}

/// As much as one read takes of frames that come to 4 MiB each.
fn greedy_read() -> Vec<u8> {
    let zeros = "0,".repeat((4 << 20) / 2 - 100);
    let text = message("from-the-future", "greedy", &format!("[{zeros}0]"));
    let block = lz4_flex::block::compress(text.as_bytes());
    let mut frame = (block.len() as u32 + 5).to_be_bytes().to_vec();
    frame.push(1);
    frame.extend_from_slice(&(text.len() as u32).to_le_bytes());
    frame.extend_from_slice(&block);
    let read = frame.repeat(FRAMES);
    assert!(read.len() <= Host::<Node>::MAX_READ, "{}", read.len());
    read
}

#[test]
fn b6_frames_of_4_mib_on_32_connections_of_a_peer_hold_up_nobody_else() {
    let mut rig = Rig::new();
    let victim = rig.connect("victim", "");
    let greedy: Vec<_> = (0..32).map(|_| rig.connect("greedy", "\"frame-bin\"")).collect();
    let read = greedy_read();
    let start = rig.gauge("frames");
    for conn in &greedy {
        rig.host.received(now(), *conn, &read);
    }
    assert_eq!(rig.gauge("frames"), start, "nothing is inflated before the others had their part");
    for turn in 0..2 * TURNS as u64 {
        assert!(rig.is_answered_in_one_turn(victim), "in turn {turn}");
        let inflated = rig.gauge("frames") - start - (turn + 1);
        assert!(inflated <= 1 + turn / (TURNS as u64 - 1), "{inflated} frames by turn {turn}");
    }
    assert_eq!((rig.gauge("faults"), rig.wires.silenced.len()), (0, greedy.len()));
}

#[test]
fn b6_a_peer_with_many_connections_gets_what_a_peer_with_one_gets() {
    let mut rig = Rig::new();
    let one = rig.connect("greedy2", "\"frame-bin\"");
    let many: Vec<_> = (0..32).map(|_| rig.connect("greedy", "\"frame-bin\"")).collect();
    let read = greedy_read();
    for conn in &many {
        rig.host.received(now(), *conn, &read);
    }
    rig.host.received(now(), one, &read);
    let mut turns = 0;
    let _ = rig.settle();
    while rig.wires.silenced.contains(&one) {
        assert!(rig.settle());
        turns += 1;
    }
    // The other peer has as many.
    assert!(turns <= 2 * FRAMES * TURNS, "{turns} turns");
}

#[test]
fn b6_a_peer_that_waits_for_its_turn_is_not_read_and_holds_no_more_than_a_read_or_two() {
    let mut rig = Rig::new();
    let conn = rig.connect("greedy", "\"frame-bin\"");
    let read = greedy_read();
    rig.host.received(now(), conn, &read);
    assert!(rig.settle());
    assert_eq!(rig.wires.silenced, [conn]);
    assert!(rig.gauge("waiting_bytes") <= read.len() as u64);
    rig.settle_all();
    assert_eq!(rig.gauge("waiting_bytes"), 0);
}

#[test]
fn b6_more_than_a_read_that_waits_is_worked_off() {
    let mut rig = Rig::new();
    let conn = rig.connect("greedy", "\"frame-bin\"");
    let start = rig.gauge("frames");
    let read = greedy_read();
    for _ in 0..2 {
        rig.host.received(now(), conn, &read);
    }
    assert!(read.len() * 2 > Host::<Node>::MAX_READ);
    rig.settle_all();
    assert_eq!((rig.gauge("frames") - start, rig.gauge("faults")), (2 * FRAMES as u64, 0));
}
