//! What the owner does: commands, events, timers, actions, the end.

use std::thread;
use std::time::{Duration, Instant};

use relay_core::action::{ActError, ActOutput, Acted, Action};
use relay_core::journal::Seq;
use relay_core::machine::Refused;
use relay_smol::{Actor, CallError, Driver, Options, Rejected};

use crate::machine::{Answer, Ask, Heard, Puppet};
use crate::peers::{LONG, start, start_plain};

#[test]
fn commands_from_many_threads_each_get_their_own_answer() {
    let running = start_plain();
    thread::scope(|scope| {
        for thread in 0..8 {
            let handle = running.handle.clone();
            scope.spawn(move || {
                for number in 0..200 {
                    let number = thread << 32 | number;
                    assert_eq!(handle.call(Ask::Echo(number), LONG), Ok(Answer::Number(number)));
                }
            });
        }
    });
    assert!(running.stop());
}

#[test]
fn a_command_without_room_is_handed_back() {
    let options = Options { commands: 1, ..Options::default() };
    let (driver, handle, _events) = Driver::new(Puppet::default(), Seq::NONE, vec![], options).unwrap();
    let first = handle.command(Ask::Echo(1)).unwrap();
    assert!(matches!(handle.command(Ask::Echo(2)), Err(Rejected::Full(Ask::Echo(2)))));
    handle.shutdown(Duration::ZERO);
    async_io::block_on(driver.run());
    assert_eq!(first.wait(), Some(Ok(Answer::Number(1))));
    assert!(matches!(handle.command(Ask::Echo(3)), Err(Rejected::Stopped(Ask::Echo(3)))));
}

#[test]
fn events_that_nobody_reads_are_counted_and_stop_nothing() {
    let running = start(Puppet::quiet(), Options { events: 4, ..Options::default() });
    running.ask(Ask::Events(10));
    let mut client = running.client();
    client.say("say one\n");
    assert_eq!(client.line(), "one");
    assert_eq!(running.events.dropped(), 6);
    for number in 0..4 {
        assert_eq!(running.event(), Heard::Number(number));
    }
    assert!(running.stop());
}

#[test]
fn a_timer_is_never_early() {
    let running = start_plain();
    for millis in [200, 1, 20] {
        let span = Duration::from_millis(millis);
        let since = Instant::now();
        assert_eq!(running.ask(Ask::After(span)), Answer::Done);
        assert!(since.elapsed() >= span);
    }
    assert!(running.stop());
}

/// Panics at its first action.
struct Remover {
    panicked: bool,
}

impl Actor for Remover {
    fn act(&mut self, action: Action) -> Acted {
        assert!(matches!(action, Action::RemoveFile { .. }));
        assert!(std::mem::replace(&mut self.panicked, true), "the first action panics");
        Ok(ActOutput::Done)
    }
}

#[test]
fn an_action_is_carried_out_and_told_even_where_it_panics() {
    let actor = Box::new(Remover { panicked: false });
    let running = start(Puppet::default(), Options { actor, ..Options::default() });
    running.ask(Ask::Act);
    assert_eq!(running.event(), Heard::Acted(Err(ActError::Failed)));
    running.ask(Ask::Act);
    assert_eq!(running.event(), Heard::Acted(Ok(ActOutput::Done)));
    assert!(running.stop());
}

#[test]
fn a_shutdown_waits_no_longer_than_it_may() {
    let running = start_plain();
    let late = running.handle.command(Ask::After(LONG * 2)).unwrap();
    let never = running.handle.command(Ask::Never).unwrap();
    running.handle.shutdown(Duration::from_millis(50));
    assert!(running.handle.join());
    assert_eq!(late.wait(), Some(Err(Refused::Stopped)));
    assert_eq!(never.wait(), Some(Err(Refused::Stopped)));
    assert!(running.handle.gauges(LONG).is_none());
    assert_eq!(running.find(|heard| matches!(heard, Heard::Draining).then_some(())), ());
    assert_eq!(running.events.recv(), None);
}

#[test]
fn a_driver_whose_handles_are_gone_goes_on() {
    let running = start_plain();
    let mut client = running.client();
    drop(running.handle);
    client.say("say one\n");
    assert_eq!(client.line(), "one");
    assert!(matches!(running.events.recv(), Some(Heard::Opened(..))));
    drop(running.events);
    client.say("say two\n");
    assert_eq!(client.line(), "two");
}

#[test]
fn a_panic_refuses_who_waits_and_closes_every_connection() {
    for by_peer in [false, true] {
        let running = start_plain();
        let mut other = running.client();
        other.say("say one\n");
        assert_eq!(other.line(), "one");
        let never = running.handle.command(Ask::Never).unwrap();
        if by_peer {
            running.client().say("panic\n");
        } else {
            let call = running.handle.call(Ask::Panic, LONG);
            assert_eq!(call, Err(CallError::Refused(Refused::Stopped)));
        }
        assert_eq!(never.wait_timeout(LONG), Ok(Err(Refused::Stopped)));
        assert_eq!(other.rest(), "");
        assert!(!running.handle.join(), "a panic is not an end in order");
        assert!(matches!(running.handle.command(Ask::Never), Err(Rejected::Stopped(Ask::Never))));
    }
}

#[test]
fn a_driver_runs_on_an_executor_of_the_users_and_ends_with_its_task() {
    let (driver, handle, _events) =
        Driver::new(Puppet::default(), Seq::NONE, vec![], Options::default()).unwrap();
    let user = thread::spawn(move || {
        let executor = smol::LocalExecutor::new();
        let task = executor.spawn(driver.run());
        async_io::block_on(executor.run(async {
            assert_eq!(handle.command(Ask::Echo(1)).unwrap().await, Some(Ok(Answer::Number(1))));
            let never = handle.command(Ask::Never).unwrap();
            assert_eq!(handle.command(Ask::Echo(2)).unwrap().await, Some(Ok(Answer::Number(2))));
            task.cancel().await;
            assert_eq!(never.await, Some(Err(Refused::Stopped)));
        }));
    });
    user.join().unwrap();
}
