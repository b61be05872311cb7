//! Disks: what was acknowledged survives, and nothing is seen that does not.

use core::time::Duration;

use relay_core::action::{Action, Contents, FilePath};
use relay_core::journal::Seq;
use relay_core::machine::{Refused, Target};
use relay_sim::{DiskFault, NodeId, Splits, World};

use crate::clerk::{Clerk, Do, Heard, Reader, count, texts};

fn one(seed: u64) -> (World<Clerk>, NodeId) {
    let mut world = World::new(seed);
    let node = world.node(|_, _, disk| Clerk::of(disk));
    world.witness(Reader);
    (world, node)
}

#[test]
fn what_was_answered_survives_a_crash() {
    let (mut world, node) = one(3);
    let first = world.command(node, Do::Record("one".into()));
    assert_eq!(world.answer(node, first), None);
    world.settle();
    assert_eq!(world.answer(node, first), Some(&Ok(Seq::new(1))));
    world.crash(node);
    world.restart(node);
    assert_eq!(world.machine(node).map(|clerk| clerk.records.clone()), Some(vec!["one".to_owned()]));
}

#[test]
fn what_was_not_synced_may_be_lost_and_was_then_not_answered() {
    let (mut lost, mut kept) = (0, 0);
    for seed in 0..64 {
        let (mut world, node) = one(seed);
        world.command(node, Do::Record("one".into()));
        world.crash(node);
        world.restart(node);
        world.settle();
        assert_eq!(world.answers(node).count(), 0);
        match world.machine(node).map_or(0, |clerk| clerk.records.len()) {
            0 => lost += 1,
            _ => kept += 1,
        }
    }
    assert!(lost > 0 && kept > 0, "a crash keeps what it may: {lost} lost, {kept} kept");
}

#[test]
fn a_disk_that_hangs_ends_nothing_until_it_goes_on() {
    let (mut world, node) = one(2);
    world.stall_disk(node, true);
    let recorded = world.command(node, Do::Record("one".into()));
    let path = FilePath::new("a").expect("a path");
    let contents = Contents::public(b"text".to_vec());
    world.command(node, Do::Act(Action::WriteFile { path, contents }));
    world.run_for(Duration::from_secs(60));
    assert_eq!((world.answer(node, recorded), world.disk(node).file("a")), (None, None));
    world.stall_disk(node, false);
    world.settle();
    assert_eq!(world.answer(node, recorded), Some(&Ok(Seq::new(1))));
    assert!(world.disk(node).file("a").is_some());
    // What hung in an earlier life is over with it.
    world.stall_disk(node, true);
    world.command(node, Do::Record("two".into()));
    world.run_for(Duration::from_secs(60));
    world.restart(node);
    world.stall_disk(node, false);
    world.settle();
    assert!(world.answers(node).count() == 1 && world.is_up(node));
}

#[test]
fn batches_that_queue_during_a_sync_go_together() {
    let (mut world, node) = one(1);
    world.sync_time(Duration::from_millis(5)..=Duration::from_millis(5));
    for n in 0..10 {
        world.command(node, Do::Record(format!("{n}")));
    }
    world.settle();
    assert_eq!(world.now(), Duration::from_millis(10));
    assert_eq!(world.answers(node).count(), 10);
}

#[test]
fn a_disk_that_fails_refuses_and_then_keeps_every_record() {
    for fault in [DiskFault::Full, DiskFault::Failing] {
        for seed in 0..16 {
            let (mut world, node) = one(seed);
            world.disk_fault(node, Some(fault));
            let asked = world.command(node, Do::Record("one".into()));
            world.run_for(Duration::from_millis(100));
            assert_eq!(world.answer(node, asked), Some(&Err(Refused::NotDurable)));
            let kept =
                |world: &World<Clerk>| count(world.events(node), |heard| matches!(heard, Heard::Kept(_)));
            assert_eq!((kept(&world), count(world.events(node), |h| *h == Heard::Failing)), (0, 1));
            world.command(node, Do::Record("two".into()));
            world.run_for(Duration::from_millis(100));
            world.disk_fault(node, None);
            world.settle();
            assert_eq!(count(world.events(node), |heard| matches!(heard, Heard::Resumed(_))), 1);
            assert_eq!(kept(&world), 2);
            let records: Vec<_> = world.disk(node).records().map(|(_, record)| record.to_vec()).collect();
            assert_eq!(records, [b"one", b"two"]);
        }
    }
}

