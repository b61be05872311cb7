//! What an idle connection costs: resident bytes of the server's process, over as many connections as the descriptor
//! limit permits. The clients are in a child process. Linux only.
//!
//! `cargo bench -p relay-smol --bench idle_smol`

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a bench prints, and fails where it cannot go on"
)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use relay_core::journal::Seq;
use relay_core::machine::{Input, Machine};
use relay_core::outbox::{Close, Outbox};
use relay_core::time::{Mono, Now};
use relay_smol::{Listener, Options};

/// The most that an idle connection may cost, in bytes, machine and host included.
const MOST: u64 = 1536;
/// Descriptors that the process has beside its connections.
const SPARE: u64 = 64;

struct Echo;

impl Machine for Echo {
    type Command = ();
    type Answer = ();
    type Event = ();

    fn step(&mut self, _now: Now, input: Input<'_, ()>, out: &mut Outbox<(), ()>) {
        if let Input::Bytes { conn, data } = input {
            out.send_free(conn, |bytes| bytes.extend_from_slice(data));
        } else if let Input::Eof { conn } = input {
            out.close(conn, Close::Flush);
        }
    }

    fn deadline(&self) -> Option<Mono> {
        None
    }
}

fn main() {
    let arguments: Vec<_> = std::env::args().collect();
    let limit = relay_smol::raise_descriptor_limit().unwrap_or(1 << 16);
    let connections = limit.min(25_000) - SPARE;
    if let Some(at) = arguments.iter().position(|argument| argument == "connect-to") {
        return connect(arguments[at + 1].parse().unwrap(), connections);
    }
    let listener = Listener::tcp(([127, 0, 0, 1], 0).into()).unwrap();
    let address = listener.tcp_address().unwrap();
    let (handle, _events) = relay_smol::start(Echo, Seq::NONE, vec![listener], Options::default()).unwrap();
    // So that what the first connections bring into being once is not counted.
    (0..100).for_each(|_| drop(visit(address)));

    let before = resident();
    let since = Instant::now();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["connect-to", &address.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut ready = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut ready).unwrap();
    assert_eq!(ready, "connected\n");
    let each = (resident() - before) / connections;
    let rate = connections as f64 / since.elapsed().as_secs_f64();
    println!("{connections} connections, each answered once ({rate:.0}/s): {each} B each while idle");

    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    handle.shutdown(Duration::ZERO);
    assert!(handle.join());
    assert!(each <= MOST, "an idle connection costs at most {MOST} B");
}

/// A connection that was used once, and has nothing on its way.
fn visit(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"x").unwrap();
    stream.read_exact(&mut [0]).unwrap();
    stream
}

/// The child: holds its connections until its input ends.
fn connect(address: SocketAddr, connections: u64) {
    let _held: Vec<_> = (0..connections).map(|_| visit(address)).collect();
    println!("connected");
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

/// Bytes of this process that are in memory.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}
