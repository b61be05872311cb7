//! Many connections, and slots that are used again and again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use relay_core::machine::CloseReason;
use relay_mio::Options;
use relay_tests::client::Client;
use relay_tests::probe::{Ask, Seen};
use relay_tests::rig::{Over, Rig, Running};

crate::everywhere![
    thousands_of_connections_are_served_side_by_side,
    no_byte_reaches_a_wrong_connection_in_a_storm,
    a_flood_of_callers_does_not_starve_a_link,
];

/// Holds one of the storms at a time, since the descriptors of a process are limited.
static STORM: Mutex<()> = Mutex::new(());

fn thousands_of_connections_are_served_side_by_side(rig: &dyn Rig, over: Over) {
    const CLIENTS: usize = 3000;
    let _alone = STORM.lock().unwrap_or_else(PoisonError::into_inner);
    let running = Running::with(rig, over, Options { events: 4 * CLIENTS, ..Options::default() });
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| running.client()).collect();
    for round in 0..3 {
        for (number, client) in clients.iter_mut().enumerate() {
            client.send(format!("echo {round} {number}\n"));
        }
        for (number, client) in clients.iter_mut().enumerate() {
            assert_eq!(client.line(), format!("{round} {number}"));
        }
    }
    assert_eq!(running.gauge("links"), CLIENTS as u64);
    drop(clients);
    for _ in 0..CLIENTS {
        running.until(|seen| matches!(seen, Seen::Closed(_, CloseReason::Finished)));
    }
    assert_eq!(running.gauge("connections"), 0);
}

fn no_byte_reaches_a_wrong_connection_in_a_storm(rig: &dyn Rig, over: Over) {
    let _alone = STORM.lock().unwrap_or_else(PoisonError::into_inner);
    let running = Running::start(rig, over);
    thread::scope(|scope| {
        for thread in 0..4 {
            let running = &running;
            scope.spawn(move || storm(running, thread));
        }
        scope.spawn(|| {
            for _ in 0..300 {
                // Dials take slots as well. Events are not read here: they are counted as dropped.
                running.ask(Ask::Dial(running.place.target()));
            }
        });
    });
    running.until_gauge("connections", |open| open == 0);
    assert_eq!(running.gauge("stale_uses"), 0);
}

/// Connects, says something that nobody else says, and leaves in one of the ways that there are.
fn storm(running: &Running, thread: usize) {
    for number in 0..400 {
        let mut client = running.client();
        let text = format!("{thread}-{number}");
        match number % 5 {
            0 => assert_eq!(client.ask(&format!("echo {text}")), text),
            1 => {
                client.send(format!("flood 50000\nkeep {text}\n"));
                client.reset();
            }
            2 => {
                client.send(format!("echo {text}\nlater 2 {text}\nkeep {text}\nabort\n"));
                if let Ok(rest) = client.rest() {
                    assert!(rest.is_empty() || rest == format!("{text}\n").as_bytes(), "{rest:?}");
                }
            }
            3 => {
                client.send(format!("keep {text}\n"));
                client.finish();
                assert_eq!(client.rest().unwrap(), format!("kept {text}\n").as_bytes());
            }
            _ => drop(client),
        }
    }
}

fn a_flood_of_callers_does_not_starve_a_link(rig: &dyn Rig, over: Over) {
    let _alone = STORM.lock().unwrap_or_else(PoisonError::into_inner);
    let running = Running::start(rig, over);
    let mut link = running.client();
    assert_eq!(link.ask("echo before"), "before");
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let _ = Client::try_connect(&running.place);
                }
            });
        }
        for _ in 0..100 {
            assert_eq!(link.ask("echo meanwhile"), "meanwhile");
        }
        over.store(true, Ordering::Relaxed);
    });
}
