//! The wall clock of an authority is stepped by a day, either way, while its leases live, and across a restart.

use std::time::Duration;

use relay_core::lease::{Answered, Ask, BootId, Lapse, Patience};
use relay_core::machine::Ticket;
use relay_core::message::RawValue;
use relay_core::message::lease::Mode;
use relay_core::peer::{Answer, Command, Event, Report};
use relay_core::time::Mono;
use relay_tests::fleet::{Fleet, Relay, id};

const DAY: i64 = 86_400_000;

fn claim(lease: &str, session: &str, resource: &str, ttl_secs: u64, wait: bool) -> Command {
    let ask = Ask::Claim {
        lease_id: lease.into(),
        session: session.into(),
        kind: "res".into(),
        value: resource.into(),
        mode: Mode::Exclusive,
        ttl_secs,
        reason: String::new(),
        wait: wait.then_some(Patience::Endless),
    };
    Command::Lease { authority: None, ask }
}

fn report(sessions: &str) -> Command {
    let sessions = RawValue::from_string(sessions.to_owned()).unwrap();
    Command::Report(Report { sessions: Some(sessions), ..Report::default() })
}

fn certain_until(fleet: &Fleet, relay: Relay, ticket: Ticket) -> Mono {
    match fleet.answer(relay, ticket) {
        Some(Answer::Lease { result: Ok(Answered::Granted { certain_until, .. }), .. }) => *certain_until,
        other => panic!("not granted: {other:?}"),
    }
}

/// What became of the leases and when, in virtual time, and until when their holder was certain of each.
fn run(step: i64) -> (Vec<(Duration, String, Lapse)>, Vec<Mono>) {
    let mut fleet = Fleet::new(11);
    let authority = fleet.relay("authority", |spec| {
        spec.knows("one");
        spec.settings.boot = BootId::new("boot");
    });
    let at = authority.address();
    let one = fleet.relay("one", |spec| {
        spec.knows_at("authority", [at]);
        spec.settings.authority = Some(id("authority"));
    });
    fleet.world.settle();
    fleet.tell(one, report(r#"[{"session_id":"lives"}]"#));
    let mut granted = Vec::new();
    for (lease, session, resource, ttl) in
        [("renewed", "lives", "x", 20), ("lapses", "mute", "y", 40), ("long", "mute", "z", 600)]
    {
        granted.push(fleet.tell(one, claim(lease, session, resource, ttl, false)));
        fleet.pass(1);
    }
    granted.push(fleet.tell(one, claim("waits", "patient", "y", 30, true)));
    fleet.pass(9);
    fleet.world.step_wall(authority.node, step);
    fleet.pass(10);
    fleet.world.crash(authority.node);
    fleet.world.step_wall(authority.node, step);
    fleet.pass(1);
    fleet.world.restart(authority.node);
    fleet.pass(29);
    fleet.world.step_wall(authority.node, -3 * step);
    fleet.pass(90);
    granted.push(fleet.tell(one, claim("renewed", "lives", "x", 20, false)));
    fleet.world.step_wall(authority.node, step);
    fleet.tell(one, report("[]"));
    fleet.pass(500);
    let lapses = fleet.events(authority).iter().filter_map(|(at, event)| {
        let Event::Lease(change) = event else { return None };
        Some((*at, change.id.clone(), change.lapse))
    });
    (lapses.collect(), granted.into_iter().map(|ticket| certain_until(&fleet, one, ticket)).collect())
}

#[test]
fn a_day_either_way_ends_no_lease_and_extends_none_over_a_restart_too() {
    let (still, certain) = run(0);
    let told: Vec<_> = still.iter().map(|(_, id, lapse)| (id.as_str(), lapse.as_str())).collect();
    assert_eq!(
        told,
        [
            ("renewed", "granted"),
            ("lapses", "granted"),
            ("long", "granted"),
            ("lapses", "expired"),
            ("waits", "granted"),
            ("waits", "expired"),
            ("renewed", "expired"),
            ("long", "expired"),
        ]
    );
    let when = |id: &str, nth: usize| still.iter().filter(|(_, other, _)| other == id).nth(nth).unwrap().0;
    for (id, secs) in [("lapses", 40), ("waits", 30), ("long", 600)] {
        let lived = when(id, 1) - when(id, 0);
        assert!(lived.abs_diff(Duration::from_secs(secs)) < Duration::from_millis(10), "{id}: {lived:?}");
    }
    assert!(when("renewed", 1) - when("renewed", 0) > Duration::from_secs(140));
    for step in [DAY, -DAY] {
        assert_eq!(run(step), (still.clone(), certain.clone()), "stepped by {step} ms");
    }
}
