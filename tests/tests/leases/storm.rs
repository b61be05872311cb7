//! 100,000 leases end at one instant; fewer in a debug build, where the world's own book-keeping takes its time.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use relay_core::journal::{Journal, Records, Seq};
use relay_core::lease::{Answered, Ask, BootId, Record};
use relay_core::machine::{Input, Machine, Ticket};
use relay_core::message::lease::{Mode, Outcome};
use relay_core::outbox::Outbox;
use relay_core::peer::{Answer, Command, Event, Node, PeerRecord, Settings};
use relay_core::secret::Key;
use relay_core::time::{Mono, Now};
use relay_sim::{NodeId, World};
use relay_tests::fleet::{id, wire};

const LEASES: usize = if cfg!(debug_assertions) { 30_000 } else { 100_000 };
/// What the authority ends in one step.
const BATCH: u64 = 1024;
/// Seconds from the authority's start to the instant.
const TTL: u64 = 30;

/// A node whose steps are counted by how much each recorded.
struct Counted {
    node: Node,
    steps: Rc<RefCell<BTreeMap<u64, usize>>>,
}

impl Machine for Counted {
    type Command = Command;
    type Answer = Answer;
    type Event = Event;

    fn step(&mut self, now: Now, input: Input<'_, Command>, out: &mut Outbox<Event, Answer>) {
        let before = out.recorded().number();
        self.node.step(now, input, out);
        *self.steps.borrow_mut().entry(out.recorded().number() - before).or_default() += 1;
    }

    fn deadline(&self) -> Option<Mono> {
        self.node.deadline()
    }

    fn idle(&self) -> bool {
        self.node.idle()
    }

    fn gauges(&self, sink: &mut dyn FnMut(&'static str, u64)) {
        self.node.gauges(sink);
    }
}

fn paired(with: &str, key: Key, address: Option<core::net::SocketAddr>) -> PeerRecord {
    PeerRecord { id: id(with), key: Some(key), addresses: address.into_iter().collect() }
}

/// A journal of leases that were all granted as its machine started.
fn granted_at_once() -> Records {
    let mut records = Records::reuse(Records::default(), Seq::new(1));
    records.push(|bytes| Record::LeaseBoot { boot: "boot".into(), mono: 0 }.write(bytes));
    for n in 0..LEASES {
        let record = Record::LeaseGranted {
            id: format!("l{n}").into(),
            session: "s".into(),
            peer: format!("p{}", n / 10_000).into(),
            kind: "res".into(),
            value: n.to_string().into(),
            mode: Mode::Exclusive,
            ttl_secs: TTL,
            reason: "".into(),
            wall: 0,
            mono: 0,
            listed: false,
            place: None,
        };
        records.push(|bytes| record.write(bytes));
    }
    records
}

/// A world with an authority that has them, and a relay that asks it.
struct Storm {
    world: World<Counted>,
    authority: NodeId,
    asker: NodeId,
    /// How many of the authority's steps recorded so many records.
    steps: Rc<RefCell<BTreeMap<u64, usize>>>,
}

impl Storm {
    fn new() -> Self {
        let mut world = World::new(5);
        // Quick against the storm, which takes a tick of 1 ms a batch.
        world.latency(Duration::from_micros(50)..=Duration::from_micros(100));
        world.sync_time(Duration::from_micros(100)..=Duration::from_micros(200));
        let steps = Rc::new(RefCell::new(BTreeMap::new()));
        let (key, counts) = (wire::key("authority", "asker"), Rc::clone(&steps));
        let authority = world.node(move |_, _, disk| {
            disk.append(0, &granted_at_once()).unwrap();
            let mut settings = Settings::new(id("authority"));
            settings.boot = BootId::new("boot");
            let node = Node::new(settings, [1; 32], vec![paired("asker", key.clone(), None)], None);
            Counted { node: disk.restore(node).unwrap(), steps: Rc::clone(&counts) }
        });
        let at = authority.at(9000);
        world.listen(authority, at);
        let asker = world.node(move |_, _, _| {
            let mut settings = Settings::new(id("asker"));
            settings.authority = Some(id("authority"));
            settings.heartbeat = Duration::from_secs(1);
            let peers = vec![paired("authority", wire::key("authority", "asker"), Some(at))];
            Counted { node: Node::new(settings, [2; 32], peers, None), steps: Rc::default() }
        });
        Self { world, authority, asker, steps }
    }

