//! Tests of the real program, each run in a home of its own.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod answers;
mod control;
mod ends;
mod files;
mod full;
mod journals;
mod lease_run;
mod leases;
mod links;
mod running;
mod secrets;
mod sessions;
mod support;
