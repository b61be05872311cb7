//! Our node with a real claudectl at the other end, on both drivers.
//!
//! Where claudectl is not installed these tests are listed as ignored; where `RELAY_PEERS=required` they fail. Those that
//! wait for minutes run where `RELAY_FULL=1`, as in `.ci/run --full`.

use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};
use relay_tests::peers::{Runtime, Version};

mod leases;
mod leases_there;
mod links;
mod pairing;
mod restarts;

/// A test of one driver against one release of the peer.
type Test = fn(Runtime) -> ();

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // Both ends are processes of their own, and mostly wait.
    arguments.test_threads.get_or_insert(6);
    let required = std::env::var_os("RELAY_PEERS").is_some_and(|value| value == "required");
    let missing =
        [Version::Current, Version::BeforeProto].into_iter().any(|version| version.program().is_none());
    if missing && !required {
        say_how();
    }
    let full = std::env::var_os("RELAY_FULL").is_some_and(|value| value == "1");
    if !full {
        say_what_is_left_out();
    }
    let lists = [links::TESTS, pairing::TESTS, restarts::TESTS, leases::TESTS, leases_there::TESTS];
    // The long ones first, so that the others run beside them.
    let tests = leases::LONG_TESTS.iter().map(|test| (test, !full));
    let tests = tests.chain(lists.into_iter().flatten().map(|test| (test, false)));
    let trials = tests.flat_map(|((name, test), left_out)| {
        Runtime::ALL.into_iter().map(move |runtime| {
            let run = move || -> Result<(), Failed> {
                test(runtime);
                Ok(())
            };
            Trial::test(format!("{}::{name}", runtime.as_str()), run)
                .with_ignored_flag(left_out || missing && !required)
        })
    });
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}

#[expect(clippy::print_stderr, reason = "what is ignored says how it is run")]
fn say_what_is_left_out() {
    for (name, _) in leases::LONG_TESTS {
        eprintln!("NOT RUN, for it takes minutes (RELAY_FULL=1 or .ci/run --full runs it): {name}");
    }
}

#[expect(clippy::print_stderr, reason = "what is ignored says how it is run")]
fn say_how() {
    eprintln!(
        "claudectl is not installed, so the tests with it are ignored. To run them:\n\
         tests/peers/install && cargo test -p relay-tests --test claudectl\n"
    );
}
