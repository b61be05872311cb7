//! Strangers: a test's own ends of connections.

use relay_core::machine::{CloseReason, Target};
use relay_core::outbox::Close;
use relay_sim::World;

use crate::clerk::{Clerk, Do, Heard, REFUSED, count, ends, texts};

#[test]
fn a_stranger_speaks_with_a_machine() {
    let mut world = World::new(1);
    let server = world.node(|_, _, disk| Clerk::of(disk));
    world.listen(server, server.at(1));
    let stranger = world.stranger(server.at(1));
    world.say(stranger, "ask a\nask b\n");
    world.settle();
    assert_eq!(world.heard(stranger), b"rests on 1\nrests on 2\n");
    world.hang_up(stranger);
    world.settle();
    assert_eq!(count(world.events(server), |heard| *heard == Heard::Eof), 1);
    assert_eq!((world.heard_end(stranger), world.ended(stranger)), (false, None));
    world.command(server, Do::Finish);
    world.settle();
    assert_eq!(world.ended(stranger), Some(CloseReason::Finished));
}

#[test]
fn a_stranger_listens_and_leaves() {
    let mut world = World::new(1);
    let client = world.node(|_, _, disk| Clerk::of(disk));
    let address = core::net::SocketAddr::from(([192, 0, 2, 1], 7));
    let stranger = world.stranger_at(address);
    world.command(client, Do::Dial(Target::tcp(address)));
    world.command(client, Do::Say("hello\n".into()));
    world.settle();
    assert_eq!(world.heard(stranger), b"hello\n");
    world.say(stranger, "bye\n");
    world.leave(stranger);
    world.settle();
    assert_eq!(texts(world.events(client)), ["bye"]);
    world.command(client, Do::Say("late\n".into()));
    world.settle();
    assert_eq!(ends(world.events(client)), [CloseReason::Reset]);
}

#[test]
fn a_unix_socket_has_no_reset_but_for_what_was_not_read() {
    for (unread, told) in [(false, CloseReason::Finished), (true, CloseReason::Reset)] {
        let mut world = World::new(1);
        let server = world.node(|_, _, disk| Clerk::of(disk));
        world.listen_unix(server, "run/a.sock");
        let stranger = world.stranger("run/a.sock");
        assert!(!world.is_connected(stranger));
        world.settle();
        assert!(world.is_connected(stranger));
        world.stall_reader(stranger.node(), true);
        if unread {
            world.command(server, Do::Say("unread\n".into()));
            world.settle();
        }
        world.leave(stranger);
        world.settle();
        assert!(!world.is_connected(stranger));
        world.command(server, Do::Finish);
        world.settle();
        assert_eq!(ends(world.events(server)), [told]);
    }
}

#[test]
fn a_stranger_that_does_not_read_holds_up_nobody_else() {
    let mut world = World::new(1);
    let server = world.node(|_, _, disk| Clerk::of(disk));
    world.listen(server, server.at(1));
    let (slow, quick) = (world.stranger(server.at(1)), world.stranger(server.at(1)));
    world.stall_reader(slow.node(), true);
    world.settle();
    world.command(server, Do::Say("x".repeat(1 << 20)));
    world.settle();
    assert_eq!((world.heard(slow).len(), world.heard(quick).len()), (0, 1 << 20));
    world.stall_reader(slow.node(), false);
    world.settle();
    assert_eq!(world.heard(slow).len(), 1 << 20);
    world.command(server, Do::Close(Close::Flush));
    world.settle();
    assert!(world.heard_end(slow));
}

#[test]
fn a_strangers_dial_may_fail() {
    let mut world = World::<Clerk>::new(1);
    let server = world.node(|_, _, disk| Clerk::of(disk));
    let stranger = world.stranger(server.at(1));
    world.settle();
    assert_eq!(world.ended(stranger), Some(REFUSED));
}
