//! Clocks: a deadline is met on the node's own clock, and on no other.

use core::time::Duration;

use relay_sim::World;

use crate::clerk::{Clerk, Do, Heard};

const SECOND: u64 = 1_000_000_000;

fn woken_at(prepare: impl FnOnce(&mut World<Clerk>, relay_sim::NodeId)) -> Duration {
    let mut world = World::new(1);
    let node = world.node(|_, _, _| Clerk::default());
    world.command(node, Do::Wake(10 * SECOND));
    prepare(&mut world, node);
    world.run_until(|world| world.events(node).iter().any(|(_, heard)| matches!(heard, Heard::Woken(_))));
    world.now()
}

#[test]
fn a_timer_comes_at_its_deadline() {
    assert_eq!(woken_at(|_, _| ()), Duration::from_secs(10));
}

#[test]
fn a_step_of_the_wall_clock_moves_no_deadline() {
    assert_eq!(woken_at(|world, node| world.step_wall(node, -3_600_000)), Duration::from_secs(10));
}

#[test]
fn a_slow_clock_meets_its_deadline_later() {
    let late = woken_at(|world, node| world.drift(node, -500_000));
    assert_eq!(late, Duration::from_secs(20));
    let early = woken_at(|world, node| {
        world.at(Duration::from_secs(2), move |world| world.drift(node, 1_000_000));
    });
    assert_eq!(early, Duration::from_secs(6));
}

#[test]
fn a_held_process_is_woken_when_it_goes_on() {
    let late = woken_at(|world, node| {
        world.freeze(node);
        world.run_for(Duration::from_secs(30));
        world.thaw(node);
    });
    assert_eq!(late, Duration::from_secs(30));
}

#[test]
fn a_script_runs_at_its_time() {
    let mut world = World::<Clerk>::new(1);
    let node = world.node(|_, _, _| Clerk::default());
    world.at(Duration::from_secs(3), move |world| {
        world.command(node, Do::Wake(1));
    });
    world.run_for(Duration::from_secs(5));
    assert_eq!(world.events(node).len(), 1);
    assert_eq!(world.events(node)[0].0, Duration::from_nanos(3 * SECOND + 1));
}
