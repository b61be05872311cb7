//! The `relay` program.

fn main() -> std::process::ExitCode {
    relay_node::cli::main()
}
