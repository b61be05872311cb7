//! kill -9 of the authority at every step of a claim: before the commit, in it, behind it and behind the answer.

use relay_tests::peers::Runtime;

use crate::Dice;
use crate::scene::{Moment, Scene, Step};

/// Kills of `relay serve` on each driver, at drawn moments.
const KILLS: usize = 28;

/// Kills at drawn moments, up to one and a half times what a grant takes, and every fourth right behind the answer.
fn kill_at_drawn_moments(runtime: Runtime) {
    let mut scene = Scene::new(env!("CARGO_BIN_EXE_relay-under-test"), runtime);
    let mut dice = Dice::new(runtime as u64);
    for kill in 0..KILLS {
        let step = Step::ALL[kill % 4];
        let moment = match kill / 4 % 4 {
            3 => Moment::Answered,
            _ => Moment::Within(dice.below(150) as u32),
        };
        scene.kill(step, moment);
    }
    scene.end();
}

#[test]
fn a_relay_killed_at_drawn_moments_loses_nothing_and_grants_nothing_twice_on_mio() {
    kill_at_drawn_moments(Runtime::Mio);
}

#[test]
fn a_relay_killed_at_drawn_moments_loses_nothing_and_grants_nothing_twice_on_smol() {
    kill_at_drawn_moments(Runtime::Smol);
}

#[test]
fn killed_before_during_and_after_each_commit_an_authority_loses_nothing_and_grants_nothing_twice() {
    for runtime in Runtime::ALL {
        let mut scene = Scene::new(env!("CARGO_BIN_EXE_authority-under-test"), runtime);
        for step in Step::ALL {
            for (when, durable) in [("before", Some(false)), ("during", None), ("after", Some(true))] {
                let left = scene.kill(step, Moment::Itself(when));
                assert_eq!(left.answer, None, "{step:?} {when}: nobody is told what is not durable");
                assert!(durable.is_none_or(|durable| durable == left.durable), "{step:?} {when}: {left:?}");
            }
        }
        scene.end();
    }
}
