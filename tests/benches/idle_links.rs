//! What an idle link of a whole node costs: `cargo bench -p relay-tests --bench idle_links`.
//!
//! Resident bytes for each known peer with its key, one address, its link and heartbeats both ways, driver and node
//! together; and the processor time of all links while each beats every 30 s. The peers are a child process.
#![expect(clippy::print_stdout, reason = "a bench says what it found")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use relay_core::journal::Seq;
use relay_core::peer::{Event, Node, Settings};
use relay_mio::{Events, Handle, Listener, Options, raise_descriptor_limit};
use relay_tests::fleet::{id, wire};
use relay_tests::loads::{RELAY, Shake, name, processor_time, record, resident};

/// How many links a process holds where its descriptor limit permits it.
const LINKS: usize = 19_000;
/// Descriptors that a process needs beside its links.
const SPARE: usize = 200;
/// The row that a process is to measure.
const ROW: &str = "RELAY_BENCH_ROW";
/// The peers' order: the address and how many.
const PEERS: &str = "RELAY_BENCH_PEERS";
/// How long the beating is watched: one interval.
const WATCHED: Duration = Settings::HEARTBEAT;
/// Handshakes under way.
const UNDER_WAY: usize = 64;

type Start = fn(Node, Seq, Vec<Listener>, Options) -> std::io::Result<(Handle<Node>, Events<Event>)>;

fn main() {
    let limit = raise_descriptor_limit().and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
    if let Ok(order) = std::env::var(PEERS) {
        be_peers(&order);
        return;
    }
    // `cargo test --benches` runs it too; it measures only when asked to.
    if !std::env::args().any(|arg| arg == "--bench") {
        return;
    }
    let links = LINKS.min(limit.saturating_sub(SPARE));
    let row = std::env::var(ROW).ok();
    if row.is_none() {
        println!("driver      links   bytes a link   once each has beaten   of one core while all beat");
    }
    for (name, start) in [("mio", relay_mio::start as Start), ("smol", relay_smol::start as Start)] {
        // A process's memory does not shrink, so that each row has a process of its own.
        match &row {
            Some(row) if row == name => measure(name, start, links),
            Some(_) => {}
            None => {
                let done = own_program().arg("--bench").env(ROW, name).status();
                assert!(done.is_ok_and(|status| status.success()), "{name} can be measured");
            }
        }
    }
}

fn measure(driver: &str, start: Start, links: usize) {
    // What a driver brings into being once is not the links'.
    let (first, _) = serve(start, 1);
    first.shutdown(Duration::ZERO);
    assert!(first.join(), "the driver ends in order");
    let before = resident();
    let (handle, address) = serve(start, links);
    let mut peers = Peers::new(address, links);
    peers.wait();
    let linked = resident();
    peers.ask(b"b");
    // A handshake and a heartbeat of each.
    await_frames(&handle, 2 * links as u64);
    let beaten = resident();
    let worked = processor_time();
    peers.ask(b"s");
    let share = (processor_time() - worked).as_secs_f64() / WATCHED.as_secs_f64();
    let each = |after: usize| after.saturating_sub(before) / links;
    let gauges = handle.gauges(Duration::from_secs(60)).expect("the driver runs");
    let standing = gauges.iter().find(|(name, _)| *name == "links").map(|(_, links)| *links);
    assert_eq!(standing, Some(links as u64), "every link stands still");
    println!("{driver:<8} {links:>8} {:>14} {:>22} {:>24.2} %", each(linked), each(beaten), share * 100.0);
    drop(peers);
    handle.shutdown(Duration::from_secs(10));
    assert!(handle.join(), "the driver ends in order");
}

/// Waits until the node has heard so many frames.
fn await_frames(handle: &Handle<Node>, frames: u64) {
    loop {
        let gauges = handle.gauges(Duration::from_secs(60)).expect("the driver runs");
        if gauges.iter().any(|(name, heard)| *name == "frames" && *heard >= frames) {
            return;
        }
        std::thread::yield_now();
    }
}

/// A node that knows so many peers, and where it listens.
fn serve(start: Start, peers: usize) -> (Handle<Node>, SocketAddr) {
    let mut settings = Settings::new(id(RELAY));
    settings.max_links = peers;
    settings.dial_known = false;
    let node = Node::new(settings, [1; 32], (0..peers).map(|n| record(&name(n))).collect(), None);
    let listener = Listener::tcp(SocketAddr::from(([127, 0, 0, 1], 0))).expect("there is a free port");
    let address = listener.tcp_address().expect("it is a TCP listener");
    let (handle, events) =
        start(node, Seq::NONE, vec![listener], Options::default()).expect("a driver starts");
    std::thread::spawn(move || while events.recv().is_some() {});
    (handle, address)
}

/// A process that holds links.
struct Peers(Child);

impl Peers {
    fn new(address: SocketAddr, count: usize) -> Self {
        let mut program = own_program();
        program.env(PEERS, format!("{address} {count}")).stdin(Stdio::piped()).stdout(Stdio::piped());
        Self(program.spawn().expect("a process can be had"))
    }

    /// Waits for the child's word that it has done what it was told last.
    fn wait(&mut self) {
        let stdout = self.0.stdout.as_mut().expect("it is piped");
        stdout.read_exact(&mut [0]).expect("the peers link");
    }

    fn ask(&mut self, what: &[u8]) {
        self.0.stdin.as_mut().expect("it is piped").write_all(what).expect("the peers live");
        self.wait();
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

fn be_peers(order: &str) {
    let (address, count) = order.split_once(' ').expect("an order is an address and a number");
    let address: SocketAddr = address.parse().expect("an order begins with an address");
    let count: usize = count.parse().expect("an order ends with a number");
    let mut links = Vec::new();
    for first in (0..count).step_by(UNDER_WAY) {
        let shakes = (first..count.min(first + UNDER_WAY)).map(|n| Shake::connect(address, name(n)));
        let mut shakes: Vec<_> = shakes.map(|shake| shake.expect("the node accepts")).collect();
        let extra = r#""proto":1,"version":"0.92.4","features":["frame-bin","headroom","unknown-ok"]"#;
        for shake in &mut shakes {
            shake.prove(extra).expect("the node challenges");
        }
        links.extend(shakes.into_iter().map(|shake| shake.finish().expect("the node accepts the proof")));
    }
    let (mut stdin, mut stdout, mut word) = (std::io::stdin(), std::io::stdout(), [0]);
    loop {
        stdout.write_all(b".").and_then(|()| stdout.flush()).expect("the bench listens");
        match stdin.read(&mut word) {
            Ok(1) if word == *b"b" => beat(&mut links, Duration::ZERO),
            Ok(1) => beat(&mut links, WATCHED),
            Ok(_) | Err(_) => return,
        }
    }
}

/// Lets every link beat once, spread over a time.
fn beat(links: &mut [TcpStream], over: Duration) {
    let (start, count) = (Instant::now(), links.len() as u32);
    for (n, link) in (0..).zip(links) {
        let due = start + over * n / count;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let own = format!(r#"{{"worker_id":"{}"}}"#, name(n as usize));
        link.write_all(&wire::binary(&wire::text("beat", "heartbeat", "peer", &own)))
            .expect("the link stands");
    }
    // The time is what the processor's share is taken of.
    std::thread::sleep((start + over).saturating_duration_since(Instant::now()));
}

fn own_program() -> Command {
    Command::new(std::env::current_exe().expect("a program knows itself"))
}
