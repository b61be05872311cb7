//! Sessions: who is alive on this machine, with the real program.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::running::{Running, until};
use crate::support::{Home, mode};

/// A peer that is dialled, lets everybody in and listens.
pub(crate) struct Ear(TcpListener);

/// A link of it.
pub(crate) struct Heard(BufReader<TcpStream>);

impl Ear {
    /// Makes it known to a home.
    pub(crate) fn of(home: &Home) -> Self {
        let ear = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = ear.local_addr().unwrap().to_string();
        home.json(&["peers", "add", "ear", "--key", &"ab".repeat(32), "--addr", &addr]);
        Self(ear)
    }

    pub(crate) fn link(&self) -> Heard {
        let mut heard = Heard(BufReader::new(self.0.accept().unwrap().0));
        heard.say("challenge", "", &json!({"nonce": "ab".repeat(32)}));
        assert_eq!(heard.next("handshake")["proto"], json!(1));
        heard.say("handshake_ack", "ear", &json!({"status": "ok", "proto": 1, "features": ["unknown-ok"]}));
        heard
    }
}

impl Heard {
    fn say(&mut self, msg_type: &str, from: &str, payload: &Value) {
        let message =
            json!({"id": "1", "msg_type": msg_type, "from_peer": from, "timestamp": 1, "payload": payload});
        self.0.get_mut().write_all(format!("{message}\n").as_bytes()).unwrap();
    }

    /// The payload of the next message of a type.
    fn next(&mut self, msg_type: &str) -> Value {
        loop {
            let mut line = String::new();
            assert!(self.0.read_line(&mut line).unwrap() > 0, "the link ended before a {msg_type} came");
            let mut message: Value = serde_json::from_str(&line).unwrap();
            if message["msg_type"] == msg_type {
                return message["payload"].take();
            }
        }
    }

    /// The names of the sessions that the next heartbeat tells of.
    pub(crate) fn sessions(&mut self) -> Vec<String> {
        let beat = self.next("heartbeat");
        let sessions = beat["sessions"].as_array().cloned().unwrap_or_default();
        sessions.iter().map(|session| session["session_id"].as_str().unwrap().to_owned()).collect()
    }
}

/// A service whose heartbeats are in turn every five minutes.
pub(crate) fn slow(home: &Home) -> Running {
    let mut serve = home.start(&["serve", "--listen", "127.0.0.1:0", "--heartbeat", "300"]);
    serve.event("listening");
    serve
}

/// A process that ends when it is told to.
pub(crate) struct Process(Child);

impl Process {
    pub(crate) fn start() -> Self {
        Self(Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap())
    }

    pub(crate) fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_session_without_pid_is_of_the_process_that_ran_the_command() {
    let home = Home::new();
    let started = home.json(&["session", "start", "a"]);
    let pid = std::process::id();
    assert_eq!((&started[0]["pid"], &started[0]["alive"]), (&json!(pid), &json!(true)));
    assert_eq!(mode(&home.path("sessions")), 0o700);
    for entry in std::fs::read_dir(home.path("sessions")).unwrap() {
        assert_eq!(mode(&entry.unwrap().path()), 0o600);
    }
    let listed = home.run(&["session", "list"]);
    assert!(listed.out.starts_with(&format!("a\t{pid}\talive\t")), "{}", listed.out);
}

#[test]
fn names_are_unique_while_they_live() {
    let home = Home::new();
    let first = Process::start();
    home.json(&["session", "start", "a", "--pid", &first.pid()]);
    let second = Process::start();
    let refused = home.run(&["session", "start", "a", "--pid", &second.pid()]);
    assert!(
        refused.code == 1 && refused.err.contains(&format!("process {} has it", first.pid())),
        "{}",
        refused.err
    );
    drop(first);
    assert_eq!(home.json(&["session", "list"])[0]["alive"], json!(false));
    home.json(&["session", "start", "a", "--pid", &second.pid()]);
    let listed = home.json(&["session", "list"]);
    assert_eq!((listed.len(), listed[0]["alive"] == json!(true)), (1, true), "{listed:?}");
    home.json(&["session", "end", "a"]);
    assert_eq!(home.json(&["session", "list"]), Vec::<Value>::new());
    let again = home.run(&["session", "end", "a"]);
    assert!(again.code == 1 && again.err.contains("no session \"a\""), "{}", again.err);
    assert_eq!(home.run(&["session", "start", "a@b"]).code, 2);
}

#[test]
fn sessions_are_told_again_before_the_first_heartbeat_of_a_serve_that_was_restarted() {
    let home = Home::new();
    let ear = Ear::of(&home);
    let process = Process::start();
    let started = home.run(&["session", "start", "early", "--pid", &process.pid()]);
    assert!(started.err.contains("relay serve is not running here"), "{}", started.err);
    for _ in 0..2 {
        let serve = slow(&home);
        let mut link = ear.link();
        assert_eq!(link.sessions(), ["early"], "the first beat of all");
        serve.kill();
    }
}

#[test]
fn the_start_and_the_end_of_a_session_are_told_at_once() {
    let home = Home::new();
    let ear = Ear::of(&home);
    let _serve = slow(&home);
    let mut link = ear.link();
    assert_eq!(link.sessions(), Vec::<String>::new());
    // No heartbeat of these is in turn for minutes.
    let process = Process::start();
    home.json(&["session", "start", "a", "--pid", &process.pid()]);
    assert_eq!(link.sessions(), ["a"]);
    home.json(&["session", "start", "b"]);
    assert_eq!(link.sessions(), ["a", "b"]);
    drop(process);
    assert_eq!(link.sessions(), ["b"]);
    until("its file is gone", || (home.json(&["session", "list"]).len() == 1).then_some(()));
    home.json(&["session", "end", "b"]);
    assert_eq!(link.sessions(), Vec::<String>::new());
}

#[test]
fn a_session_ends_with_its_process_though_its_number_is_used_again() {
    let home = Home::new();
    let ear = Ear::of(&home);
    let _serve = slow(&home);
    let mut link = ear.link();
    link.sessions();
    home.json(&["session", "start", "a"]);
    assert_eq!(link.sessions(), ["a"]);
    // The same number, of a process that started at another time.
    let folder = std::fs::read_dir(home.path("sessions")).unwrap();
    let file = folder.map(|entry| entry.unwrap().path()).find(|path| path.extension().is_some()).unwrap();
    let mut session: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    session["process_start"] = json!("1 another process");
    std::fs::write(file.with_extension("tmp"), session.to_string()).unwrap();
    std::fs::rename(file.with_extension("tmp"), &file).unwrap();
    assert_eq!(link.sessions(), Vec::<String>::new());
    until("its file is gone", || (!file.exists()).then_some(()));
}
