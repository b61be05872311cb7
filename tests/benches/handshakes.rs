//! Handshakes a second over loopback sockets: `cargo bench -p relay-tests --bench handshakes`.
//!
//! A node listens on each driver in turn; a child process keeps 64 transient handshakes under way, so that its work is
//! not counted in the processor time of the node's process. The drivers take turns, and each figure is a median.
#![expect(clippy::print_stdout, reason = "a bench says what it found")]

use std::collections::VecDeque;
use std::io::Read;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use relay_core::journal::Seq;
use relay_core::peer::{Event, Node, Settings};
use relay_mio::{Events, Handle, Listener, Options};
use relay_tests::fleet::id;
use relay_tests::loads::{RELAY, Shake, median, name, processor_time, record};

/// The clients' order: the port.
const CLIENTS: &str = "RELAY_BENCH_HANDSHAKES";
/// Handshakes of one round.
const COUNT: usize = 20_000;
/// Handshakes before the clock starts.
const WARM: usize = 1000;
/// Handshakes under way: half of what the node grants one address.
const UNDER_WAY: usize = 64;
const ROUNDS: usize = 3;

type Start = fn(Node, Seq, Vec<Listener>, Options) -> std::io::Result<(Handle<Node>, Events<Event>)>;

fn main() {
    if let Ok(port) = std::env::var(CLIENTS) {
        be_clients(port.parse().expect("an order is a port"));
        return;
    }
    // `cargo test --benches` runs it too; it measures only when asked to.
    if !std::env::args().any(|arg| arg == "--bench") {
        return;
    }
    let drivers = [("mio", relay_mio::start as Start), ("smol", relay_smol::start as Start)];
    let mut figures = [(Vec::new(), Vec::new()), (Vec::new(), Vec::new())];
    for _ in 0..ROUNDS {
        for ((_, start), (rates, costs)) in drivers.into_iter().zip(&mut figures) {
            let (rate, cost) = measure(start);
            rates.push(rate);
            costs.push(cost);
        }
    }
    println!("driver   handshakes a second   node's processor time each   (medians of {ROUNDS})");
    for ((name, _), (rates, costs)) in drivers.into_iter().zip(figures) {
        println!("{name:<8} {:>19.0} {:>25.1} us", median(rates), median(costs));
    }
}

/// Handshakes a second, and microseconds of processor time each.
fn measure(start: Start) -> (f64, f64) {
    let mut settings = Settings::new(id(RELAY));
    settings.dial_known = false;
    let node = Node::new(settings, [1; 32], vec![record(&name(0))], None);
    let listener = Listener::tcp(SocketAddr::from(([0, 0, 0, 0], 0))).expect("there is a free port");
    let port = listener.tcp_address().expect("it is a TCP listener").port();
    let (handle, events) =
        start(node, Seq::NONE, vec![listener], Options::default()).expect("a driver starts");
    let before = processor_time();
    let mut child = Command::new(std::env::current_exe().expect("a program knows itself"))
        .env(CLIENTS, port.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a process can be had");
    let mut seconds = String::new();
    let stdout = child.stdout.as_mut().expect("it is piped");
    stdout.read_to_string(&mut seconds).expect("the clients say how long they took");
    let cost = processor_time().checked_sub(before).unwrap_or_default();
    assert!(child.wait().is_ok_and(|status| status.success()), "every handshake succeeds");
    handle.shutdown(Duration::ZERO);
    assert!(handle.join(), "the driver ends in order");
    drop(events);
    let seconds: f64 = seconds.trim().parse().expect("a time is a number");
    (COUNT as f64 / seconds, cost.as_secs_f64() * 1e6 / (COUNT + WARM) as f64)
}

fn be_clients(port: u16) {
    shake(port, WARM);
    let start = Instant::now();
    shake(port, COUNT);
    println!("{}", start.elapsed().as_secs_f64());
}

/// Each visit takes one handshake a step further, and all others come before its next.
fn shake(port: u16, count: usize) {
    let (mut fresh, mut proven) = (VecDeque::new(), VecDeque::new());
    for n in 0..count + UNDER_WAY {
        if n < count {
            // Ports wait for a minute behind each connection; another address of the loopback has others.
            let address = SocketAddr::from(([127, 0, 0, (n % 64) as u8 + 1], port));
            fresh.push_back(Shake::connect(address, name(0)).expect("the node accepts"));
        }
        if (fresh.len() > UNDER_WAY / 2 || n >= count)
            && let Some(mut shake) = fresh.pop_front()
        {
            shake.prove(r#""transient":true,"proto":1,"features":[]"#).expect("the node challenges");
            proven.push_back(shake);
        }
        if (proven.len() > UNDER_WAY / 2 || n >= count)
            && let Some(shake) = proven.pop_front()
        {
            drop(shake.finish().expect("the node accepts the proof"));
        }
    }
    assert!(fresh.is_empty() && proven.is_empty());
}
