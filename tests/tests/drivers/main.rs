//! Both drivers alike: every scenario on every driver, over TCP and over unix sockets, and every script in the simulated
//! world as well.
#![allow(clippy::unwrap_used, clippy::unwrap_in_result, reason = "a scenario that fails panics")]

mod actions;
mod alike;
mod conversations;
mod dials;
mod durability;
mod ends;
mod owner;
mod pressure;
mod storms;
mod transcripts;

/// Makes each scenario a test on every rig, over the kinds of sockets named.
macro_rules! everywhere {
    ($($scenario:ident),* $(,)?) => {
        mod over_tcp {
            $(#[test] fn $scenario() { for rig in relay_tests::rig::RIGS { super::$scenario(rig, relay_tests::rig::Over::Tcp); } })*
        }
        mod over_unix {
            $(#[test] fn $scenario() { for rig in relay_tests::rig::RIGS { super::$scenario(rig, relay_tests::rig::Over::Unix); } })*
        }
    };
}

/// The same, over TCP alone.
macro_rules! over_tcp_alone {
    ($($scenario:ident),* $(,)?) => {
        mod over_tcp_alone {
            $(#[test] fn $scenario() { for rig in relay_tests::rig::RIGS { super::$scenario(rig, relay_tests::rig::Over::Tcp); } })*
        }
    };
}

pub(crate) use {everywhere, over_tcp_alone};
