//! Real programs as peers: ours, and those that other people wrote, each in a home of its own.

mod claudectl;
mod idler;
mod lines;
mod relay;
mod way;

pub use claudectl::{Claudectl, ClaudectlHome, Version};
pub use idler::Idler;
pub use lines::Lines;
pub use relay::{Relay, RelayHome, Runtime};
pub use way::Way;

use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

/// How long anything that must happen may take, on a machine that is busy with other things.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A TCP address on loopback that nobody listens on now, for a program that cannot be told to take a free one.
///
/// # Panics
/// Where no port can be had.
#[must_use]
pub fn free_address() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Below the range that the system gives to outgoing connections, so that no dial takes it meanwhile.
    free_between(20_000, 28_000, &NEXT)
}

/// As [`free_address`], with a port that an invite's code has room for.
///
/// # Panics
/// Where no port can be had.
#[must_use]
pub fn free_code_address() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    free_between(9976, 10_102, &NEXT)
}

/// Goes round the ports, so that no two callers are given the same one; where it starts depends on the process.
fn free_between(first: u16, end: u16, next: &AtomicU16) -> SocketAddr {
    let span = end - first;
    let start = u16::try_from(std::process::id() % u32::from(span)).unwrap_or(0);
    for _ in 0..span {
        let port = first + (start + next.fetch_add(1, Ordering::Relaxed)) % span;
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        if TcpListener::bind(address).is_ok() {
            return address;
        }
    }
    panic!("no port is free between {first} and {end}");
}
