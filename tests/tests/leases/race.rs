//! 64 peers race for one resource of a real `relay serve`, over its sockets and its disk.

use std::time::{Duration, Instant};

use relay_tests::loads::name;
use relay_tests::peers::{PATIENCE, Runtime};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::Value;

use crate::Dice;
use crate::history::History;
use crate::wired::{Request, Wired, granted, home, queued};

const CLIENTS: usize = 64;
/// The resource changes hands 256 times.
const GRANTS_EACH: usize = 4;
/// So often, in a long race.
const MANY_GRANTS_EACH: usize = 200;
/// One of so many answers to a poll makes a client give its place up and come again.
const LEAVES: u64 = 40;

#[derive(Debug)]
enum Stage {
    /// Has asked, and hears.
    Asked,
    /// Waits, and polls then.
    Rests(Instant, String),
    /// Holds until then.
    Holds(Instant),
    Leaving,
    Done,
}

struct Racer {
    wired: Wired,
    number: usize,
    stage: Stage,
    claims: usize,
    grants: usize,
    /// Grants to others since it heard that it waits.
    passed: Option<usize>,
}

/// What all clients together see.
struct Hall {
    dice: Dice,
    holder: Option<usize>,
    newest_token: u64,
    granted: Vec<usize>,
    left: u64,
    most_passed: usize,
    each: usize,
}

impl Racer {
    fn lease(&self) -> String {
        format!("l{}-{}", self.number, self.claims)
    }

    fn ask(&mut self, request: &Request) {
        self.wired.send(request).unwrap();
    }

    /// Claims anew, under a new name.
    fn claim(&mut self) {
        self.claims += 1;
        self.passed = None;
        self.stage = Stage::Asked;
        self.ask(&Request::wait(&self.lease(), "prize", None));
    }

    fn hear(&mut self, answer: &Value, hall: &mut Hall) {
        match (&self.stage, answer["outcome"].as_str().unwrap()) {
            (Stage::Asked, "granted") => {
                assert_eq!(hall.holder, None, "{} is granted what another holds", self.number);
                hall.holder = Some(self.number);
                let token = granted(answer);
                assert!(token > hall.newest_token, "token {token} after {}", hall.newest_token);
                hall.newest_token = token;
                self.passed = None;
                hall.granted.push(self.number);
                self.stage = Stage::Holds(Instant::now() + Duration::from_micros(hall.dice.below(300)));
            }
            (Stage::Asked, "queued") => {
                self.passed.get_or_insert(0);
                if hall.dice.below(LEAVES) == 0 {
                    hall.left += 1;
                    self.ask(&Request::release(&self.lease()));
                    self.stage = Stage::Leaving;
                } else {
                    let rest = Duration::from_micros(3000 + hall.dice.below(9000));
                    self.stage = Stage::Rests(Instant::now() + rest, queued(answer));
                }
            }
            (Stage::Asked, "released") => {
                self.grants += 1;
                if self.grants < hall.each { self.claim() } else { self.stage = Stage::Done }
            }
            (Stage::Leaving, "not_found") => self.claim(),
            (stage, _) => panic!("{} at {stage:?}: {answer}", self.number),
        }
    }

    fn go_on(&mut self, hall: &mut Hall) {
        match &self.stage {
            Stage::Rests(until, waiter_id) if *until <= Instant::now() => {
                let poll = Request::wait(&self.lease(), "prize", Some(waiter_id));
                self.stage = Stage::Asked;
                self.ask(&poll);
            }
            Stage::Holds(until) if *until <= Instant::now() => {
                // From here on another may hold it.
                assert_eq!(hall.holder.take(), Some(self.number));
                self.stage = Stage::Asked;
                self.ask(&Request::release(&self.lease()));
            }
            Stage::Asked | Stage::Rests(..) | Stage::Holds(_) | Stage::Leaving | Stage::Done => {}
        }
    }
}

fn race(runtime: Runtime, each: usize) -> (Hall, History) {
    let names: Vec<_> = (0..CLIENTS).map(name).collect();
    let home = home(env!("CARGO_BIN_EXE_relay-under-test"), runtime, &names);
    let relay = home.serve();
    let racer = |(number, name): (usize, &String)| {
        let wired = Wired::join(relay.address, name);
        wired.stream.set_nonblocking(true).unwrap();
        Racer { wired, number, stage: Stage::Done, claims: 0, grants: 0, passed: None }
    };
    let mut racers: Vec<_> = names.iter().enumerate().map(racer).collect();
    let mut hall = Hall {
        dice: Dice::new(64),
        holder: None,
        newest_token: 0,
        granted: Vec::new(),
        left: 0,
        most_passed: 0,
        each,
    };
    racers.iter_mut().for_each(Racer::claim);
    let mut progress = Instant::now();
    while racers.iter().any(|racer| !matches!(racer.stage, Stage::Done)) {
        assert!(progress.elapsed() < PATIENCE, "after {} grants nobody is served", hall.granted.len());
        let mut fds: Vec<_> =
            racers.iter().map(|racer| PollFd::new(&racer.wired.stream, PollFlags::IN)).collect();
        let moment = Timespec { tv_sec: 0, tv_nsec: 500_000 };
        poll(&mut fds, Some(&moment)).unwrap();
        let ready: Vec<_> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        for at in (0..racers.len()).filter(|at| ready[*at]) {
            for answer in racers[at].wired.answers() {
                let before = hall.granted.len();
                racers[at].hear(&answer, &mut hall);
                if hall.granted.len() > before {
                    progress = Instant::now();
                    for passed in racers.iter_mut().filter_map(|racer| racer.passed.as_mut()) {
                        *passed += 1;
                        hall.most_passed = hall.most_passed.max(*passed);
                    }
                }
            }
        }
        racers.iter_mut().for_each(|racer| racer.go_on(&mut hall));
    }
    relay.terminate();
    (hall, History::read(&home.path().join("link.db")))
}

/// One holder at every instant, by the clients and by the journal; first come, first served; nobody is passed by more
/// than one grant to each other client.
fn assert_fair(runtime: Runtime, each: usize) {
    let (hall, history) = race(runtime, each);
    let expected = CLIENTS * each;
    assert_eq!((hall.granted.len(), history.grants), (expected, expected as u64), "{runtime:?}");
    assert_eq!((history.holder, history.places.len(), history.left), (None, 0, hall.left), "{runtime:?}");
    for number in 0..CLIENTS {
        assert_eq!(hall.granted.iter().filter(|other| **other == number).count(), each, "{runtime:?}");
    }
    assert!(
        hall.most_passed < CLIENTS,
        "{runtime:?}: {} were served before one who waited",
        hall.most_passed
    );
    assert!(history.most_passed < CLIENTS as u64, "{runtime:?}: {}", history.most_passed);
    assert!(hall.left > 0, "some gave up and came again");
}

#[test]
fn of_64_that_race_one_holds_at_a_time_in_order_and_nobody_starves_on_mio() {
    assert_fair(Runtime::Mio, GRANTS_EACH);
}

#[test]
fn of_64_that_race_one_holds_at_a_time_in_order_and_nobody_starves_on_smol() {
    assert_fair(Runtime::Smol, GRANTS_EACH);
}

#[test]
#[ignore = "12,800 grants take minutes in a debug build"]
fn of_64_that_each_win_200_times_one_holds_at_a_time_in_order_and_nobody_starves() {
    for runtime in Runtime::ALL {
        assert_fair(runtime, MANY_GRANTS_EACH);
    }
}
