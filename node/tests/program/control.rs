//! The control socket, as other commands and hostile programs of the same user meet it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::running::until;
use crate::support::{Home, mode};

struct Client(BufReader<UnixStream>);

impl Client {
    fn of(home: &Home) -> Self {
        Self(BufReader::new(UnixStream::connect(home.path("run/link.sock")).unwrap()))
    }

    fn ask(&mut self, line: &str) -> Value {
        self.0.get_mut().write_all(format!("{line}\n").as_bytes()).unwrap();
        self.next().unwrap()
    }

    fn next(&mut self) -> Option<Value> {
        let mut line = String::new();
        self.0.read_line(&mut line).ok().filter(|taken| *taken > 0)?;
        Some(serde_json::from_str(&line).unwrap())
    }
}

#[test]
fn questions_are_answered_in_order_and_faults_leave_the_connection() {
    let home = Home::new();
    let (serve, addr) = home.serve(&[]);
    assert_eq!((mode(&home.path("run")), mode(&home.path("run/link.sock"))), (0o700, 0o600));
    let mut client = Client::of(&home);
    let answer = client.ask(r#"{"v":1,"id":7,"cmd":"status"}"#);
    let status =
        json!({"id": home.id(), "listen": [addr], "runtime": "smol", "pid": serve.pid(), "command": "serve"});
    assert_eq!(answer, json!({"id": 7, "answer": status}));
    for (line, part) in [
        ("nonsense", "no object"),
        (r#"{"id":1,"cmd":"statu"}"#, "did you mean status?"),
        (r#"{"id":1,"cmd":"ping"}"#, "\"peer\" is missing"),
        (r#"{"id":1,"cmd":"ping","peer":"nobody"}"#, "not known here"),
        (r#"{"id":1,"cmd":"status","extra":1}"#, "no object"),
        (
            r#"{"v":9,"id":1,"cmd":"status"}"#,
            "speaks control protocol 9, and the relay serve that runs here speaks 1",
        ),
    ] {
        let error = &client.ask(line)["error"];
        assert!(error["message"].as_str().unwrap().contains(part), "{line}: {error}");
        assert!(error["code"].is_string() && error["hint"].is_string(), "{line}: {error}");
    }
    assert_eq!(client.ask(r#"{"cmd":"peers"}"#), json!({"id": 0, "answer": []}));
    assert_eq!(client.ask(r#"{"cmd":"pending"}"#), json!({"id": 0, "answer": {}}));
}

#[test]
fn a_watcher_hears_every_event_until_the_end() {
    let home = Home::new();
    let (serve, addr) = home.serve(&[]);
    let mut watchers: Vec<Client> = (0..24).map(|_| Client::of(&home)).collect();
    for watcher in &mut watchers {
        assert_eq!(watcher.ask(r#"{"id":3,"cmd":"watch"}"#), json!({"id": 3, "answer": {}}));
    }
    let other = Home::new();
    other.json(&["join", &home.invite(&addr)]);
    let mut serve = Some(serve);
    for watcher in &mut watchers {
        let mut names = Vec::new();
        while let Some(told) = watcher.next() {
            assert_eq!(told["id"], 3);
            names.push(told["event"]["event"].as_str().unwrap().to_owned());
            if names.last().unwrap() == "link_down"
                && let Some(serve) = serve.take()
            {
                assert_eq!(serve.terminate().code, 0);
            }
        }
        assert_eq!(names, ["paired", "link_up", "link_down", "stopped"]);
    }
}

#[test]
fn a_list_that_is_watched_prints_what_changes() {
    let home = Home::new();
    let (serve, _) = home.serve(&[]);
    home.json(&["peers", "add", "a", "--key", &"ab".repeat(32)]);
    let mut watch = home.start(&["peers", "list", "--watch"]);
    let mut lines = || {
        let line = watch.line();
        (line["id"].as_str().unwrap().to_owned(), line["gone"] == json!(true))
    };
    assert_eq!(lines(), ("a".to_owned(), false));
    home.json(&["peers", "add", "b", "--key", &"ab".repeat(32)]);
    assert_eq!(lines(), ("b".to_owned(), false));
    home.json(&["peers", "forget", "a"]);
    assert_eq!(lines(), ("a".to_owned(), true));
    assert_eq!(serve.terminate().code, 0);
    assert_eq!(watch.ended().code, 3);
    let ran = home.run(&["peers", "list", "--watch"]);
    assert!(ran.code == 1 && ran.err.contains("relay serve is not running here"), "{}", ran.err);
}

#[test]
fn a_peer_that_is_watched_is_shown_as_without_watching() {
    let home = Home::new();
    let (_serve, _) = home.serve(&[]);
    home.json(&["peers", "add", "a", "--key", &"ab".repeat(32)]);
    let mut watch = home.command(&["peers", "show", "a", "--watch"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut shown = |count| lines.by_ref().take(count).collect::<Vec<_>>();
    assert_eq!(shown(3), ["id\ta", "state\tpaired", "link\tno link"]);
    home.json(&["peers", "add", "a", "--key", &"ab".repeat(32), "--addr", "127.0.0.1:1"]);
    assert_eq!(shown(3), ["id\ta", "state\tpaired", "address\t127.0.0.1:1 (never seen there)"]);
    watch.kill().unwrap();
    watch.wait().unwrap();
}

#[test]
fn hostile_clients_cost_themselves_alone() {
    let home = Home::new();
    let (serve, _) = home.serve(&[]);
    let path = home.path("run/link.sock");

    // A line without an end is refused at its bound.
    let mut endless = UnixStream::connect(&path).unwrap();
    let chunk = vec![b'x'; 64 << 10];
    while endless.write_all(&chunk).is_ok() {}
    let mut said = String::new();
    let _ = endless.read_to_string(&mut said);
    assert!(said.is_empty() || said.contains("longer than 1048576 bytes"), "{said}");

    // One that asks and never reads.
    let mut deaf = UnixStream::connect(&path).unwrap();
    deaf.set_nonblocking(true).unwrap();
    while deaf.write_all(b"{\"cmd\":\"nonsense\"}\n").is_ok() {}

    // Watchers that never read, and more idle clients than are let in.
    let mut held: Vec<UnixStream> = (0..80).map(|_| UnixStream::connect(&path).unwrap()).collect();
    for watcher in &mut held[..30] {
        let _ = watcher.write_all(b"{\"cmd\":\"watch\"}\n");
    }
    let refused = until("one too many is told so", || {
        let mut client = Client(BufReader::new(UnixStream::connect(&path).unwrap()));
        client.next().filter(|said| said["error"].is_object())
    });
    assert!(refused["error"]["message"].as_str().unwrap().contains("too many control clients"), "{refused}");
    // A seat of one that was ended meanwhile is taken again.
    until("a command is refused too", || {
        held.extend((0..8).map(|_| UnixStream::connect(&path).unwrap()));
        (home.run(&["peers", "list"]).code == 1).then_some(())
    });

    drop((held, deaf, endless));
    until("there is room again", || (home.run(&["peers", "list"]).code == 0).then_some(()));
    assert_eq!(serve.terminate().code, 0);
}

/// A request whose reply never comes.
fn vain(peer: &str, reply_within: u64) -> String {
    let request = json!({"cmd": "send", "peer": peer, "msg_type": "hive_join_request", "payload": {},
        "reply_within": reply_within});
    request.to_string()
}

#[test]
fn a_client_that_leaves_takes_its_request_back() {
    let home = Home::new();
    let (mut serve, addr) = home.serve(&[]);
    let other = Home::new();
    // One that listens nowhere is sent to over its link.
    let _other = other.start(&["join", &home.invite(&addr), "--stay"]);
    serve.event("link_up");
    let peer = other.id();
    let outcome = || {
        let said = Client::of(&home).ask(&vain(&peer, 1));
        said["error"]["message"].as_str().unwrap_or_default().to_owned()
    };
    let ask = || {
        let mut client = UnixStream::connect(home.path("run/link.sock")).unwrap();
        client.write_all(format!("{}\n", vain(&peer, 3600)).as_bytes()).unwrap();
        client
    };
    let mut held: Vec<UnixStream> = (0..48).map(|_| ask()).collect();
    until("one too many is told so", || {
        let refused = outcome().contains("too many requests wait");
        if !refused {
            // It had the place of one of those.
            held.push(ask());
        }
        refused.then_some(())
    });
    assert_eq!(home.run(&["peers", "list"]).code, 0, "what needs no peer is answered");
    drop(held);
    until("there is room again", || outcome().contains("did not answer in time").then_some(()));
}

#[test]
fn a_client_that_closed_its_writing_half_is_answered() {
    let home = Home::new();
    let (_serve, addr) = home.serve(&[]);
    let other = Home::new();
    let (_other, _) = other.serve(&[]);
    other.json(&["join", &home.invite(&addr)]);
    let mut client = Client::of(&other);
    let ping = format!("{{\"cmd\":\"ping\",\"peer\":\"{}\"}}\n", home.id());
    client.0.get_mut().write_all(ping.as_bytes()).unwrap();
    client.0.get_ref().shutdown(Shutdown::Write).unwrap();
    let said = client.next().unwrap();
    assert!(said["answer"]["seconds"].is_number(), "{said}");
    assert_eq!(client.next(), None);
}

#[test]
fn a_home_too_deep_for_a_socket_is_reached_all_the_same() {
    let home = Home::named(&"deep".repeat(50));
    let runtime_dir = home.dir.path().join("r");
    std::fs::create_dir(&runtime_dir).unwrap();
    let mut serve = home.start_with(&["serve", "--listen", "127.0.0.1:0"], |command| {
        command.env("XDG_RUNTIME_DIR", &runtime_dir);
    });
    let addr = serve.event("listening")["addr"].as_str().unwrap().to_owned();
    assert!(!home.path("run/link.sock").exists());
    let place = home.read("run/link.path");
    assert!(place.starts_with(runtime_dir.to_str().unwrap()), "{place}");
    assert_eq!(mode(std::path::Path::new(&place)), 0o600);
    // A command finds it without being told where.
    let other = Home::new();
    other.json(&["join", &home.invite(&addr)]);
    let listed = home.json(&["peers", "list"]);
    assert_eq!(listed[0]["live"]["paired"], json!(true), "{listed:?}");
    assert_eq!(serve.terminate().code, 0);
    assert!(!home.path("run/link.path").exists() && !std::path::Path::new(&place).exists());
}