#[test]
fn a_journal_cut_behind_a_snapshot_restores_the_same_machine() {
    let (mut world, node) = one(1);
    for n in 0..5 {
        world.command(node, Do::Record(format!("{n}")));
    }
    assert!(!world.compact(node));
    world.settle();
    assert!(world.compact(node));
    assert_eq!(world.disk(node).records().count(), 0);
    world.command(node, Do::Record("5".into()));
    world.settle();
    world.crash(node);
    world.restart(node);
    assert_eq!(world.machine(node).map(|clerk| clerk.records.join("")), Some("012345".to_owned()));
}

#[test]
fn files_are_there_when_their_action_has_ended() {
    let (mut world, node) = one(1);
    let path = FilePath::new("peers/a.key").expect("a plain path");
    let read = || Do::Act(Action::ReadFile { path: path.clone(), limit: 8 });
    world.command(node, read());
    let contents = Contents::secret(b"key".to_vec());
    world.command(node, Do::Act(Action::WriteFile { path: path.clone(), contents }));
    world.command(node, read());
    assert_eq!(world.disk(node).file("peers/a.key"), None);
    world.settle();
    world.crash(node);
    world.restart(node);
    world.command(node, read());
    world.command(node, Do::Act(Action::ReadFile { path: path.clone(), limit: 2 }));
    world.command(node, Do::Act(Action::RemoveFile { path: path.clone() }));
    world.settle();
    let done = |heard: &Heard| if let Heard::Done(text) = heard { Some(text.clone()) } else { None };
    let done: Vec<_> = world.events(node).iter().filter_map(|(_, heard)| done(heard)).collect();
    assert_eq!(done, ["Err(NotFound)", "Ok(Done)", "key", "key", "Err(TooLarge)", "Ok(Done)"]);
    assert_eq!(world.disk(node).file("peers/a.key"), None);
}

fn asks(hasty: bool) -> World<Clerk> {
    let mut world = World::new(5);
    let server = world.node(move |_, _, disk| {
        let mut clerk = Clerk::of(disk);
        clerk.hasty = hasty;
        clerk
    });
    let client = world.node(|_, _, _| Clerk::default());
    world.witness(Reader);
    world.listen(server, server.at(1));
    world.command(client, Do::Dial(Target::tcp(server.at(1))));
    world.settle();
    world.command(client, Do::Say("ask x\n".into()));
    world.settle();
    assert_eq!(texts(world.events(client)), ["rests on 1"]);
    assert_eq!(world.newest_visible(server), Seq::new(1));
    world
}

#[test]
fn a_reply_leaves_behind_its_record() {
    asks(false);
}

#[test]
#[should_panic(expected = "rule broken: durable before visible")]
fn a_reply_that_overtakes_its_record_is_caught() {
    asks(true);
}

#[test]
fn a_slow_disk_congests_its_node_and_loses_nothing() {
    let mut world = World::new(1);
    let server = world.node(|_, _, disk| Clerk::of(disk));
    world.witness(Reader);
    world.listen(server, server.at(1));
    world.splits(Splits::Whole);
    let second = Duration::from_secs(1);
    world.sync_time(second..=second);
    let stranger = world.stranger(server.at(1));
    // Each asks for a record of a MiB: the journal is given sixteen, and then no more is read.
    let ask = format!("ask {}\n", "x".repeat(1 << 20));
    for _ in 0..20 {
        world.say(stranger, &ask);
    }
    world.run_for(Duration::from_millis(900));
    let recorded = |world: &World<Clerk>| world.machine(server).map_or(0, |clerk| clerk.records.len());
    assert!((16..=18).contains(&recorded(&world)), "{}", recorded(&world));
    world.run_for(100 * second);
    assert_eq!(recorded(&world), 20);
    assert!(world.heard(stranger).ends_with(b"rests on 20\n"));
}

#[test]
fn a_congested_node_accepts_nobody_until_its_disk_goes_on() {
    let (mut world, node) = one(1);
    world.listen(node, node.at(1));
    world.stall_disk(node, true);
    world.command(node, Do::Record("x".repeat(17 << 20)));
    let stranger = world.stranger(node.at(1));
    world.run_for(Duration::from_secs(60));
    // Its system took the call, and nobody there has answered it.
    assert!(world.is_connected(stranger));
    let opened = |world: &World<Clerk>| count(world.events(node), |heard| matches!(heard, Heard::Opened(_)));
    assert_eq!(opened(&world), 0);
    world.stall_disk(node, false);
    world.settle();
    assert_eq!(opened(&world), 1);
}