    fn held(&self) -> u64 {
        self.world.gauge(self.authority, "leases").unwrap()
    }

    fn tell(&mut self, command: Command) -> Ticket {
        self.world.command(self.asker, command)
    }

    fn tell_lease(&mut self, ask: Ask) -> Ticket {
        self.tell(Command::Lease { authority: None, ask })
    }

    fn answered(&mut self, ticket: Ticket) -> Answered {
        let answer = self.answer(ticket);
        let Answer::Lease { result: Ok(answered), .. } = answer else {
            panic!("no answer about leases: {answer:?}")
        };
        answered.clone()
    }

    fn answer(&mut self, ticket: Ticket) -> &Answer {
        let asker = self.asker;
        self.world.run_until(|world| world.answer(asker, ticket).is_some());
        self.world.answer(asker, ticket).unwrap().as_ref().unwrap()
    }
}

fn claim(lease: &str, value: usize) -> Ask {
    Ask::Claim {
        lease_id: lease.into(),
        session: "s".into(),
        kind: "res".into(),
        value: value.to_string(),
        mode: Mode::Exclusive,
        ttl_secs: 600,
        reason: String::new(),
        wait: None,
    }
}

#[test]
fn the_end_of_all_leases_at_one_instant_is_bounded_work_a_step_and_keeps_nobody_waiting() {
    let mut storm = Storm::new();
    storm.world.run_for(Duration::from_secs(TTL - 1));
    let early = storm.tell_lease(claim("early", LEASES - 1));
    assert!(matches!(storm.answered(early), Answered::Other(Outcome::Conflict(_))));
    assert_eq!(storm.held(), LEASES as u64);
    let authority = storm.authority;
    storm.world.run_until(|world| world.gauge(authority, "leases").is_some_and(|held| held < LEASES as u64));

    // Between two batches: what is over by time is free, and told no more, whether its end was recorded or not.
    let granted = storm.tell_lease(claim("late", LEASES - 1));
    let list = storm.tell_lease(Ask::List);
    let ping = storm.tell(Command::Ping { peer: id("authority") });
    let granted = storm.answered(granted);
    assert!(matches!(granted, Answered::Granted { .. }), "{granted:?}");
    let list = storm.answered(list);
    let Answered::Other(Outcome::List { leases, .. }) = list else { panic!("{list:?}") };
    assert!(leases.iter().all(|lease| lease.id == "late"), "{leases:?}");
    assert!(matches!(storm.answer(ping), Answer::Pong(_)));
    assert!(storm.held() > BATCH, "the storm goes on: {} are left", storm.held());

    let began = storm.world.now();
    storm.world.run_until(|world| world.gauge(authority, "leases") == Some(1));
    assert!(storm.world.now() - began < Duration::from_secs(1), "{:?}", storm.world.now() - began);
    storm.world.run_for(Duration::from_secs(100));
    assert_eq!(storm.held(), 1);
    for node in [storm.authority, storm.asker] {
        let is_down = |(_, event): &(Duration, Event)| matches!(event, Event::LinkDown { .. });
        assert!(!storm.world.events(node).iter().any(is_down), "heartbeats went on");
    }
    let steps = storm.steps.borrow();
    let most = *steps.last_key_value().unwrap().0;
    // A claim's own two records may come on top: what it ends by time, and its grant.
    assert!(most <= BATCH + 2, "a step recorded {most}");
    let full: usize = steps.range(BATCH..).map(|(_, steps)| steps).sum();
    assert_eq!(full, LEASES / BATCH as usize, "{steps:?}");
}
