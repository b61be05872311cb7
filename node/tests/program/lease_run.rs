//! `relay lease run`: a command that runs while a lease is held. Each fault that users of other such programs met is a
//! test here, named after it.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::{Value, json};

use crate::running::{PATIENCE, until};
use crate::support::{Home, Ran};

/// A command under a lease.
struct Guarded {
    child: Child,
    /// Its command's stdin, where it waits for one.
    stdin: Option<ChildStdin>,
    out: Receiver<String>,
    err: Receiver<String>,
}

impl Home {
    fn guard(&self, args: &[&str]) -> Guarded {
        let mut command = self.command(&[&["lease", "run"], args].concat());
        command.env("PATH", std::env::var_os("PATH").unwrap());
        let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = pipes.spawn().unwrap();
        let (stdin, out, err) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        Guarded { child, stdin, out: lines(out.unwrap()), err: lines(err.unwrap()) }
    }

    /// Runs a command under a lease to its end.
    fn guarded(&self, args: &[&str]) -> Ran {
        let mut guarded = self.guard(args);
        drop(guarded.stdin.take());
        let code = guarded.code();
        let text = |lines: &Receiver<String>| lines.iter().collect::<Vec<_>>().join("\n");
        Ran { code, out: text(&guarded.out), err: text(&guarded.err) }
    }

    /// Asks the service over its control socket.
    fn control(&self, request: &Value) -> Value {
        let mut stream = UnixStream::connect(self.path("run/link.sock")).unwrap();
        stream.write_all(format!("{request}\n").as_bytes()).unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    fn leases(&self) -> Vec<Value> {
        self.control(&json!({"cmd": "lease_list"}))["answer"]["leases"].as_array().unwrap().clone()
    }

    /// Takes the only lease away from whoever holds it.
    fn take_away(&self) {
        let lease = self.leases().remove(0);
        let session = lease["owner"].as_str().unwrap().split('@').next().unwrap();
        let request = json!({"cmd": "lease_release", "lease_id": lease["id"], "session": session});
        assert!(self.control(&request)["answer"].is_object());
    }
}

impl Guarded {
    /// The next line of its output.
    fn line(&self) -> String {
        self.out.recv_timeout(PATIENCE).unwrap()
    }

    /// The numbers of processes that its command says on one line.
    fn pids(&self) -> Vec<Pid> {
        self.line().split(' ').map(|pid| Pid::from_raw(pid.parse().unwrap()).unwrap()).collect()
    }

    /// What it says on stderr next.
    fn said(&self) -> String {
        self.err.recv_timeout(PATIENCE).unwrap()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    fn code(&mut self) -> i32 {
        use std::os::unix::process::ExitStatusExt;
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code().unwrap_or_else(|| -status.signal().unwrap());
            }
            assert!(Instant::now() < until, "it does not end");
            std::thread::yield_now();
        }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn lines(from: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    lines
}

fn is_gone(pid: Pid) -> bool {
    test_kill_process(pid).is_err() || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.contains(") Z ")
    }
}

fn all_end(pids: &[Pid]) {
    until("all of the command ends", || pids.iter().all(|pid| is_gone(*pid)).then_some(()));
}

#[test]
fn a_command_runs_under_a_lease_on_a_fresh_home_next_to_serve() {
    let home = Home::new();
    let refused = home.guarded(&["res:demo", "--", "echo", "hi"]);
    assert!(
        refused.code == 125 && refused.err.contains("relay serve is not running here"),
        "{}",
        refused.err
    );
    let (_serve, _) = home.serve(&[]);
    let ran = home.guarded(&["res:demo", "--", "echo", "hi"]);
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (0, "hi", ""));
    assert_eq!((home.leases(), home.json(&["session", "list"])), (vec![], vec![]));
}

#[test]
fn the_commands_code_is_passed_through_and_a_signals_is_128_and_its_number() {
    let home = Home::new();
    let (_serve, _) = home.serve(&[]);
    for (script, code) in
        [("exit 0", 0), ("exit 7", 7), ("exit 125", 125), ("kill -9 $$", 137), ("kill -TERM $$", 143)]
    {
        assert_eq!(home.guarded(&["res:demo", "--", "sh", "-c", script]).code, code, "{script}");
        assert_eq!(home.leases(), Vec::<Value>::new(), "{script}");
    }
}

#[test]
fn a_command_that_is_not_there_is_127_and_its_lease_is_released() {
    let home = Home::new();
    let (_serve, _) = home.serve(&[]);
    let ran = home.guarded(&["res:demo", "--", "no-such-command"]);
    assert!(ran.code == 127 && ran.err.contains("no-such-command"), "{}", ran.err);
    let ran = home.guarded(&["res:demo", "--", home.dir.path().to_str().unwrap()]);
    assert_eq!(ran.code, 126, "{}", ran.err);
    assert_eq!(home.leases(), Vec::<Value>::new());
}

