//! The `relay` program, where this crate's tests find it.

use std::process::ExitCode;

fn main() -> ExitCode {
    relay_node::cli::main()
}
