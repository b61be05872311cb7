//! The peer link in a world: two relays find each other, and find each other again after whatever happens.

use core::time::Duration;

use relay_core::machine::CloseReason;
use relay_core::peer::{Addresses, Answer, Command, Event, Node, PeerRecord, Settings};
use relay_core::secret::Key;
use relay_core::text::PeerId;
use relay_sim::{NodeId, World, verify};

const PORT: u16 = 9847;

fn id(node: NodeId) -> PeerId {
    PeerId::parse(&format!("relay-{}", node.number())).expect("a plain id")
}

/// Relays that share one key and listen.
fn relays(world: &mut World<Node>, many: u32) -> Vec<NodeId> {
    let draws = world.draws();
    let build = move |own: NodeId, boot: u32, _: &mut _| {
        let peers = (0..many).filter(|number| *number != own.number());
        let record = |number| PeerRecord {
            id: PeerId::parse(&format!("relay-{number}")).expect("a plain id"),
            key: Some(Key::from_bytes([7; 32])),
            addresses: Addresses::default(),
        };
        Node::new(
            Settings::new(id(own)),
            draws.entropy(own.number(), boot),
            peers.map(record).collect(),
            None,
        )
    };
    let nodes: Vec<_> = (0..many).map(|_| world.node(build)).collect();
    for node in &nodes {
        world.listen(*node, node.at(PORT));
    }
    nodes
}

fn connect(world: &mut World<Node>, from: NodeId, to: NodeId) -> relay_core::machine::Ticket {
    let (address, peer) = (to.at(PORT), Some(id(to)));
    world.command(from, Command::Connect { address, peer, invite: None, keep: true })
}

/// How many more links came up than went down, as a node tells it.
fn links(world: &World<Node>, node: NodeId) -> i32 {
    let count = |(_, event): &(Duration, Event)| {
        i32::from(matches!(event, Event::LinkUp(_))) - i32::from(matches!(event, Event::LinkDown { .. }))
    };
    world.events(node).iter().map(count).sum()
}

#[test]
fn two_relays_link_and_stay_linked() {
    for seed in 0..16 {
        let mut world = World::new(seed);
        let nodes = relays(&mut world, 2);
        let asked = connect(&mut world, nodes[0], nodes[1]);
        world.run_for(Duration::from_secs(600));
        let answer = world.answer(nodes[0], asked);
        assert!(matches!(answer, Some(Ok(Answer::Connected { .. }))), "seed {seed}: {answer:?}");
        assert_eq!((links(&world, nodes[0]), links(&world, nodes[1])), (1, 1), "seed {seed}");
    }
}

#[test]
fn relays_that_dial_each_other_at_once_keep_one_link() {
    for seed in 0..64 {
        let mut world = World::new(seed);
        let nodes = relays(&mut world, 2);
        connect(&mut world, nodes[0], nodes[1]);
        connect(&mut world, nodes[1], nodes[0]);
        world.run_for(Duration::from_secs(120));
        assert_eq!((links(&world, nodes[0]), links(&world, nodes[1])), (1, 1), "seed {seed}");
        assert_eq!(world.links(nodes[0], nodes[1]).len(), 1, "seed {seed}");
    }
}

#[test]
fn a_link_that_is_reset_or_cut_comes_back() {
    for seed in 0..16 {
        let mut world = World::new(seed);
        let nodes = relays(&mut world, 2);
        connect(&mut world, nodes[0], nodes[1]);
        world.run_for(Duration::from_secs(10));
        world.links(nodes[0], nodes[1]).into_iter().for_each(|link| world.reset(link));
        world.run_for(Duration::from_secs(300));
        assert_eq!((links(&world, nodes[0]), links(&world, nodes[1])), (1, 1), "reset, seed {seed}");
        world.cut(nodes[0], nodes[1]);
        world.run_for(Duration::from_secs(600));
        assert_eq!((links(&world, nodes[0]), links(&world, nodes[1])), (0, 0), "cut, seed {seed}");
        world.heal(nodes[0], nodes[1]);
        world.run_for(Duration::from_secs(600));
        assert_eq!((links(&world, nodes[0]), links(&world, nodes[1])), (1, 1), "healed, seed {seed}");
    }
}

#[test]
fn a_stranger_without_a_key_learns_nothing_and_is_shown_out() {
    let mut world = World::new(1);
    let nodes = relays(&mut world, 2);
    let stranger = world.stranger(nodes[0].at(PORT));
    world.say(stranger, "GET / HTTP/1.1\r\n\r\n");
    world.run_for(Duration::from_secs(60));
    let ended = world.heard_end(stranger) || matches!(world.ended(stranger), Some(CloseReason::Reset));
    assert!(ended, "heard {:?}", world.heard(stranger).escape_ascii().to_string());
    assert_eq!(links(&world, nodes[0]), 0);
}

#[test]
fn relays_repeat_from_their_seed() {
    verify(5, |world| {
        let nodes = relays(world, 4);
        for (one, two) in [(0, 1), (1, 2), (2, 3), (3, 0)] {
            connect(world, nodes[one], nodes[two]);
        }
        world.run_for(Duration::from_secs(30));
        world.crash(nodes[2]);
        world.run_for(Duration::from_secs(120));
        world.restart(nodes[2]);
        world.run_for(Duration::from_secs(120));
    });
}