#[test]
fn the_command_sees_its_lease_and_the_stdin_that_was_given() {
    let home = Home::new();
    let (_serve, _) = home.serve(&[]);
    let script = r#"echo "$RELAY_LEASE_ID $RELAY_FENCING_TOKEN"; cat"#;
    let mut guarded = home.guard(&["res:demo", "--reason", "a test", "--", "sh", "-c", script]);
    let lease = home.leases_when_held();
    let papers = format!("{} {}", lease["id"].as_str().unwrap(), lease["fencing_token"]);
    assert_eq!(guarded.line(), papers);
    assert_eq!(
        (&lease["resource"], &lease["reason"], &lease["ttl"]),
        (&json!("res:demo"), &json!("a test"), &json!(300))
    );
    let sessions = home.json(&["session", "list"]);
    assert_eq!(sessions.len(), 1, "a session of its own");
    assert!(
        lease["owner"].as_str().unwrap().starts_with(&format!("{}@", sessions[0]["name"].as_str().unwrap()))
    );
    let mut stdin = guarded.stdin.take().unwrap();
    stdin.write_all(b"through\n").unwrap();
    assert_eq!(guarded.line(), "through");
    drop(stdin);
    assert_eq!(guarded.code(), 0);
}

impl Home {
    fn leases_when_held(&self) -> Value {
        until("a lease is held", || self.leases().pop())
    }
}

#[test]
fn an_authority_without_fencing_tokens_leaves_the_variable_unset_with_a_warning() {
    let authority = Home::new();
    authority.put("config.toml", "features = [\"frame-bin\", \"lease-fleet\", \"unknown-ok\"]\n");
    let (_authority_serve, addr) = authority.serve(&[]);
    let home = Home::new();
    home.json(&["join", &authority.invite(&addr)]);
    let (_serve, _) = home.serve(&[]);
    let script = r#"echo "${RELAY_FENCING_TOKEN-unset}""#;
    let mut command = home.command(&["lease", "run", "res:demo", "--authority", &authority.id()]);
    command.args(["--", "/bin/sh", "-c", script]).env("RELAY_FENCING_TOKEN", "9");
    let ran = Ran::of(command.output().unwrap());
    assert_eq!((ran.code, ran.out.trim()), (0, "unset"), "{}", ran.err);
    assert!(ran.err.contains("RELAY_FENCING_TOKEN is not set"), "{}", ran.err);
    assert_eq!(authority.leases(), Vec::<Value>::new());
}

#[test]
fn a_lease_that_is_not_got_is_125_and_the_command_never_runs() {
    let home = Home::new();
    let (_serve, _) = home.serve(&[]);
    let _holder = home.guard(&["res:demo", "--", "cat"]);
    home.leases_when_held();
    let ran = home.guarded(&["res:demo", "--", "echo", "ran"]);
    assert_eq!((ran.code, ran.out.as_str()), (125, ""));
    assert!(ran.err.contains("res:demo is held by run-") && ran.err.contains("--wait"), "{}", ran.err);
    let ran = home.guarded(&["res:demo", "--wait", "--timeout", "1", "--", "echo", "ran"]);
    assert_eq!((ran.code, ran.out.as_str()), (124, ""), "{}", ran.err);
    assert_eq!(home.json(&["session", "list"]).len(), 1, "no session is left of those");
}

#[test]
fn a_waiting_command_runs_when_the_one_before_has_ended() {
    let home = Home::new();
    let (_serve, _) = home.serve(&[]);
    let mut holder = home.guard(&["res:demo", "--", "cat"]);
    home.leases_when_held();
    let mut waiter = home.guard(&["res:demo", "--wait", "--timeout", "30", "--", "echo", "ran"]);
    home.until_queued();
    drop(holder.stdin.take());
    assert_eq!((holder.code(), waiter.line(), waiter.code()), (0, "ran".to_owned(), 0));
}

impl Home {
    fn until_queued(&self) {
        until("a claim waits", || {
            let exported = self.run(&["journal", "export"]).out;
            exported.contains("lease_queued").then_some(())
        });
    }
}

#[test]
fn a_waiting_claim_that_is_interrupted_leaves_the_queue() {
    let home = Home::new();
    let (_serve, _) = home.serve(&[]);
    let mut holder = home.guard(&["res:demo", "--", "cat"]);
    home.leases_when_held();
    let mut waiter = home.guard(&["res:demo", "--wait", "--", "echo", "ran"]);
    home.until_queued();
    waiter.signal(Signal::INT);
    assert_eq!(waiter.code(), 130);
    drop(holder.stdin.take());
    assert_eq!(holder.code(), 0);
    assert_eq!(home.guarded(&["res:demo", "--", "echo", "next"]).code, 0, "nobody waits before it");
}

