//! Whether a seed says it all.

use core::ops::Range;

use crate::trace::Trace;
use crate::watch::Subject;
use crate::world::World;

/// Runs a scenario twice for a seed, and once more after other seeds, and compares every event.
///
/// `scenario` sets a world up and runs it. Equal runs cost a hash; of others the first event that differs is shown as
/// each run had it.
///
/// # Panics
/// Where two runs of the seed differ.
pub fn verify<M: Subject>(seed: u64, scenario: impl Fn(&mut World<M>)) {
    let first = run(seed, 0..0, &scenario);
    for others in [0, 3_u64] {
        for other in 1..=others {
            run(seed.wrapping_add(other), 0..0, &scenario);
        }
        let second = run(seed, 0..0, &scenario);
        if first.fingerprint() == second.fingerprint() && first.happened() == second.happened() {
            continue;
        }
        let same = first.checkpoints().iter().zip(second.checkpoints()).take_while(|(a, b)| a == b).count();
        let from = same as u64 * Trace::CHECKPOINT;
        panic!(
            "two runs of seed {seed} differ behind {} other runs:\n{}",
            others,
            first_difference(seed, from..from + Trace::CHECKPOINT, &scenario)
        );
    }
}

fn run<M: Subject>(seed: u64, keep: Range<u64>, scenario: &impl Fn(&mut World<M>)) -> World<M> {
    let mut world = World::new(seed);
    world.keep_trace(keep);
    scenario(&mut world);
    world
}

fn first_difference<M: Subject>(seed: u64, window: Range<u64>, scenario: &impl Fn(&mut World<M>)) -> String {
    // Runs that differ once may differ elsewhere the next time: the window first, then everything.
    for keep in [window, 0..u64::MAX] {
        let (one, two) = (run(seed, keep.clone(), scenario), run(seed, keep.clone(), scenario));
        let (one, two) = (one.trace(), two.trace());
        for index in 0..one.len().max(two.len()) {
            let (left, right) = (one.get(index), two.get(index));
            if left != right {
                let show = |line: Option<&String>| line.map_or("nothing more", String::as_str).to_owned();
                let event = keep.start + index as u64;
                return format!("event {event}\n  once:  {}\n  again: {}", show(left), show(right));
            }
        }
    }
    "they differed once and not again: something outside the world changes".to_owned()
}
