//! What links cost: `cargo bench -p relay-tests --bench link`.
//!
//! Bytes an idle link takes in the core, as resident memory over 19,000 links; handshakes a second, both ends in
//! one thread and without sockets; frames encoded and decoded a second.
#![allow(clippy::print_stdout, reason = "the table is what a bench is for")]

use core::time::Duration;
use std::collections::VecDeque;
use std::hint::black_box;
use std::time::Instant;

use relay_core::action::{ActId, ActOutput, Action};
use relay_core::frame::{Cutter, Framing, encode};
use relay_core::host::Host;
use relay_core::journal::{Records, Seq};
use relay_core::machine::{Address, ConnId, Endpoint, ListenerId, Refused, Target, Ticket};
use relay_core::message::Envelope;
use relay_core::peer::{Answer, Command, Event, Node, PeerRecord, Settings};
use relay_core::port::{Ending, Port, Wrote};
use relay_core::time::{Mono, Now, Wall};
use relay_tests::fleet::{id, wire};

fn main() {
    // `cargo test --benches` runs it too; it measures only when asked to.
    if !std::env::args().any(|arg| arg == "--bench") {
        return;
    }
    memory(19_000);
    handshakes(20_000);
    frames();
}

/// What this process has resident, in bytes, as the system counts it; 0 where it does not say.
fn held() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<usize>().ok()).unwrap_or(0) << 10
}

/// The sockets of one end: what it wrote waits to be carried over.
#[derive(Default)]
struct Wires {
    written: VecDeque<(ConnId, Vec<u8>)>,
    closed: Vec<ConnId>,
    dials: Vec<(ConnId, Target)>,
    acts: Vec<ActId>,
}

impl Port<Node> for Wires {
    fn append(&mut self, _: Records) {}

    fn write(&mut self, conn: ConnId, bytes: &[u8]) -> Wrote {
        self.written.push_back((conn, bytes.to_vec()));
        Wrote::Bytes(bytes.len())
    }

    fn finish(&mut self, conn: ConnId) {
        self.closed.push(conn);
    }

    fn reading(&mut self, _: ConnId, _: bool) {}

    fn accepting(&mut self, _: ListenerId, _: bool) {}

    fn close(&mut self, conn: ConnId, _: Ending) {
        self.closed.push(conn);
    }

    fn dial(&mut self, conn: ConnId, target: &Target) {
        self.dials.push((conn, target.clone()));
    }

    fn act(&mut self, id: ActId, _: Action) {
        self.acts.push(id);
    }

    fn event(&mut self, event: Event) {
        black_box(event);
    }

    fn answer(&mut self, _: Ticket, answer: Result<Answer, Refused>) {
        black_box(answer).ok();
    }
}

fn now(millis: u64) -> Now {
    Now { mono: Mono::from_nanos(millis * 1_000_000), wall: Wall::from_millis(1_700_000_000_000 + millis) }
}

fn settle(host: &mut Host<Node>, wires: &mut Wires, now: Now) {
    while host.settle(now, wires) {}
    for act in std::mem::take(&mut wires.acts) {
        host.acted(now, act, Ok(ActOutput::Done));
    }
}

fn names(links: usize) -> Vec<String> {
    (0..links).map(|n| format!("build-host-{n:05}-0123abcd")).collect()
}

fn record(name: &str) -> PeerRecord {
    PeerRecord { id: id(name), key: Some(wire::key(name, "relay")), addresses: std::iter::empty().collect() }
}

fn relay(names: &[String]) -> Host<Node> {
    let mut settings = Settings::new(id("relay"));
    settings.max_links = names.len();
    let peers = names.iter().map(|name| record(name)).collect();
    Host::new(Node::new(settings, [1; 32], peers, None), Seq::NONE)
}

/// Brings one link up: accept, challenge, handshake, ack. The clock is where the host's is.
fn link_up(host: &mut Host<Node>, wires: &mut Wires, name: &str, n: usize, at: Now) -> ConnId {
    let peer = Endpoint::Tcp(([10, (n >> 14) as u8, (n >> 6) as u8, (n % 64) as u8], 4000).into());
    let conn = host.accepted(at, ListenerId(0), &peer, None).expect("there is room");
    settle(host, wires, at);
    let (_, challenge) = wires.written.pop_front().expect("a challenge");
    let nonce = wire::read(&challenge)[0].payload["nonce"].as_str().expect("a nonce").to_owned();
    let extra =
        r#""proto":1,"version":"0.92.4","listen_port":9847,"features":["frame-bin","headroom","unknown-ok"]"#;
    host.received(at, conn, &wire::handshake(name, "relay", &nonce, extra));
    settle(host, wires, at);
    wires.written.clear();
    conn
}

