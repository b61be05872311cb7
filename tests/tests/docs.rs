//! What the documents tell a reader to type is typed.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use relay_node::journal::SqliteJournal;
use relay_tests::peers::{Lines, PATIENCE, Relay, RelayHome, Runtime};

const CLI: &str = include_str!("../../docs/cli.md");
const README: &str = include_str!("../../README.md");
/// The peer that the examples name.
const PEER: &str = "build-2-1a2b3c4d";

/// The last column of each row of the table of commands.
fn examples() -> Vec<&'static str> {
    let table =
        CLI.split("| command | works | example |").nth(1).expect("docs/cli.md has a table of commands");
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let cell = |row: &'static str| row.trim_end_matches(['|', ' ']).rsplit(" | ").next();
    rows.filter_map(cell).map(|cell| cell.trim_matches('`')).collect()
}

/// A home whose commands a shell finds as `relay`.
struct Reader {
    home: RelayHome,
}

impl Reader {
    fn new(id: &str) -> Self {
        let home = RelayHome::new(env!("CARGO_BIN_EXE_relay-under-test"), id, Runtime::Smol);
        let bin = home.path().join("bin");
        std::fs::create_dir(&bin).expect("a folder can be made");
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_relay-under-test"), bin.join("relay"))
            .expect("a link can be made");
        Self { home }
    }

    fn shell(&self, line: &str) -> Command {
        let path = std::env::var("PATH").unwrap_or_default();
        let mut shell = Command::new("bash");
        shell.args(["-euc", line]).current_dir(self.home.path()).stdin(Stdio::null());
        shell.env("PATH", format!("{}:{path}", self.home.path().join("bin").display()));
        shell.env("HOME", self.home.path()).env("RELAY_HOME", self.home.path());
        shell
    }

    fn types(&self, line: &str) -> Output {
        let output = self.shell(line).output().expect("a shell can be started");
        assert!(output.status.success(), "`{line}`: {output:?}");
        output
    }

    /// Starts what goes on until it is stopped, and waits for a line of it.
    fn starts(&self, line: &str, until: &str) -> Running {
        let (child, lines) = Lines::of(&mut self.shell(&format!("exec {line}")));
        let mut running = Running { child, lines };
        running.says(until);
        running
    }
}

struct Running {
    child: std::process::Child,
    lines: Lines,
}

impl Running {
    fn says(&mut self, text: &str) -> String {
        let found = self.lines.find(PATIENCE, |line| line.contains(text).then(|| line.to_owned()));
        found.unwrap_or_else(|| panic!("{text:?} was never said; there was:\n{}", self.lines.seen()))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn key_of(home: &Path, peer: &str) -> String {
    std::fs::read_to_string(home.join(format!("peers/{peer}.key"))).expect("the peer has a key")
}

#[test]
fn every_example_of_the_table_of_commands_works() {
    let there = RelayHome::new(env!("CARGO_BIN_EXE_relay-under-test"), PEER, Runtime::Mio);
    let peer: Relay = there.serve();
    let here = Reader::new("laptop-0f0f0f0f");
    let mut services = Vec::new();
    for example in examples() {
        let command = example.strip_prefix("relay ").unwrap_or_else(|| panic!("no command: {example}"));
        let journal = here.home.path().join("link.db");
        if command.starts_with("journal ") && !journal.exists() {
            drop(SqliteJournal::open(&journal).expect("the home takes a journal"));
        }
        if command.starts_with("peers forget") || command.starts_with("peers add") {
            std::fs::write(here.home.path().join("key.txt"), key_of(here.home.path(), PEER)).expect("a key");
        }
        let mut line = example
            .replace("192.168.1.20:9847", &peer.address.to_string())
            .replace("0.0.0.0:9847", "127.0.0.1:0")
            .replace("~/.relay", &here.home.path().display().to_string());
        if command.starts_with("join ") {
            let invite = there.ask(&["invite", "--addr", &peer.address.to_string()]);
            line = format!("relay join {}", invite["link"].as_str().expect("an invite has a link"));
        }
        if command.starts_with("serve") {
            services.push(here.starts(&line, "listening on"));
        } else if command.contains("--watch") {
            drop(here.starts(&line, PEER));
        } else {
            here.types(&line);
        }
        if command.starts_with("peers forget") {
            let add = format!("relay peers add {PEER} --key-file key.txt --addr {}", peer.address);
            here.types(&add);
        }
    }
    assert!(examples().len() >= 15, "the table was found: {:?}", examples());
}

#[test]
fn the_readme_shows_a_link_come_up() {
    let here = Reader::new("laptop-0f0f0f0f");
    let blocks: Vec<&str> =
        README.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    let [run, join, lease, test] = blocks[..] else { panic!("the README has four blocks: {blocks:?}") };
    assert_eq!(test.trim(), "cargo test");
    let serve = run.trim().strip_prefix("cargo run --release --bin relay --").expect("it is run by cargo");
    // The one change: a port that nobody else on this machine has.
    let mut service = here.starts(&format!("relay {serve} --listen 127.0.0.1:0"), "listening on");
    let mut link = String::new();
    for line in join.lines().map(|line| line.split(" #").next().unwrap_or(line).trim_end()) {
        if line.starts_with("relay invite") {
            let said = here.types(line);
            let text = String::from_utf8_lossy(&said.stdout).into_owned();
            let found = text.split_whitespace().find(|word| word.starts_with("cctl://"));
            found.expect("the invite prints a link").clone_into(&mut link);
        } else if line.starts_with("relay ") {
            let second = here.home.path().join("second").display().to_string();
            let line = line.replace("/tmp/second", &second).replace("LINK", &link);
            let _second = here.starts(&line, "link up");
            service.says("link up");
        }
    }
    assert!(!link.is_empty(), "the README mints an invite");
    assert_eq!(here.types(lease.trim()).stdout, b"hi\n");
}
