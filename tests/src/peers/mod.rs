//! Real programs as peers: ours, and those that other people wrote, each in a home of its own.

mod claudectl;
mod lines;
mod relay;

pub use claudectl::{Claudectl, ClaudectlHome, Version};
pub use lines::Lines;
pub use relay::{Relay, RelayHome, Runtime};

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
    // Below the range that the system gives to outgoing connections, so that no dial takes it meanwhile.
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let start = u16::try_from(std::process::id() % 8000).unwrap_or(0);
    for _ in 0..8000 {
        let port = 20_000 + (start + NEXT.fetch_add(1, Ordering::Relaxed)) % 8000;
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        if TcpListener::bind(address).is_ok() {
            return address;
        }
    }
    panic!("no port is free between 20000 and 28000");
}
