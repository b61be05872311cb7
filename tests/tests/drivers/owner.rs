//! The owner's side: commands, events, shutdown.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use relay_core::journal::Seq;
use relay_core::machine::{CloseReason, Refused};
use relay_mio::{Options, Rejected};
use relay_tests::client::{Client, is_over};
use relay_tests::probe::{Ask, Probe, Seen};
use relay_tests::rig::{Over, PATIENCE, Rig, Running, listen};
use tempfile::TempDir;

/// Turns of a driver in which what must not happen would.
const TURNS: u64 = 50;

crate::everywhere![
    commands_from_many_threads_are_each_answered_once,
    a_full_event_channel_stops_no_link,
    a_listener_that_is_paused_accepts_later,
    nobody_is_opened_behind_the_answer_that_tells_of_a_pause,
    a_shutdown_ends_what_is_under_way_first,
    a_shutdown_whose_time_is_over_refuses_what_has_no_answer,
    the_machine_goes_on_when_its_owner_is_gone,
];

fn commands_from_many_threads_are_each_answered_once(rig: &dyn Rig, over: Over) {
    let running = Running::with(rig, over, Options { commands: 16, ..Options::default() });
    thread::scope(|scope| {
        for thread in 0..8 {
            let handle = running.handle.clone();
            scope.spawn(move || {
                for value in (0..250).map(|value| thread * 1000 + value) {
                    let mut ask = if value % 5 == 0 { Ask::Keep(value) } else { Ask::Echo(value) };
                    let answer = loop {
                        match handle.command(ask) {
                            Ok(answer) => break answer,
                            Err(Rejected::Full(back)) => ask = back,
                            Err(Rejected::Stopped(back)) => panic!("stopped at {back:?}"),
                        }
                        thread::yield_now();
                    };
                    assert_eq!(answer.wait(), Some(Ok(value)));
                }
            });
        }
    });
    assert_eq!(running.gauge("unanswered_commands"), 0);
    assert_eq!(running.disk.records().len(), 8 * 50);
}

fn a_full_event_channel_stops_no_link(rig: &dyn Rig, over: Over) {
    let running = Running::with(rig, over, Options { events: 4, ..Options::default() });
    let mut client = running.client();
    for number in 0..100 {
        client.send(format!("tell {number}\n"));
    }
    assert_eq!(client.ask("echo through"), "through");
    // What a turn tells is told behind what it writes.
    assert_eq!(running.ask(Ask::Echo(1)), 1);
    assert_eq!(running.events.dropped(), 97);
    assert_eq!(running.events.recv(), Some(Seen::Opened(0, false)));
    assert_eq!(running.events.recv(), Some(Seen::Told(0, "0".into())));
}

fn a_listener_that_is_paused_accepts_later(rig: &dyn Rig, over: Over) {
    let running = Running::start(rig, over);
    let mut early = running.client();
    assert_eq!(early.ask("echo early"), "early");
    running.ask(Ask::Accepting(false));
    let mut late = running.client();
    late.send("echo late\n");
    // A driver that accepts does so in the turn in which it hears another.
    for _ in 0..TURNS {
        assert_eq!(early.ask("echo goes on"), "goes on");
    }
    late.patience(Duration::from_millis(1));
    assert!(late.try_line().is_err_and(|error| is_over(&error)));
    running.ask(Ask::Accepting(true));
    late.patience(PATIENCE);
    assert_eq!(late.line(), "late");
}

/// A driver may have accepted what came in the same turn; then it was told before the answer.
fn nobody_is_opened_behind_the_answer_that_tells_of_a_pause(rig: &dyn Rig, over: Over) {
    let running = Running::with(rig, over, Options { events: 1 << 20, ..Options::default() });
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    // A listener that is paused has a backlog, and that may be full.
                    let _ = Client::try_connect(&running.place).map(|client| client.finish());
                    thread::sleep(Duration::from_micros(200));
                }
            });
        }
        for round in 0..20 {
            running.until(|seen| matches!(seen, Seen::Opened(..)));
            running.ask(Ask::Accepting(false));
            while running.events.try_recv().is_ok() {}
            for turn in 0..TURNS {
                assert_eq!(running.ask(Ask::Echo(turn)), turn);
                while let Ok(seen) = running.events.try_recv() {
                    assert!(!matches!(seen, Seen::Opened(..)), "{}: {seen:?} in round {round}", rig.name());
                }
            }
            running.ask(Ask::Accepting(true));
        }
        over.store(true, Ordering::Relaxed);
    });
}

fn a_shutdown_ends_what_is_under_way_first(rig: &dyn Rig, over: Over) {
    let running = Running::start(rig, over);
    let mut client = running.client();
    running.disk.hold();
    client.send("keep a\nflood 2000000\n");
    assert!(running.disk.wait_begun(1, PATIENCE));
    running.handle.shutdown(PATIENCE);
    running.until(|seen| *seen == Seen::Draining);
    running.disk.release();
    let rest = client.rest().unwrap();
    assert!(rest.starts_with(b"kept a\n"));
    assert_eq!(rest.len(), 2_000_008);
    drop(client);
    running.until(|seen| *seen == Seen::Closed(0, CloseReason::Asked));
    assert_eq!(running.events.recv(), None);
    assert!(running.handle.join());
    assert!(matches!(running.handle.command(Ask::Never), Err(Rejected::Stopped(Ask::Never))));
}

fn a_shutdown_whose_time_is_over_refuses_what_has_no_answer(rig: &dyn Rig, over: Over) {
    let running = Running::start(rig, over);
    let mut client = running.client();
    assert_eq!(client.ask("echo here"), "here");
    // Answered only after the shutdown would be over.
    client.send("flood 7000000\n");
    let never = running.handle.command(Ask::Never).unwrap();
    assert_eq!(running.ask(Ask::Echo(1)), 1);
    let began = Instant::now();
    running.handle.shutdown(Duration::from_millis(100));
    assert_eq!(never.wait(), Some(Err(Refused::Stopped)));
    assert!(running.handle.join());
    assert!(began.elapsed() < PATIENCE / 2);
    client.until_closed();
}

fn the_machine_goes_on_when_its_owner_is_gone(rig: &dyn Rig, over: Over) {
    let home = TempDir::new().unwrap();
    let (listener, place) = listen(over, &home);
    let owner = rig.start(Probe::default(), Seq::NONE, vec![listener], Options::default()).unwrap();
    let mut client = Client::connect(&place);
    assert_eq!(client.ask("echo here"), "here");
    drop(owner);
    for number in 0..Options::default().events + 10 {
        client.send(format!("tell {number}\n"));
    }
    assert_eq!(client.ask("keep still here"), "kept still here");
}
