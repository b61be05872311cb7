//! Plays one list of deeds everywhere, and holds the transcripts against each other.

use relay_tests::rig::{Over, RIGS};
use relay_tests::script::{Deed, Driven, InWorld, Stage as _, Transcript, play};

/// Seeds of the worlds in which all is played: each cuts and delays bytes in its own way.
const SEEDS: [u64; 3] = [0, 1, 2];
/// Events that wait at most, unless a scenario says otherwise.
const EVENTS: usize = 4096;

/// Plays it on every driver and in worlds, over TCP and over unix sockets, compares, and returns the one transcript.
pub(crate) fn alike(deeds: &[Deed]) -> Transcript {
    alike_behind(EVENTS, deeds)
}

/// The same, with an event channel that holds so many.
pub(crate) fn alike_behind(events: usize, deeds: &[Deed]) -> Transcript {
    let [tcp, unix] = [Over::Tcp, Over::Unix].map(|over| play_all(over, events, deeds));
    assert_eq!(tcp, unix, "TCP and unix sockets behind {deeds:?}");
    tcp
}

/// The same over one kind of socket, for what the two kinds do differently.
pub(crate) fn alike_over(over: Over, deeds: &[Deed]) -> Transcript {
    play_all(over, EVENTS, deeds)
}

/// A client sends this, in pieces of so many bytes.
pub(crate) fn send(client: usize, text: &str, piece: usize) -> Deed {
    Deed::Send(client, text.to_owned(), piece)
}

/// Nothing, until a gauge has come to this.
pub(crate) const fn come_to(gauge: &'static str, least: u64) -> Deed {
    Deed::Gauge(gauge, least..u64::MAX)
}

fn play_all(over: Over, events: usize, deeds: &[Deed]) -> Transcript {
    let mut first: Option<Transcript> = None;
    let mut compare = |name: String, transcript: Transcript| match &first {
        Some(first) => assert_eq!(*first, transcript, "{name} behind {deeds:?}"),
        None => first = Some(transcript),
    };
    for rig in RIGS {
        let driven = Driven::new(rig, over, events);
        compare(driven.name(), play(driven, deeds));
    }
    for seed in SEEDS {
        let world = InWorld::new(seed, over, events);
        compare(world.name(), play(world, deeds));
    }
    first.expect("there is a driver")
}
