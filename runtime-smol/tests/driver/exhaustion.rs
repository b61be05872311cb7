//! No descriptor left: in a child process, whose limit is low.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use relay_smol::Options;
use rustix::process::{Resource, Rlimit, setrlimit};

use crate::machine::Puppet;
use crate::peers::{Client, LONG, start};

const LIMIT: u64 = 40;
const CLIENTS: usize = 80;

/// Serves with few descriptors until its input ends. Run by the test below alone.
#[test]
#[ignore = "the child of another test"]
fn serve_with_few_descriptors() {
    setrlimit(Resource::Nofile, Rlimit { current: Some(LIMIT), maximum: Some(LIMIT) }).unwrap();
    let running = start(Puppet::quiet(), Options::default());
    println!("\n{}", running.address);
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    assert!(running.stop());
}

/// The child with its output, which it must be able to write to.
fn child() -> (Child, BufReader<ChildStdout>, SocketAddr) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "exhaustion::serve_with_few_descriptors", "--ignored", "--nocapture"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let address = output.by_ref().lines().find_map(|line| line.unwrap().parse().ok()).unwrap();
    (child, output, address)
}

/// Hundredths of a second that a process has computed for, where the system says so.
fn computed(child: &Child) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum()
}

#[test]
fn who_waits_while_no_descriptor_is_left_is_served_when_there_is_one() {
    let (mut child, _output, address) = child();
    let mut clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let mut client = Client::tcp(address);
            client.say(&format!("say {number}\n"));
            client
        })
        .collect();
    assert_eq!(clients[0].line(), "0");
    // Nobody leaves, so the last cannot be served; meanwhile the child must not spin.
    let last = clients.last_mut().unwrap();
    let before = computed(&child);
    last.stream.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    assert!(last.stream.peek(&mut [0]).is_err(), "the child had more descriptors than it was given");
    assert!(computed(&child) - before < 15, "it waits without spinning");
    last.stream.set_read_timeout(Some(LONG)).unwrap();
    // All leave but the last few, who were not served yet.
    let mut waiting = clients.split_off(CLIENTS - 10);
    drop(clients);
    for (number, client) in (CLIENTS - 10..).zip(&mut waiting) {
        assert_eq!(client.line(), number.to_string());
    }
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}
