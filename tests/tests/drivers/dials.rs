//! Dials: those that succeed, and every way in which they do not.

use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use relay_core::machine::{CloseReason, DialError, Target};
use relay_tests::client::Client;
use relay_tests::probe::{Ask, Seen};
use relay_tests::rig::{Over, PATIENCE, Place, Rig, Running};
use tempfile::TempDir;

crate::everywhere![
    a_dial_talks_and_ends,
    two_hundred_dials_at_once_all_end,
    a_dial_to_nobody_fails_and_says_why,
    a_dial_to_a_full_backlog_times_out,
];

fn a_dial_talks_and_ends(rig: &dyn Rig, over: Over) {
    let running = Running::start(rig, over);
    let number = running.ask(Ask::Dial(running.place.target()));
    running.until(|seen| *seen == Seen::Heard(number, "hello".into()));
    running.until(|seen| *seen == Seen::Closed(number, CloseReason::Finished));
    // By a client's word as well.
    let mut client = running.client();
    let line = match &running.place {
        Place::Tcp(address) => format!("dial tcp {address}\necho asked\n"),
        Place::Unix(path) => format!("dial unix {}\necho asked\n", path.display()),
    };
    client.send(line);
    assert_eq!(client.line(), "asked");
    running.until(|seen| matches!(seen, Seen::Heard(_, text) if text == "hello"));
}

fn two_hundred_dials_at_once_all_end(rig: &dyn Rig, over: Over) {
    let running = Running::start(rig, over);
    let target = running.place.target();
    let asked: Vec<_> =
        (0..200).map(|_| running.handle.command(Ask::Dial(target.clone())).unwrap()).collect();
    let mut open: Vec<_> = asked.into_iter().map(|answer| answer.wait().unwrap().unwrap()).collect();
    let mut heard = 0;
    while !open.is_empty() {
        match running.events.recv_timeout(PATIENCE).unwrap() {
            Seen::Heard(..) => heard += 1,
            Seen::Closed(number, why) => {
                assert_eq!(why, CloseReason::Finished);
                open.retain(|other| *other != number);
            }
            Seen::Opened(..)
            | Seen::Told(..)
            | Seen::Eof(_)
            | Seen::Failing
            | Seen::Resumed
            | Seen::Draining => {}
        }
    }
    assert_eq!(heard, 200);
}

fn a_dial_to_nobody_fails_and_says_why(rig: &dyn Rig, over: Over) {
    let running = Running::start(rig, over);
    let home = TempDir::new().unwrap();
    let (target, why) = match over {
        Over::Tcp => {
            let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
            (Target::tcp(gone), DialError::Refused)
        }
        Over::Unix => {
            let path = home.path().join("nobody.sock");
            (Target::unix(path.to_str().unwrap()), DialError::NoSuchSocket)
        }
    };
    let number = running.ask(Ask::Dial(target));
    running.until(|seen| *seen == Seen::Closed(number, CloseReason::DialFailed(why)));
    if over == Over::Unix {
        let left = home.path().join("left.sock");
        drop(UnixListener::bind(&left).unwrap());
        let number = running.ask(Ask::Dial(Target::unix(left.to_str().unwrap())));
        running.until(|seen| *seen == Seen::Closed(number, CloseReason::DialFailed(DialError::Refused)));
    }
}

/// One dial waits until its time is over; the next finds room, since the backlog is emptied under it.
fn a_dial_to_a_full_backlog_times_out(rig: &dyn Rig, over: Over) {
    let running = Running::start(rig, over);
    let home = TempDir::new().unwrap();
    let full = Full::new(over, &home);
    let began = Instant::now();
    let number = running.ask(Ask::Dial(full.place.target()));
    // Others are not held up.
    assert_eq!(running.client().ask("echo meanwhile"), "meanwhile");
    running.until(|seen| *seen == Seen::Closed(number, CloseReason::DialFailed(DialError::TimedOut)));
    assert!(began.elapsed() >= Duration::from_secs(10), "gave up after {:?}", began.elapsed());
    let number = running.ask(Ask::Dial(full.place.target()));
    full.accept();
    running.until(|seen| *seen == Seen::Opened(number, true));
}

/// A listener that does not accept and whose backlog is full.
struct Full {
    listener: Accepting,
    place: Place,
    _waiting: Client,
}

enum Accepting {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Full {
    fn new(over: Over, home: &TempDir) -> Self {
        let (listener, place) = match over {
            Over::Tcp => {
                let listener = TcpListener::bind("127.0.0.1:0").unwrap();
                rustix::net::listen(&listener, 0).unwrap();
                let place = Place::Tcp(listener.local_addr().unwrap());
                (Accepting::Tcp(listener), place)
            }
            Over::Unix => {
                let path = home.path().join("full.sock");
                let listener = UnixListener::bind(&path).unwrap();
                rustix::net::listen(&listener, 0).unwrap();
                (Accepting::Unix(listener), Place::Unix(path))
            }
        };
        // A backlog of none takes one.
        let waiting = Client::connect(&place);
        Self { listener, place, _waiting: waiting }
    }

    fn accept(&self) {
        match &self.listener {
            Accepting::Tcp(listener) => drop(listener.accept().unwrap()),
            Accepting::Unix(listener) => drop(listener.accept().unwrap()),
        }
    }
}
