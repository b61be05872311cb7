//! What an idle connection costs a driver in memory of the process, the machine's own state left out.
//!
//! The clients are a child process, so that their side is not counted. Prints a table; measures nothing in a test run.
#![allow(clippy::print_stdout, reason = "the table is what a bench is for")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use relay_core::journal::Seq;
use relay_core::machine::{Input, Machine};
use relay_core::outbox::Outbox;
use relay_core::time::{Mono, Now};
use relay_mio::{Events, Handle, Listener, Options, raise_descriptor_limit};

/// How many links a process holds where its descriptor limit permits it.
const LINKS: usize = 19_000;
/// Descriptors that a process needs beside its links.
const SPARE: usize = 200;
/// The clients' order: the address and how many.
const CLIENTS: &str = "RELAY_BENCH_CLIENTS";
const PATIENCE: Duration = Duration::from_secs(60);

type Start = fn(
    Idle,
    Seq,
    Vec<Listener>,
    Options,
) -> std::io::Result<(Handle<Idle>, Events<std::convert::Infallible>)>;

fn main() {
    let limit =
        raise_descriptor_limit().map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    if let Ok(order) = std::env::var(CLIENTS) {
        be_clients(&order);
        return;
    }
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    let links = LINKS.min(limit.saturating_sub(SPARE));
    println!("{:<8} {:>8} {:>16} {:>16}", "driver", "links", "bytes a link", "after one echo");
    for (name, start) in [("mio", relay_mio::start as Start), ("smol", relay_smol::start as Start)] {
        // A process's memory does not shrink, so that each row has a process of its own.
        match std::env::var("RELAY_BENCH_ROW") {
            Ok(row) if row == name => measure(name, start, links),
            Ok(_) => {}
            Err(_) => {
                let row = own_program().env("RELAY_BENCH_ROW", name).output().expect("a process can be had");
                let text = String::from_utf8_lossy(&row.stdout).into_owned();
                print!("{}", text.lines().skip(1).map(|line| format!("{line}\n")).collect::<String>());
            }
        }
    }
}

fn measure(name: &str, start: Start, links: usize) {
    let listener =
        Listener::tcp(SocketAddr::from(([127, 0, 0, 1], 0))).expect("the loopback has a free port");
    let address = listener.tcp_address().expect("it is a TCP listener");
    let (handle, _events) =
        start(Idle, Seq::NONE, vec![listener], Options::default()).expect("a driver starts");
    // Whatever comes with the first connections is not theirs.
    let mut first = Clients::new(address, 200);
    first.wait();
    first.talk();
    let before = resident();
    let mut clients = Clients::new(address, links - 200);
    clients.wait();
    await_links(&handle, links as u64);
    let idle = resident();
    clients.talk();
    let talked = resident();
    let each = |after: usize| after.saturating_sub(before) / (links - 200);
    println!("{name:<8} {links:>8} {:>16} {:>16}", each(idle), each(talked));
    drop((first, clients));
    handle.shutdown(PATIENCE);
    assert!(handle.join(), "the driver ends in order");
}

fn await_links(handle: &Handle<Idle>, links: u64) {
    loop {
        let gauges = handle.gauges(PATIENCE).expect("the driver runs");
        if gauges.iter().any(|(name, value)| *name == "connections" && *value >= links) {
            return;
        }
        std::thread::yield_now();
    }
}

/// The resident memory of this process, in bytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("the system tells of its processes");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("it tells what is resident");
    let kilobytes = line.split_whitespace().nth(1).and_then(|word| word.parse::<usize>().ok());
    kilobytes.expect("it is told in kilobytes") << 10
}

/// A process that holds connections.
struct Clients(Child);

impl Clients {
    fn new(address: SocketAddr, count: usize) -> Self {
        let order = format!("{address} {count}");
        let mut program = own_program();
        program.env(CLIENTS, order).stdin(Stdio::piped()).stdout(Stdio::piped());
        Self(program.spawn().expect("a process can be had"))
    }

    /// Waits for the child's word that it has done what it was told last.
    fn wait(&mut self) {
        let mut word = [0];
        let stdout = self.0.stdout.as_mut().expect("it is piped");
        stdout.read_exact(&mut word).expect("the clients connect");
    }

    /// Lets every connection send a byte and read it back.
    fn talk(&mut self) {
        self.0.stdin.as_mut().expect("it is piped").write_all(b"t").expect("the clients live");
        self.wait();
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

fn be_clients(order: &str) {
    let (address, count) = order.split_once(' ').expect("an order is an address and a number");
    let address: SocketAddr = address.parse().expect("an order begins with an address");
    let count = count.parse().expect("an order ends with a number");
    let mut links: Vec<TcpStream> =
        (0..count).map(|_| TcpStream::connect(address).expect("the driver accepts")).collect();
    let (mut stdin, mut stdout) = (std::io::stdin(), std::io::stdout());
    let mut word = [0];
    loop {
        stdout.write_all(b".").and_then(|()| stdout.flush()).expect("the bench listens");
        if stdin.read(&mut word).unwrap_or(0) == 0 {
            return;
        }
        for link in &mut links {
            link.write_all(b"x").and_then(|()| link.read_exact(&mut word)).expect("the driver echoes");
        }
    }
}

fn own_program() -> Command {
    Command::new(std::env::current_exe().expect("a program knows itself"))
}

/// Echoes, and keeps nothing for a connection.
struct Idle;

impl Machine for Idle {
    type Command = ();
    type Answer = ();
    type Event = std::convert::Infallible;

    fn step(&mut self, _now: Now, input: Input<'_, ()>, out: &mut Outbox<Self::Event, ()>) {
        match input {
            Input::Bytes { conn, data } => out.send_free(conn, |bytes| bytes.extend_from_slice(data)),
            Input::Eof { conn } => out.finish(conn),
            Input::Command { ticket, command: () } => out.answer(ticket, ()),
            Input::Opened { .. }
            | Input::Drained { .. }
            | Input::Closed { .. }
            | Input::Persisted { .. }
            | Input::PersistFailed { .. }
            | Input::Resumed { .. }
            | Input::Acted { .. }
            | Input::Drain { .. }
            | Input::Timer => {}
        }
    }

    fn deadline(&self) -> Option<Mono> {
        None
    }
}