fn memory(links: usize) {
    let names = names(links);
    let start = held();
    let mut host = relay(&names);
    let known = held();
    let mut wires = Wires::default();
    let conns: Vec<_> = names
        .iter()
        .enumerate()
        .map(|(n, name)| link_up(&mut host, &mut wires, name, n, now(n as u64 / 100)))
        .collect();
    let beat = wire::binary(&wire::text("1", "heartbeat", "x", "{}"));
    wires.written = VecDeque::new();
    let silent = held() - conns.capacity() * size_of::<ConnId>();
    // One turn of the heartbeats, both ways.
    for conn in &conns {
        host.received(now(1000), *conn, &beat);
    }
    for second in 1..=31_u64 {
        host.timer(now(1000 + second * 1000));
        settle(&mut host, &mut wires, now(1000 + second * 1000));
        wires.written = VecDeque::new();
    }
    let beaten = held() - conns.capacity() * size_of::<ConnId>();
    let each = |bytes: usize| bytes as f64 / links as f64;
    println!("idle link, {links} of them: bytes each");
    println!("  a known peer without a link      {:7.0}", each(known - start));
    println!("  the link beyond that             {:7.0}", each(silent - known));
    println!("  beyond that once it has beaten   {:7.0}", each(beaten) - each(silent));
    println!("  in all                           {:7.0}", each(beaten - start));
}

/// Carries what each end wrote to the other until both are still.
fn handshakes(count: usize) {
    let names = names(1);
    let mut settings = Settings::new(id("relay"));
    settings.dial_known = false;
    let host_side = record(&names[0]);
    let mut listener = Host::new(Node::new(settings, [1; 32], vec![host_side], None), Seq::NONE);
    let mut settings = Settings::new(id(&names[0]));
    settings.dial_known = false;
    let address = ([10, 0, 0, 1], 9000).into();
    let mut known = record(&names[0]);
    known.id = id("relay");
    known.addresses = [address].into_iter().collect();
    let mut dialler = Host::new(Node::new(settings, [2; 32], vec![known], None), Seq::NONE);
    let (mut here, mut there) = (Wires::default(), Wires::default());
    let start = Instant::now();
    for n in 0..count {
        let at = now(n as u64);
        dialler.command(at, Command::Ping { peer: id("relay") });
        settle(&mut dialler, &mut here, at);
        let (dial, target) = here.dials.pop().expect("it dials");
        let Address::Tcp(to) = target.address else { unreachable!("it was given a TCP address") };
        let peer = Endpoint::Tcp(([10, 0, 0, 2], 4000).into());
        let conn = listener.accepted(at, ListenerId(0), &peer, None).expect("there is room");
        dialler.dialled(at, dial, &Endpoint::Tcp(to), None);
        loop {
            settle(&mut listener, &mut there, at);
            settle(&mut dialler, &mut here, at);
            if here.written.is_empty() && there.written.is_empty() {
                break;
            }
            for (_, bytes) in here.written.drain(..) {
                listener.received(at, conn, &bytes);
            }
            for (_, bytes) in there.written.drain(..) {
                dialler.received(at, dial, &bytes);
            }
        }
        listener.eof(at, conn);
        dialler.eof(at, dial);
        settle(&mut listener, &mut there, at);
        settle(&mut dialler, &mut here, at);
    }
    let took = start.elapsed();
    println!("handshakes, both ends in one thread: {:.0} a second", count as f64 / took.as_secs_f64());
}

fn frames() {
    println!("frames a second, one thread:        encode     decode   and parse");
    for bytes in [100, 2 << 10, 200 << 10] {
        for framing in [Framing::Ndjson, Framing::Binary] {
            let text = text(bytes);
            let mut frame = Vec::new();
            let encoded = rate(|| {
                frame.clear();
                encode(framing, text.as_bytes(), &mut frame).expect("it fits");
            });
            let mut scratch = Vec::new();
            let mut cutter = Cutter::new(framing);
            let decoded = rate(|| {
                let mut data = &frame[..];
                black_box(cutter.cut(&mut data, &mut scratch).expect("a good frame"));
            });
            let parsed = rate(|| {
                let mut data = &frame[..];
                let text = cutter.cut(&mut data, &mut scratch).expect("a good frame").expect("a whole one");
                black_box(Envelope::parse(text).expect("a message"));
            });
            println!("  {bytes:7} B {framing:?}{:>20.0} {decoded:10.0}  {parsed:10.0}", encoded);
        }
    }
}

/// A heartbeat of about this size, with sessions like those of real peers.
fn text(bytes: usize) -> String {
    let mut sessions = Vec::new();
    let mut n = 0_u64;
    loop {
        let text =
            wire::text("msg_1", "heartbeat", "build", &format!("{{\"sessions\":[{}]}}", sessions.join(",")));
        if text.len() >= bytes.saturating_sub(100) || bytes <= 200 {
            return text;
        }
        for _ in 0..(bytes - text.len()).div_ceil(200).max(1) {
            n += 1;
            let id = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            sessions.push(format!(
                r#"{{"session_id":"{id:016x}","pid":{},"project":"relay","status":"Processing","cost_usd":{}.25,"model":"m"}}"#,
                id % 65_536,
                n % 97
            ));
        }
    }
}

fn rate(mut once: impl FnMut()) -> f64 {
    let start = Instant::now();
    let mut done = 0_u32;
    while start.elapsed() < Duration::from_millis(300) {
        for _ in 0..16 {
            once();
        }
        done += 16;
    }
    f64::from(done) / start.elapsed().as_secs_f64()
}
