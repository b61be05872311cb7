//! What a peer waits while another sends frames that come to 4 MiB: `cargo bench -p relay-tests --bench fair`.
//!
//! A node listens on each driver in turn. One peer asks on a lasting link, again and again; another, under one key and
//! from one address, has connections in a child process on each of which it sends such frames as fast as they are taken.
#![expect(clippy::print_stdout, reason = "a bench says what it found")]

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use relay_core::frame::{Framing, encode};
use relay_core::journal::Seq;
use relay_core::peer::{Event, Node, Settings};
use relay_mio::{Events, Handle, Listener, Options};
use relay_tests::fleet::{id, wire};
use relay_tests::loads::{RELAY, Shake, name, record};

/// The greedy peer's order: the port and how many connections.
const GREEDY: &str = "RELAY_BENCH_GREEDY";
/// How long the other peer asks.
const TIME: Duration = Duration::from_secs(8);
const PAUSE: Duration = Duration::from_millis(2);

type Start = fn(Node, Seq, Vec<Listener>, Options) -> std::io::Result<(Handle<Node>, Events<Event>)>;

fn main() {
    if let Ok(order) = std::env::var(GREEDY) {
        let (port, count) = order.split_once(' ').expect("an order is two numbers");
        be_greedy(port.parse().expect("a port"), count.parse().expect("a count"));
        return;
    }
    // `cargo test --benches` runs it too; it measures only when asked to.
    if !std::env::args().any(|arg| arg == "--bench") {
        return;
    }
    println!("driver   greedy connections      asked     median        p99        max");
    for (driver, start) in [("mio", relay_mio::start as Start), ("smol", relay_smol::start as Start)] {
        for count in [0, 1, 32] {
            let mut waits = measure(start, count);
            waits.sort_unstable();
            let at = |part: usize| waits[(waits.len() - 1) * part / 100].as_secs_f64() * 1e3;
            println!(
                "{driver:<8} {count:>18} {:>10} {:>7.2} ms {:>7.2} ms {:>7.2} ms",
                waits.len(),
                at(50),
                at(99),
                at(100)
            );
        }
    }
}

/// What each question waited for its answer.
fn measure(start: Start, count: usize) -> Vec<Duration> {
    let mut settings = Settings::new(id(RELAY));
    settings.dial_known = false;
    let node = Node::new(settings, [1; 32], vec![record(&name(0)), record(&name(1))], None);
    let listener = Listener::tcp(SocketAddr::from(([0, 0, 0, 0], 0))).expect("there is a free port");
    let port = listener.tcp_address().expect("it is a TCP listener").port();
    let (handle, events) =
        start(node, Seq::NONE, vec![listener], Options::default()).expect("a driver starts");
    let mut victim = join(SocketAddr::from(([127, 0, 0, 2], port)), 1, "");
    let mut greedy = Command::new(std::env::current_exe().expect("a program knows itself"))
        .env(GREEDY, format!("{port} {count}"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a process can be had");
    let mut ready = [0];
    greedy.stdout.as_mut().expect("it is piped").read_exact(&mut ready).expect("it says when it has begun");
    let ask = wire::text("q", "lease_list", &name(1), r#"{"request_id":"r"}"#) + "\n";
    let mut waits = Vec::new();
    let began = Instant::now();
    while began.elapsed() < TIME {
        let asked = Instant::now();
        victim.write_all(ask.as_bytes()).expect("the node reads");
        wait_for_answer(&mut victim);
        waits.push(asked.elapsed());
        std::thread::sleep(PAUSE);
    }
    drop(greedy.stdin.take());
    assert!(greedy.wait().is_ok_and(|status| status.success()), "no connection was closed by the node");
    handle.shutdown(Duration::ZERO);
    assert!(handle.join(), "the driver ends in order");
    drop(events);
    waits
}

/// Reads lines until one is an answer.
fn wait_for_answer(stream: &mut TcpStream) {
    let mut heard = Vec::new();
    let mut buffer = [0; 4096];
    while !heard.ends_with(b"\n") || !heard.windows(12).any(|part| part == b"lease_result") {
        let count = stream.read(&mut buffer).expect("the node answers");
        assert!(count > 0, "the node has closed the link");
        heard.extend_from_slice(&buffer[..count]);
    }
}

fn join(address: SocketAddr, peer: usize, extra: &str) -> TcpStream {
    let mut shake = Shake::connect(address, name(peer)).expect("the node accepts");
    shake.prove(extra).expect("the node challenges");
    shake.finish().expect("the node accepts the proof")
}

fn be_greedy(port: u16, count: usize) {
    let zeros = "0,".repeat((4 << 20) / 2 - 200);
    let text = wire::text("g", "from-the-future", &name(0), &format!("[{zeros}0]"));
    let mut frame = Vec::new();
    encode(Framing::Binary, text.as_bytes(), &mut frame).expect("it fits");
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let mut streams: Vec<_> = (0..count)
        .map(|_| {
            let stream = join(address, 0, r#""transient":true,"proto":1,"features":["frame-bin"]"#);
            stream.set_nonblocking(true).expect("a socket can be that");
            (stream, 0)
        })
        .collect();
    println!();
    let over = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let told = std::sync::Arc::clone(&over);
    std::thread::spawn(move || {
        let _ = std::io::stdin().read(&mut [0]);
        told.store(true, std::sync::atomic::Ordering::SeqCst);
    });
    while !over.load(std::sync::atomic::Ordering::SeqCst) {
        let mut idle = true;
        for (stream, sent) in &mut streams {
            match stream.write(&frame[*sent..]) {
                Ok(taken) => {
                    *sent = (*sent + taken) % frame.len();
                    idle = false;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => panic!("the node takes it, however slowly: {error}"),
            }
        }
        if idle {
            std::thread::sleep(PAUSE);
        }
    }
}
