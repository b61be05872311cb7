//! Accepted connections: both ways, half-closed, paused, slow, reset.

use std::io::{ErrorKind, Write};
use std::net::Shutdown;
use std::thread;

use relay_core::journal::Seq;
use relay_core::machine::{CloseReason, Endpoint, ListenerId, Opener};
use relay_smol::{Listener, Options};

use crate::machine::{Ask, Heard, Puppet};
use crate::peers::{Client, LONG, socket_path, start, start_plain};

#[test]
fn it_answers_over_tcp() {
    let running = start_plain();
    let mut client = running.client();
    client.say("say one\nsay two\nsay th");
    assert_eq!((client.line(), client.line()), ("one".into(), "two".into()));
    client.say("ree\n");
    assert_eq!(client.line(), "three");
    let Heard::Opened(_, by, peer) = running.event() else { panic!("the first event is the opening") };
    assert_eq!(by, Opener::Accepted(ListenerId(0)));
    assert_eq!(peer, Endpoint::Tcp(client.stream.local_addr().unwrap()));
    assert!(running.stop());
    assert_eq!(client.line(), "", "a driver that stops closes its connections");
}

#[test]
fn it_answers_over_a_unix_socket_and_knows_the_peer() {
    let path = socket_path();
    let tcp = Listener::tcp(([127, 0, 0, 1], 0).into()).unwrap();
    let listeners = vec![tcp, Listener::unix(&path).unwrap()];
    let (handle, events) =
        relay_smol::start(Puppet::default(), Seq::NONE, listeners, Options::default()).unwrap();
    let mut client = Client::unix(&path);
    client.say("say one\n");
    assert_eq!(client.line(), "one");
    let Ok(Heard::Opened(_, by, Endpoint::Unix { uid, pid })) = events.recv_timeout(LONG) else {
        panic!("the first event is the opening")
    };
    assert_eq!(by, Opener::Accepted(ListenerId(1)));
    if cfg!(target_os = "linux") {
        assert_eq!(uid, Some(rustix::process::getuid().as_raw()));
        assert_eq!(pid, Some(std::process::id()));
    }
    client.stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.rest(), "end\n");
    handle.shutdown(std::time::Duration::ZERO);
    assert!(handle.join());
    assert!(!path.exists(), "the socket's file goes with the driver");
}

#[test]
fn what_was_asked_before_a_half_close_is_answered() {
    let running = start_plain();
    let mut client = running.client();
    client.say("say one\nkeep two\n");
    client.stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.rest(), "one\ntwo\nend\n");
    running.find(|heard| matches!(heard, Heard::Closed(_, CloseReason::Finished, 0)).then_some(()));
    assert!(running.stop());
}

#[test]
fn a_peer_may_go_on_after_the_machine_has_finished() {
    let running = start_plain();
    let mut client = running.client();
    client.say("say one\nfinish\n");
    assert_eq!(client.rest(), "one\n");
    client.say("say lost\n");
    client.stream.shutdown(Shutdown::Write).unwrap();
    running.find(|heard| matches!(heard, Heard::Eof(_)).then_some(()));
    running.find(|heard| matches!(heard, Heard::Closed(_, CloseReason::Finished, 0)).then_some(()));
    assert!(running.stop());
}

#[test]
fn a_flushing_close_sends_all_and_an_abort_resets() {
    let running = start_plain();
    let mut client = running.client();
    client.say("say one\nflush\nsay lost\n");
    assert_eq!(client.rest(), "one\n");
    drop(client);
    running.find(|heard| matches!(heard, Heard::Closed(_, CloseReason::Asked, 0)).then_some(()));

    let mut client = running.client();
    client.say("say lost\nabort\n");
    assert_eq!(client.read_error(), ErrorKind::ConnectionReset);
    running.find(|heard| matches!(heard, Heard::Closed(_, CloseReason::Asked, 5)).then_some(()));
    assert!(running.stop());
}

#[test]
fn a_peers_reset_is_told_once() {
    let running = start_plain();
    let client = running.client();
    let Heard::Opened(opened, ..) = running.event() else { panic!("the first event is the opening") };
    rustix::net::sockopt::set_socket_linger(&client.stream, Some(std::time::Duration::ZERO)).unwrap();
    drop(client);
    assert_eq!(running.event(), Heard::Closed(opened, CloseReason::Reset, 0));
    running.ask(Ask::Events(1));
    assert_eq!(running.event(), Heard::Number(0));
    assert!(running.stop());
}

#[test]
fn a_pause_is_followed_by_a_drain() {
    let running = start_plain();
    let mut client = running.client();
    for _ in 0..3 {
        client.say("pause\nsay one\n");
        assert_eq!((client.line(), client.line()), ("one".into(), "drained".into()));
    }
    assert!(running.stop());
}

/// Asks for far more than sockets and queues hold, and reads nothing until another client was served a thousand times.
#[test]
fn a_peer_that_does_not_read_gets_every_answer_in_order_once_it_does() {
    const LINES: usize = 20_000;
    let running = start(Puppet::quiet(), Options::default());
    let mut slow = running.client();
    let mut asks = slow.stream.try_clone().unwrap();
    let pad = "x".repeat(1000);
    let asking = thread::spawn({
        let pad = pad.clone();
        move || {
            for number in 0..LINES {
                asks.write_all(format!("say {number} {pad}\n").as_bytes()).unwrap();
            }
        }
    });
    let mut other = running.client();
    for number in 0..1000 {
        other.say(&format!("say {number}\n"));
        assert_eq!(other.line(), number.to_string());
    }
    assert!(!asking.is_finished(), "a peer that does not read is not read from for ever");
    for number in 0..LINES {
        assert_eq!(slow.line(), format!("{number} {pad}"));
    }
    asking.join().unwrap();
    assert!(running.stop());
}

#[test]
fn a_peer_that_never_stops_asking_does_not_starve_another() {
    let running = start(Puppet::quiet(), Options::default());
    let chatty = running.client();
    let mut asks = chatty.stream.try_clone().unwrap();
    let mut answers = chatty.stream.try_clone().unwrap();
    let asking = thread::spawn(move || {
        let asked = "say x\n".repeat(20_000);
        while asks.write_all(asked.as_bytes()).is_ok() {}
    });
    let reading = thread::spawn(move || std::io::copy(&mut answers, &mut std::io::sink()));
    let mut other = running.client();
    for number in 0..200 {
        other.say(&format!("say {number}\n"));
        assert_eq!(other.line(), number.to_string());
    }
    assert!(!asking.is_finished());
    assert!(running.stop());
    asking.join().unwrap();
    let _ = reading.join().unwrap();
}

#[test]
fn a_listener_that_is_paused_accepts_nothing_until_it_is_resumed() {
    let running = start_plain();
    running.ask(Ask::Accept(false));
    let mut client = running.client();
    client.say("say one\n");
    running.ask(Ask::Events(1));
    assert_eq!(running.event(), Heard::Number(0), "nobody was accepted before");
    running.ask(Ask::Accept(true));
    assert_eq!(client.line(), "one");
    assert!(running.stop());
}
