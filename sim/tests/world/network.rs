//! The network of a world: bytes arrive whole, in order and once; ends of connections are told once.

use core::time::Duration;

use relay_core::machine::{CloseReason, Target};
use relay_core::outbox::Close;
use relay_sim::{NodeId, Splits, World};

use crate::clerk::{Clerk, Do, Heard, REFUSED, TIMED_OUT, count, ends, texts};

const PORT: u16 = 7000;

fn pair(seed: u64) -> (World<Clerk>, NodeId, NodeId) {
    let mut world = World::new(seed);
    let server = world.node(|_, _, disk| Clerk::of(disk));
    let client = world.node(|_, _, disk| Clerk::of(disk));
    world.listen(server, server.at(PORT));
    (world, server, client)
}

fn connected(seed: u64) -> (World<Clerk>, NodeId, NodeId) {
    let (mut world, server, client) = pair(seed);
    world.command(client, Do::Dial(Target::tcp(server.at(PORT))));
    world.settle();
    (world, server, client)
}

#[test]
fn two_nodes_meet_talk_and_part() {
    let (mut world, server, client) = connected(1);
    world.command(client, Do::Say("hello\n".into()));
    world.settle();
    assert_eq!(texts(world.events(server)), ["hello"]);
    world.command(server, Do::Say("welcome\n".into()));
    world.command(server, Do::Close(Close::Flush));
    world.settle();
    assert_eq!(texts(world.events(client)), ["welcome"]);
    assert_eq!(count(world.events(client), |heard| *heard == Heard::Eof), 1);
    world.command(client, Do::Finish);
    world.settle();
    assert_eq!(ends(world.events(client)), [CloseReason::Finished]);
    assert_eq!(ends(world.events(server)), [CloseReason::Asked]);
    assert!(world.links(server, client).is_empty());
}

#[test]
fn bytes_arrive_in_order_however_they_are_cut() {
    for (seed, splits) in [(1, Splits::Whole), (2, Splits::Bytes), (3, Splits::Drawn), (4, Splits::Drawn)] {
        let (mut world, server, client) = connected(seed);
        world.splits(splits);
        let lines: Vec<_> = (0..200).map(|n| format!("line {n} {}", "x".repeat(n))).collect();
        for line in &lines {
            world.command(client, Do::Say(format!("{line}\n")));
        }
        world.settle();
        assert_eq!(texts(world.events(server)), lines, "seed {seed}");
    }
}

#[test]
fn a_dial_that_nobody_answers_ends_once() {
    let (mut world, server, client) = pair(1);
    world.command(client, Do::Dial(Target::tcp(server.at(1))));
    world.settle();
    assert_eq!(ends(world.events(client)), [REFUSED]);
    world.hang(server.at(PORT));
    world.command(client, Do::Dial(Target::tcp(server.at(PORT))));
    world.run_for(Duration::from_secs(11));
    assert_eq!(ends(world.events(client)), [REFUSED, TIMED_OUT]);
    world.serve(server.at(PORT));
    world.refuse(server.at(PORT));
    world.command(client, Do::Dial(Target::tcp(server.at(PORT))));
    world.settle();
    assert_eq!(ends(world.events(client)), [REFUSED, TIMED_OUT, REFUSED]);
}

#[test]
fn a_reader_that_pauses_or_stalls_holds_its_sender_up() {
    let (mut world, server, client) = connected(1);
    world.stall_reader(server, true);
    let line = format!("{}\n", "x".repeat(99_999));
    world.command(client, Do::Say(line.clone()));
    world.command(client, Do::Pause);
    world.run_for(Duration::from_secs(60));
    assert_eq!(count(world.events(server), |heard| matches!(heard, Heard::Text(_))), 0);
    assert_eq!(count(world.events(client), |heard| *heard == Heard::Drained), 1, "64 KiB are the low mark");
    world.command(client, Do::Say(line.repeat(3)));
    world.command(client, Do::Pause);
    world.run_for(Duration::from_secs(60));
    assert_eq!(count(world.events(client), |heard| *heard == Heard::Drained), 1);
    world.stall_reader(server, false);
    world.settle();
    assert_eq!(texts(world.events(server)).len(), 4);
    assert_eq!(count(world.events(client), |heard| *heard == Heard::Drained), 2);
}

#[test]
fn a_listener_that_does_not_accept_lets_dials_wait() {
    let (mut world, server, client) = pair(1);
    world.backlog(2);
    world.command(server, Do::Accept(false));
    for _ in 0..3 {
        world.command(client, Do::Dial(Target::tcp(server.at(PORT))));
    }
    world.command(client, Do::Say("early\n".into()));
    world.run_for(Duration::from_secs(2));
    let opened = |heard: &Heard| matches!(heard, Heard::Opened(_));
    assert_eq!(count(world.events(client), opened), 2);
    assert_eq!(count(world.events(server), opened), 0);
    world.command(server, Do::Accept(true));
    world.settle();
    assert_eq!(count(world.events(server), opened), 3);
    assert_eq!(texts(world.events(server)), ["early"; 3]);
}
