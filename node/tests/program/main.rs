//! Tests of the real program, each run in a home of its own.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod answers;
mod files;
mod support;
