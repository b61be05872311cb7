//! How connections begin and end.

use relay_core::machine::CloseReason;
use relay_tests::probe::{Ask, Seen};
use relay_tests::rig::{Over, Place, Rig, Running, listen};
use rustix::process::geteuid;
use tempfile::TempDir;

crate::everywhere![
    bytes_come_back_whatever_their_pieces,
    a_half_close_is_answered_and_both_directions_end,
    what_is_said_behind_the_peers_half_close_arrives,
    our_half_close_leaves_the_peers_direction_open,
    a_flushed_close_delivers_all_that_was_queued,
    an_abort_ends_at_once,
    an_action_without_an_actor_ends_too,
    the_other_end_is_known,
];
crate::over_tcp_alone![a_reset_in_the_middle_is_told, a_reset_behind_a_half_close_is_told];

fn bytes_come_back_whatever_their_pieces(rig: &dyn Rig, over: Over) {
    let running = Running::start(rig, over);
    let mut client = running.client();
    let text = "echo one\nfree two\necho three\n";
    for piece in 1..text.len() {
        for part in text.as_bytes().chunks(piece) {
            client.send(part);
        }
        assert_eq!([client.line(), client.line(), client.line()], ["one", "two", "three"]);
    }
    let long = "x".repeat(60_000);
    assert_eq!(client.ask(&format!("echo {long}")), long);
}

fn a_half_close_is_answered_and_both_directions_end(rig: &dyn Rig, over: Over) {
    let running = Running::start(rig, over);
    let mut client = running.client();
    client.send("echo last\n");
    client.finish();
    assert_eq!(client.rest().unwrap(), b"last\n");
    running.until(|seen| *seen == Seen::Closed(0, CloseReason::Finished));
}

fn what_is_said_behind_the_peers_half_close_arrives(rig: &dyn Rig, over: Over) {
    let running = Running::start(rig, over);
    let mut client = running.client();
    client.send("stay\nlater 50 first\nlater 100 second\n");
    client.finish();
    running.until(|seen| *seen == Seen::Eof(0));
    assert_eq!(client.rest().unwrap(), b"first\nsecond\n");
    running.until(|seen| *seen == Seen::Closed(0, CloseReason::Finished));
}

fn our_half_close_leaves_the_peers_direction_open(rig: &dyn Rig, over: Over) {
    let running = Running::start(rig, over);
    let mut client = running.client();
    client.send("echo last\nfinish\necho unheard\n");
    assert_eq!(client.rest().unwrap(), b"last\n");
    client.send("tell still here\n");
    running.until(|seen| *seen == Seen::Told(0, "still here".into()));
    client.finish();
    running.until(|seen| *seen == Seen::Closed(0, CloseReason::Finished));
}

fn a_flushed_close_delivers_all_that_was_queued(rig: &dyn Rig, over: Over) {
    let running = Running::start(rig, over);
    let mut client = running.client();
    client.send("flood 3000000\nclose\n");
    // What still comes must not turn into a reset that overtakes the answer.
    client.send("echo nobody\n".repeat(20_000));
    assert_eq!(client.rest().unwrap().len(), 3_000_001);
    client.finish();
    running.until(|seen| *seen == Seen::Closed(0, CloseReason::Asked));
}

fn an_abort_ends_at_once(rig: &dyn Rig, over: Over) {
    let running = Running::start(rig, over);
    let mut client = running.client();
    client.send("echo before\n");
    assert_eq!(client.line(), "before");
    // What is queued is lost, which the peer is to see.
    client.send("flood 7000000\nabort\n");
    match (over, client.rest()) {
        (Over::Tcp, end) => assert!(end.is_err()),
        (Over::Unix, end) => assert!(end.is_ok_and(|rest| rest.is_empty())),
    }
    running.until(|seen| *seen == Seen::Closed(0, CloseReason::Asked));
    let mut others: Vec<_> = (0..5).map(|_| running.client()).collect();
    for other in &mut others {
        assert_eq!(other.ask("echo here"), "here");
    }
    assert_eq!(running.ask(Ask::AbortAll), 5);
    for mut other in others {
        other.until_closed();
    }
}

fn an_action_without_an_actor_ends_too(rig: &dyn Rig, over: Over) {
    let running = Running::start(rig, over);
    assert_eq!(running.client().ask("write notes/one text"), "not supported by this host");
}

/// Of a unix socket it is the kernel that says who: here it is this process on both ends.
fn the_other_end_is_known(rig: &dyn Rig, over: Over) {
    let running = Running::start(rig, over);
    let mut client = running.client();
    assert_eq!(client.ask("echo here"), "here");
    let home = TempDir::new().unwrap();
    let (listener, place) = listen(over, &home);
    let number = running.ask(Ask::Dial(place.target()));
    running.until(|seen| *seen == Seen::Opened(number, true));
    let known = match place {
        Place::Tcp(address) => [client.port().unwrap(), address.port()].map(u64::from),
        Place::Unix(_) if cfg!(target_os = "linux") => {
            [u64::from(geteuid().as_raw()) << 32 | u64::from(std::process::id()); 2]
        }
        Place::Unix(_) => [u64::MAX; 2],
    };
    assert_eq!([0, number].map(|number| running.ask(Ask::Peer(number))), known, "{}", rig.name());
    drop(listener);
}

fn a_reset_in_the_middle_is_told(rig: &dyn Rig, over: Over) {
    let running = Running::start(rig, over);
    for number in 0..20 {
        let mut client = running.client();
        assert_eq!(client.ask("echo x"), "x");
        // More than the sockets hold, so that the driver is about to write or blocked.
        client.send("flood 6000000\n");
        client.reset();
        running.until(|seen| *seen == Seen::Closed(number, CloseReason::Reset));
    }
}

/// Though nothing is read from it any more, and nothing written.
fn a_reset_behind_a_half_close_is_told(rig: &dyn Rig, over: Over) {
    let running = Running::start(rig, over);
    for number in 0..10 {
        let mut client = running.client();
        client.send("stay\nlater 600000 nobody hears this\n");
        client.finish();
        running.until(|seen| *seen == Seen::Eof(number));
        client.reset();
        if cfg!(any(target_os = "linux", target_os = "android")) {
            running.until(|seen| *seen == Seen::Closed(number, CloseReason::Reset));
        }
    }
}
