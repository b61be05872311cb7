//! How a service begins and ends.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::running::{PATIENCE, until};
use crate::support::{Home, Ran};

/// What a service says that nobody can link with yet.
const NOBODY: &str = "No peer is known yet. Invite another machine: relay invite\n";

#[test]
fn serve_needs_nothing_and_says_where_it_listens() {
    let home = Home::new();
    let mut child = home.command(&["serve", "--listen", "127.0.0.1:0"]);
    let mut child = child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let mut said = String::new();
    BufReader::new(child.stderr.as_mut().unwrap()).read_line(&mut said).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let words: Vec<_> = line.split_whitespace().collect();
    assert!(
        words[..2] == ["listening", "on"] && words[2].starts_with("127.0.0.1:") && words[3] == "as",
        "{line}"
    );
    assert_eq!(words[4], home.id());
    assert_eq!(said, NOBODY);
}

#[test]
fn a_signal_ends_serve_in_order_and_in_time() {
    for signal in [Signal::TERM, Signal::INT] {
        for runtime in ["smol", "mio"] {
            let home = Home::new();
            let (mut serve, _) = home.serve(&["--runtime", runtime]);
            let since = Instant::now();
            serve.signal(signal);
            let stopped = serve.event("stopped");
            let name = if signal == Signal::TERM { "SIGTERM" } else { "SIGINT" };
            assert_eq!(stopped["reason"], name);
            let ran = serve.ended();
            assert_eq!((ran.code, ran.err.as_str()), (0, NOBODY));
            assert!(since.elapsed() < Duration::from_secs(2), "{:?}", since.elapsed());
            assert!(!home.path("run/link.sock").exists());
        }
    }
}

#[test]
fn a_service_that_knows_a_peer_does_not_ask_for_one() {
    let home = Home::new();
    home.json(&["peers", "add", "a", "--key", &"ab".repeat(32)]);
    let (serve, _) = home.serve(&[]);
    let ran = serve.terminate();
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
}

#[test]
fn a_second_service_in_a_home_is_refused_by_name() {
    let home = Home::new();
    let (serve, addr) = home.serve(&[]);
    for args in [&["serve", "--listen", "127.0.0.1:0"] as &[&str], &["serve", "--runtime", "mio"]] {
        let ran = home.run(args);
        assert_eq!((ran.code, ran.out.as_str()), (1, ""));
        let named =
            format!("relay serve already runs in {} (process {})", home.path("").display(), serve.pid());
        assert!(ran.err.contains(named.trim_end_matches('/')), "{}", ran.err);
    }
    let other = Home::new();
    let ran = other.run(&["serve", "--listen", &addr]);
    assert_eq!(ran.code, 1);
    assert!(
        ran.err.contains(&format!("cannot listen on {addr}")) && ran.err.contains("--listen"),
        "{}",
        ran.err
    );
}

#[test]
fn an_address_that_others_can_reach_is_warned_of() {
    let home = Home::new();
    let mut serve = home.start(&["serve", "--listen", "0.0.0.0:0"]);
    serve.event("listening");
    let ran = serve.terminate();
    assert!(ran.err.contains("warning: 0.0.0.0:0") && ran.err.contains("not encrypted"), "{}", ran.err);
}

#[test]
fn serve_whose_reader_left_ends_quietly() {
    let home = Home::new();
    let (mut serve, addr) = home.serve(&[]);
    serve.stop_reading();
    let until = Instant::now() + PATIENCE;
    // Each is an event to tell, until nobody is there to tell it to.
    while let Ok(mut stranger) = TcpStream::connect(&addr) {
        assert!(Instant::now() < until, "it goes on without a reader");
        let _ = stranger.write_all(b"GET / HTTP/1.1\r\n\r\n");
    }
    let Ran { code, err, .. } = serve.ended();
    assert_eq!((code, err.as_str()), (0, NOBODY));
}

#[test]
fn a_service_outlives_a_full_disk_under_its_output() {
    let home = Home::new();
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut child = home.command(&["serve", "--listen", &format!("127.0.0.1:{port}")]);
    let mut child = child.stdout(full).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let warned = said.next().unwrap();
    assert!(warned.contains("event lines cannot be written") && warned.contains("No space"), "{warned}");
    assert_eq!(said.next().unwrap(), NOBODY.trim_end());
    for _ in 0..20 {
        // The refusal of each is a line that cannot be written.
        let mut stranger = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stranger.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        let _ = std::io::copy(&mut stranger, &mut std::io::sink());
    }
    assert_eq!(home.run(&["ping", "nobody"]).code, 1, "it answers still");
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(said.next(), None, "it is warned of once");
}

