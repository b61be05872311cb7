//! A node whose journal fails: leases stand still, all else goes on.

use relay_core::action::{ActId, Action};
use relay_core::host::Host;
use relay_core::journal::{Records, Seq};
use relay_core::lease::{Answered, Ask};
use relay_core::machine::{ConnId, ListenerId, Refused, Target, Ticket};
use relay_core::message::lease::{Mode, Outcome};
use relay_core::peer::{Answer, Command, Event, Node, Settings};
use relay_core::port::{Ending, Port, Wrote};
use relay_core::text::PeerId;
use relay_core::time::{Mono, Now, Wall};

/// An owner who listens, and a journal that says nothing by itself.
#[derive(Default)]
struct Owner {
    answers: Vec<Result<Answer, Refused>>,
    events: Vec<Event>,
}

impl Port<Node> for Owner {
    fn append(&mut self, _records: Records) {}
    fn write(&mut self, _conn: ConnId, bytes: &[u8]) -> Wrote {
        Wrote::Bytes(bytes.len())
    }
    fn finish(&mut self, _conn: ConnId) {}
    fn reading(&mut self, _conn: ConnId, _on: bool) {}
    fn accepting(&mut self, _listener: ListenerId, _on: bool) {}
    fn close(&mut self, _conn: ConnId, _how: Ending) {}
    fn dial(&mut self, _conn: ConnId, _target: &Target) {}
    fn act(&mut self, _id: ActId, _action: Action) {}
    fn event(&mut self, event: Event) {
        self.events.push(event);
    }
    fn answer(&mut self, _ticket: Ticket, answer: Result<Answer, Refused>) {
        self.answers.push(answer);
    }
}

const NOW: Now = Now { mono: Mono::from_nanos(1), wall: Wall::from_millis(1_700_000_000_000) };

struct Rig {
    host: Host<Node>,
    owner: Owner,
}

impl Rig {
    /// A node whose journal fails while a claim waits for it.
    fn failing() -> Self {
        let id = PeerId::parse("a").expect("a letter is an id");
        let node = Node::new(Settings::new(id), [7; 32], Vec::new(), None);
        let mut rig = Self { host: Host::new(node, Seq::NONE), owner: Owner::default() };
        assert!(rig.ask(claim("l1")).is_none(), "a claim waits for its record");
        rig.host.persist_failed(NOW);
        rig.settle();
        assert!(matches!(rig.owner.answers.pop(), Some(Err(Refused::NotDurable))));
        rig
    }

    fn settle(&mut self) {
        while self.host.settle(NOW, &mut self.owner) {}
    }

    fn ask(&mut self, command: Command) -> Option<Result<Answer, Refused>> {
        self.host.command(NOW, command);
        self.settle();
        self.owner.answers.pop()
    }

    /// The journal's states that were told since the last time.
    fn told(&mut self) -> Vec<bool> {
        let states = self.owner.events.drain(..).filter_map(|event| {
            let Event::Journal { failing } = event else { return None };
            Some(failing)
        });
        states.collect()
    }
}

fn claim(lease_id: &str) -> Command {
    let ask = Ask::Claim {
        lease_id: lease_id.into(),
        session: "s".into(),
        kind: "res".into(),
        value: lease_id.into(),
        mode: Mode::Exclusive,
        ttl_secs: 60,
        reason: String::new(),
        wait: None,
    };
    Command::Lease { authority: None, ask }
}

fn outcome(answer: Option<Result<Answer, Refused>>) -> Outcome {
    match answer {
        Some(Ok(Answer::Lease { result: Ok(Answered::Other(outcome)), .. })) => outcome,
        other => panic!("an authority answers at once: {other:?}"),
    }
}

#[test]
fn claims_are_refused_at_once_and_what_is_durable_is_listed() {
    let mut rig = Rig::failing();
    assert!(matches!(outcome(rig.ask(claim("l2"))), Outcome::Error(_)));
    let list = rig.ask(Command::Lease { authority: None, ask: Ask::List });
    assert!(matches!(outcome(list), Outcome::List { leases, .. } if leases.is_empty()));
}

#[test]
fn what_rests_on_no_lease_is_answered() {
    let mut rig = Rig::failing();
    assert!(matches!(rig.ask(Command::Peers), Some(Ok(Answer::Peers(_)))));
}

#[test]
fn the_owner_is_told_when_it_fails_and_when_it_works_again() {
    let mut rig = Rig::failing();
    assert_eq!(rig.told(), [true]);
    rig.host.resumed(NOW, Seq::new(u64::MAX));
    rig.settle();
    assert_eq!(rig.told(), [false]);
    let granted = rig.ask(claim("l1"));
    let Some(Ok(Answer::Lease { result: Ok(Answered::Granted { .. }), .. })) = granted else {
        panic!("a claim that was in doubt is granted to who repeats it: {granted:?}")
    };
}
