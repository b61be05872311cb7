//! Faults: what each end of a link learns of a crash, a cut and a reset.

use core::time::Duration;

use relay_core::machine::{CloseReason, Target};
use relay_sim::{NodeId, World};

use crate::clerk::{Clerk, Do, Heard, TIMED_OUT, count, ends, texts};

const SECOND: Duration = Duration::from_secs(1);

fn connected(seed: u64) -> (World<Clerk>, NodeId, NodeId) {
    let mut world = World::new(seed);
    let server = world.node(|_, _, disk| Clerk::of(disk));
    let client = world.node(|_, _, disk| Clerk::of(disk));
    world.listen(server, server.at(1));
    world.command(client, Do::Dial(Target::tcp(server.at(1))));
    world.settle();
    (world, server, client)
}

fn say(world: &mut World<Clerk>, node: NodeId, text: &str) {
    world.command(node, Do::Say(text.to_owned()));
}

#[test]
fn a_crash_leaves_the_peer_with_half_a_connection_until_it_writes() {
    let (mut world, server, client) = connected(1);
    world.crash(server);
    world.run_for(60 * SECOND);
    assert_eq!(ends(world.events(client)), []);
    say(&mut world, client, "nobody\n");
    world.run_for(60 * SECOND);
    assert_eq!(ends(world.events(client)), []);
    world.restart(server);
    world.settle();
    assert_eq!(ends(world.events(client)), [CloseReason::Reset]);
    assert!(texts(world.events(server)).is_empty());
    world.command(client, Do::Dial(Target::tcp(server.at(1))));
    say(&mut world, client, "again\n");
    world.settle();
    assert_eq!(texts(world.events(server)), ["again"]);
}

#[test]
fn a_peer_that_is_silent_learns_of_a_restart_when_it_speaks() {
    let (mut world, server, client) = connected(1);
    world.crash(server);
    world.restart(server);
    world.run_for(60 * SECOND);
    assert_eq!(ends(world.events(client)), []);
    say(&mut world, client, "hello\n");
    world.settle();
    assert_eq!(ends(world.events(client)), [CloseReason::Reset]);
}

#[test]
fn a_dial_of_a_dark_node_hangs_and_of_one_that_was_killed_is_refused() {
    let (mut world, server, client) = connected(1);
    world.kill(server);
    world.settle();
    assert_eq!(count(world.events(client), |heard| *heard == Heard::Eof), 1);
    world.command(client, Do::Finish);
    world.settle();
    world.command(client, Do::Dial(Target::tcp(server.at(1))));
    world.settle();
    world.crash(server);
    world.command(client, Do::Dial(Target::tcp(server.at(1))));
    world.run_for(11 * SECOND);
    assert_eq!(ends(world.events(client)), [CloseReason::Finished, crate::clerk::REFUSED, TIMED_OUT]);
}

#[test]
fn a_dial_waits_for_a_node_that_comes_back_in_time() {
    let (mut world, server, client) = connected(1);
    world.crash(server);
    world.command(client, Do::Dial(Target::tcp(server.at(1))));
    world.run_for(3 * SECOND);
    world.restart(server);
    world.run_for(3 * SECOND);
    assert_eq!(count(world.events(client), |heard| matches!(heard, Heard::Opened(_))), 2);
}

#[test]
fn a_cut_is_silent_and_healing_loses_nothing() {
    for seed in 0..20 {
        let (mut world, server, client) = connected(seed);
        say(&mut world, client, "one\n");
        world.cut(server, client);
        say(&mut world, client, "two\n");
        say(&mut world, server, "back\n");
        world.run_for(60 * SECOND);
        assert!(texts(world.events(client)).is_empty());
        world.heal(server, client);
        world.settle();
        assert_eq!(texts(world.events(server)), ["one", "two"]);
        assert_eq!(texts(world.events(client)), ["back"]);
    }
}

#[test]
fn a_cut_in_one_direction_lets_the_other_through() {
    let (mut world, server, client) = connected(1);
    world.cut_one_way(server, client);
    say(&mut world, client, "there\n");
    say(&mut world, server, "back\n");
    world.run_for(SECOND);
    assert_eq!(texts(world.events(server)), ["there"]);
    assert!(texts(world.events(client)).is_empty());
    // Nobody hears that there is room again, until the way is whole.
    let line = format!("{}\n", "x".repeat(9_999));
    (0..20).for_each(|_| say(&mut world, client, &line));
    world.run_for(60 * SECOND);
    assert!(texts(world.events(server)).len() < 21);
    world.heal(server, client);
    world.settle();
    assert_eq!(texts(world.events(server)).len(), 21);
}

#[test]
fn a_reset_link_ends_at_both_ends() {
    let (mut world, server, client) = connected(1);
    let links = world.links(server, client);
    let [link] = links[..] else { panic!("one link, not {links:?}") };
    let conn = world.machine(client).and_then(|clerk| clerk.conns.first().copied()).expect("a connection");
    assert_eq!(world.link_of(client, conn), Some(link));
    world.reset(link);
    world.settle();
    for node in [server, client] {
        assert_eq!(ends(world.events(node)), [CloseReason::Reset]);
    }
}

#[test]
fn a_drained_node_stops_and_says_so_to_its_peers() {
    let (mut world, server, client) = connected(1);
    world.drain(server, 5 * SECOND);
    world.run_for(SECOND);
    assert!(world.is_up(server));
    world.run_for(5 * SECOND);
    assert!(!world.is_up(server));
    assert_eq!(ends(world.events(server)), [CloseReason::Stopped]);
    assert_eq!(count(world.events(client), |heard| *heard == Heard::Eof), 1);
}

#[test]
fn a_unix_socket_is_dialled_by_its_path() {
    let mut world = World::new(1);
    let server = world.node(|_, _, disk| Clerk::of(disk));
    let client = world.node(|_, _, disk| Clerk::of(disk));
    world.listen_unix(server, "run/link.sock");
    world.cut(server, server);
    world.command(client, Do::Dial(Target::unix("run/link.sock")));
    say(&mut world, client, "hello\n");
    world.command(client, Do::Dial(Target::unix("run/other.sock")));
    world.settle();
    assert_eq!(texts(world.events(server)), ["hello"]);
    let missing = CloseReason::DialFailed(relay_core::machine::DialError::NoSuchSocket);
    assert_eq!(ends(world.events(client)), [missing]);
}