/// consul #797, #1210, #2489.
#[test]
fn a_signal_other_than_term_leaves_no_child_behind() {
    let home = Home::new();
    let (_serve, _) = home.serve(&[]);
    for signal in [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM] {
        let mut guarded = home.guard(&["res:demo", "--", "sh", "-c", "echo $$; exec sleep 1000"]);
        let pids = guarded.pids();
        guarded.signal(signal);
        assert_eq!(guarded.code(), 128 + signal.as_raw());
        all_end(&pids);
        assert_eq!(home.leases(), Vec::<Value>::new());
    }
}

#[test]
fn usr1_and_usr2_are_passed_on() {
    let home = Home::new();
    let (_serve, _) = home.serve(&[]);
    let script = "trap '' USR1 USR2; sleep 1000 & trap 'echo one' USR1; trap 'echo two' USR2; echo ready; \
                  while kill -0 $!; do wait $!; done";
    let mut guarded = home.guard(&["res:demo", "--", "sh", "-c", script]);
    assert_eq!(guarded.line(), "ready");
    for (signal, word) in [(Signal::USR1, "one"), (Signal::USR2, "two")] {
        guarded.signal(signal);
        assert_eq!(guarded.line(), word);
    }
    guarded.signal(Signal::TERM);
    assert_eq!(guarded.code(), 143);
}

/// consul #2022.
#[test]
fn a_shell_in_between_that_dies_takes_its_child_along() {
    let home = Home::new();
    let (_serve, _) = home.serve(&[]);
    // A shell has what it starts in the background ignore INT: that one outlives the signal, and must not the lease.
    for (signal, grace) in [(Signal::TERM, "30"), (Signal::INT, "1")] {
        let script = "sleep 1000 & echo $$ $!; wait";
        let mut guarded = home.guard(&["res:demo", "--grace", grace, "--", "sh", "-c", script]);
        let pids = guarded.pids();
        guarded.signal(signal);
        until("the lease is free", || home.leases().is_empty().then_some(()));
        assert!(pids.iter().all(|pid| is_gone(*pid)), "{signal:?}: it ended before the lease did");
        assert_eq!(guarded.code(), 128 + signal.as_raw());
    }
}

/// consul #9788.
#[test]
fn the_child_learns_of_the_loss_within_a_second_of_the_last_certain_moment() {
    let home = Home::new();
    let (serve, _) = home.serve(&[]);
    let mut guarded = home.guard(&[
        "res:demo",
        "--ttl",
        "4",
        "--kill-on-loss",
        "--",
        "sh",
        "-c",
        "echo $$; exec sleep 1000",
    ]);
    let pids = guarded.pids();
    let killed = Instant::now();
    serve.kill();
    let said = guarded.said();
    let took = killed.elapsed();
    assert!(said.contains("is lost: ") && said.contains("relay serve is not running here"), "{said}");
    assert!(took < Duration::from_secs(5), "4 s are certain at most: {took:?}");
    assert_eq!(guarded.code(), 123);
    all_end(&pids);
}

/// etcd #17470.
#[test]
fn a_lease_ends_when_its_holder_has_died() {
    let home = Home::new();
    let (_serve, _) = home.serve(&[]);
    let mut guarded = home.guard(&["res:demo", "--ttl", "2", "--", "sh", "-c", "echo $$; exec sleep 1000"]);
    let pids = guarded.pids();
    guarded.signal(Signal::KILL);
    assert_eq!(guarded.code(), -9);
    all_end(&pids);
    let ran = home.guarded(&["res:demo", "--wait", "--timeout", "20", "--", "echo", "ran"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "ran"), "{}", ran.err);
}

/// etcd #19261.
#[test]
fn success_is_not_reported_where_the_command_was_not_guarded_to_its_end() {
    let home = Home::new();
    let (_serve, _) = home.serve(&[]);
    let mut guarded = home.guard(&["res:demo", "--", "cat"]);
    home.leases_when_held();
    home.take_away();
    // The claim is repeated later than this.
    drop(guarded.stdin.take());
    assert_eq!(guarded.code(), 123);
    let said = guarded.said();
    assert!(said.contains("lost"), "{said}");
}