#[test]
fn a_signal_that_comes_while_a_service_starts_ends_it_in_order() {
    let mut early = 0;
    for _ in 0..20 {
        let home = Home::new();
        let serve = home.start(&["serve", "--listen", "127.0.0.1:0"]);
        // The first trace of it.
        until("it has begun", || home.path("run/link.lock").exists().then_some(()));
        early += u32::from(!home.path("run/link.sock").exists());
        let ran = serve.terminate();
        assert_eq!(ran.code, 0, "{}", ran.err);
        assert!(ran.out.contains("SIGTERM"), "{}", ran.out);
        assert!(!home.path("run/link.sock").exists());
    }
    assert!(early > 0, "none came before it had started");
}

#[test]
fn a_service_whose_home_was_moved_away_ends_and_touches_nothing_at_its_place() {
    for replaced in [false, true] {
        let home = Home::new();
        let (mut serve, _) = home.serve(&[]);
        let moved = home.dir.path().join("moved");
        std::fs::rename(home.path(""), &moved).unwrap();
        let others = ["identity", "peers/a.key", "run/link.sock"];
        if replaced {
            others.iter().for_each(|name| home.put(name, "another's"));
        }
        assert_eq!(serve.event("stopped")["reason"], "its home was moved away or replaced");
        let ran = serve.ended();
        assert!(ran.code == 1 && ran.err.contains("was moved away or replaced meanwhile"), "{}", ran.err);
        assert!(moved.join("identity").exists());
        assert_eq!(home.path("").exists(), replaced);
        if replaced {
            assert!(others.iter().all(|name| home.read(name) == "another's"));
            assert_eq!(std::fs::read_dir(home.path("")).unwrap().count(), 3);
        }
    }
}

#[test]
fn a_signal_ends_a_service_whose_output_nobody_reads() {
    let home = Home::new();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut child = home.command(&["--json", "serve", "--listen", &format!("127.0.0.1:{port}")]);
    let mut child = child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    BufReader::new(child.stderr.as_mut().unwrap()).read_line(&mut said).unwrap();
    assert_eq!(said, NOBODY);
    home.json(&["peers", "add", "a", "--key", &"ab".repeat(32)]);
    // More lines than a pipe holds, each told to a watcher as well.
    let mut watcher = UnixStream::connect(home.path("run/link.sock")).unwrap();
    watcher.write_all(b"{\"cmd\":\"watch\"}\n").unwrap();
    let told = BufReader::new(watcher.try_clone().unwrap()).lines().map(Result::unwrap);
    let mut failed = told.filter(|line| line.contains("dial_failed"));
    let mut asker = UnixStream::connect(home.path("run/link.sock")).unwrap();
    let mut answers = BufReader::new(asker.try_clone().unwrap()).lines().map(Result::unwrap);
    let connect = "{\"cmd\":\"connect\",\"addr\":\"127.0.0.1:1\",\"peer\":\"a\",\"keep\":true}\n";
    for _ in 0..800 {
        asker.write_all(connect.as_bytes()).unwrap();
        assert!(answers.next().unwrap().contains("unreachable"));
        failed.next().unwrap();
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, Signal::TERM).unwrap();
    let (ended, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || ended.send(child.wait().map(|status| status.code())));
    assert_eq!(told.recv_timeout(PATIENCE).unwrap().unwrap(), Some(0));
}

#[test]
fn flags_stand_above_the_file() {
    let home = Home::new();
    home.put("config.toml", "runtime = \"smol\"\nlisten = \"127.0.0.1:1\"\nlog = \"error\"\n");
    let mut serve = home.start(&["serve", "--listen", "127.0.0.1:0", "--runtime", "mio"]);
    assert_eq!(serve.event("listening")["runtime"], "mio");
    let verbose = Home::new();
    let (serve, _) = verbose.serve(&["-v"]);
    let ran = serve.terminate();
    assert!(ran.err.contains("descriptors: "), "{}", ran.err);
}
