//! Tests of the real program, each run in a home of its own.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod answers;
mod control;
mod ends;
mod files;
mod journals;
mod links;
mod running;
mod secrets;
mod sessions;
mod support;