#[test]
fn a_release_that_fails_is_told_and_the_code_is_the_commands_while_the_lease_was_certain() {
    let home = Home::new();
    let (serve, _) = home.serve(&[]);
    let mut guarded = home.guard(&["res:demo", "--", "sh", "-c", "echo ready; cat"]);
    assert_eq!(guarded.line(), "ready");
    home.leases_when_held();
    serve.kill();
    drop(guarded.stdin.take());
    assert_eq!(guarded.code(), 0);
    let said = guarded.said();
    assert!(said.contains("could not be released") && said.contains("held to the command's end"), "{said}");
}

/// etcd #9921, #11456.
#[test]
fn what_is_granted_when_the_waiters_own_time_has_run_out_is_given_back() {
    let home = Home::new();
    let (_serve, _) = home.serve(&[]);
    let mut holder = home.guard(&["res:demo", "--", "cat"]);
    home.leases_when_held();
    let mut waiter = home.guard(&["res:demo", "--wait", "--timeout", "5", "--", "echo", "ran"]);
    let begun = Instant::now();
    home.until_queued();
    waiter.signal(Signal::STOP);
    drop(holder.stdin.take());
    assert_eq!(holder.code(), 0);
    until("the lease is granted to one that sleeps", || home.leases().pop());
    until("its time is over", || (begun.elapsed() > Duration::from_secs(6)).then_some(()));
    waiter.signal(Signal::CONT);
    assert_eq!(waiter.code(), 124);
    assert_eq!(waiter.out.iter().count(), 0, "the command never ran");
    assert_eq!(home.leases(), Vec::<Value>::new());
}

/// etcd #7983.
#[test]
fn on_loss_is_run_with_the_lease_of_the_command_which_runs_on() {
    let home = Home::new();
    let (_serve, _) = home.serve(&[]);
    let on_loss = "echo lost $RELAY_LEASE_ID";
    let mut guarded = home.guard(&["res:demo", "--ttl", "3", "--on-loss", on_loss, "--", "cat"]);
    let lease = home.leases_when_held();
    home.take_away();
    assert_eq!(guarded.line(), format!("lost {}", lease["id"].as_str().unwrap()));
    let said = guarded.said();
    assert!(said.contains("was released") && said.contains("runs on"), "{said}");
    guarded.stdin.as_mut().unwrap().write_all(b"still here\n").unwrap();
    assert_eq!(guarded.line(), "still here");
    drop(guarded.stdin.take());
    assert_eq!(guarded.code(), 123);
}

#[test]
fn kill_on_loss_ends_all_of_the_command_with_term_and_after_the_grace_with_kill() {
    let home = Home::new();
    let (_serve, _) = home.serve(&[]);
    let script = "trap 'echo told' TERM; sleep 1000 & echo $$ $!; while :; do wait; sleep 1000 & done";
    let args = ["res:demo", "--ttl", "3", "--kill-on-loss", "--grace", "1", "--", "sh", "-c", script];
    let mut guarded = home.guard(&args);
    let pids = guarded.pids();
    home.take_away();
    assert_eq!(guarded.line(), "told");
    assert_eq!(guarded.code(), 123);
    all_end(&pids);
}

#[test]
fn a_serve_that_was_killed_and_started_again_is_found_and_the_lease_goes_on() {
    let home = Home::new();
    let (serve, _) = home.serve(&[]);
    let mut guarded =
        home.guard(&["res:demo", "--ttl", "10", "--kill-on-loss", "--", "sh", "-c", "echo ready; cat"]);
    assert_eq!(guarded.line(), "ready");
    let before = home.leases_when_held();
    let held = Instant::now();
    serve.kill();
    let (_serve, _) = home.serve(&[]);
    until("more than the lease's time is over", || (held.elapsed() > Duration::from_secs(12)).then_some(()));
    let after = home.leases();
    let token = after.first().map(|lease| &lease["fencing_token"]);
    assert_eq!(token, Some(&before["fencing_token"]), "{:?}", guarded.err.try_iter().collect::<Vec<_>>());
    drop(guarded.stdin.take());
    assert_eq!((guarded.code(), guarded.err.iter().count()), (0, 0));
    assert_eq!(home.leases(), Vec::<Value>::new());
}

#[test]
fn a_session_that_is_alive_holds_the_lease_where_it_is_named() {
    let home = Home::new();
    let (_serve, _) = home.serve(&[]);
    home.json(&["session", "start", "mine"]);
    for name in ["mine", "other"] {
        let mut guarded = home.guard(&["res:demo", "--session", name, "--", "cat"]);
        let lease = home.leases_when_held();
        assert!(lease["owner"].as_str().unwrap().starts_with(&format!("{name}@")), "{lease}");
        drop(guarded.stdin.take());
        assert_eq!(guarded.code(), 0);
    }
    let left = home.json(&["session", "list"]);
    assert!(left.len() == 1 && left[0]["name"] == "mine", "one that was there stays: {left:?}");
}
