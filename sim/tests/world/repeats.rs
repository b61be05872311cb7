//! The same seed is the same run; what differs is found; what is not touched stays as it was.

use core::cell::Cell;
use core::time::Duration;

use relay_core::machine::Target;
use relay_sim::{DiskFault, NodeId, World, verify};

use crate::clerk::{Clerk, Do, Heard, Reader};

/// Three nodes that talk, record, crash and are cut off, at drawn times.
fn busy(world: &mut World<Clerk>) {
    let nodes: Vec<_> = (0..3).map(|_| world.node(|_, _, disk| Clerk::of(disk))).collect();
    world.witness(Reader);
    nodes.iter().for_each(|node| {
        world.listen(*node, node.at(1));
    });
    let draws = world.draws();
    for step in 0..300_u64 {
        let pick = |what: u64, bound| draws.below(relay_sim::Domain::Workload, step, what, bound);
        let (one, two) = (nodes[pick(0, 3) as usize], nodes[pick(1, 3) as usize]);
        match pick(2, 16) {
            _ if !world.is_up(one) => world.restart(one),
            0..=3 => drop(world.command(one, Do::Dial(Target::tcp(two.at(1))))),
            4..=8 => drop(world.command(one, Do::Say(format!("ask {step}\n")))),
            9 | 10 => drop(world.command(one, Do::Record(format!("{step}")))),
            11 => world.crash(one),
            12 => world.cut(one, two),
            13 => world.heal(one, two),
            14 => world.disk_fault(one, (pick(3, 2) == 0).then_some(DiskFault::Failing)),
            _ => drop(world.command(one, Do::Close(relay_core::outbox::Close::Flush))),
        }
        world.run_for(Duration::from_micros(pick(4, 20_000)));
    }
    nodes.iter().for_each(|node| world.disk_fault(*node, None));
    world.run_for(Duration::from_secs(20));
}

#[test]
fn a_seed_says_it_all() {
    for seed in 0..8 {
        verify(seed, busy);
    }
}

#[test]
fn other_seeds_are_other_runs() {
    let run = |seed| {
        let mut world = World::new(seed);
        busy(&mut world);
        world.fingerprint()
    };
    assert_ne!(run(1), run(2));
}

#[test]
#[should_panic(expected = "event 6000\n  once:  0.000000000 n0 command #0")]
fn the_first_event_that_differs_is_shown() {
    let runs = Cell::new(0);
    verify(1, |world| {
        runs.set(runs.get() + 1);
        let node = world.node(|_, _, disk| Clerk::of(disk));
        for n in 0..3000 {
            let text = if n == 2999 { format!("run number {}", runs.get() % 5) } else { "x".to_owned() };
            world.command(node, Do::Record(text));
        }
    });
}

#[test]
fn a_fault_elsewhere_leaves_every_other_draw_alone() {
    let run = |faulty: bool| {
        let mut world = World::new(9);
        let nodes: Vec<NodeId> = (0..4).map(|_| world.node(|_, _, disk| Clerk::of(disk))).collect();
        for pair in nodes.chunks(2) {
            world.listen(pair[0], pair[0].at(1));
        }
        if faulty {
            world.command(nodes[1], Do::Dial(Target::tcp(nodes[0].at(1))));
            world.command(nodes[1], Do::Say("more\n".repeat(100)));
            world.cut(nodes[0], nodes[1]);
        }
        world.command(nodes[3], Do::Dial(Target::tcp(nodes[2].at(1))));
        world.command(nodes[3], Do::Say("ask x\n".repeat(50)));
        world.run_for(Duration::from_secs(5));
        world.events(nodes[2]).iter().map(|(at, _)| *at).collect::<Vec<_>>()
    };
    assert_eq!(run(false), run(true));
}

#[test]
fn a_run_can_be_read() {
    let mut world = World::new(1);
    world.keep_trace(0..u64::MAX);
    let node = world.node(|_, _, disk| Clerk::of(disk));
    world.command(node, Do::Wake(5));
    world.run_until(|world| world.events(node).iter().any(|(_, heard)| matches!(heard, Heard::Woken(_))));
    assert_eq!(
        world.trace(),
        [
            "0.000000000 n0 start #0 [0] ",
            "0.000000000 n0 started #0 [0] ",
            "0.000000000 n0 command #0 [7] Wake(5)",
            "0.000000005 n0 timer #0 [0] ",
            "0.000000005 n0 event #0 [19] Woken(0.000000005s)",
        ]
    );
}
