//! What benches over real sockets have in common: scripted peers, and what a process takes.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use relay_core::peer::PeerRecord;

use crate::fleet::{id, wire};

/// Who the scripted peers call.
pub const RELAY: &str = "relay";

/// A peer's side of a handshake, one exchange at a time, so that one thread can have many under way.
pub struct Shake {
    stream: TcpStream,
    name: String,
}

impl Shake {
    /// Connects.
    ///
    /// # Errors
    /// Nobody accepts.
    pub fn connect(address: SocketAddr, name: String) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, name })
    }

    /// Waits for the challenge and answers it, with further members.
    ///
    /// # Errors
    /// The connection ended, or what came is no challenge.
    pub fn prove(&mut self, extra: &str) -> io::Result<()> {
        let line = self.line()?;
        let nonce = line.split_once(r#""nonce":""#).and_then(|(_, rest)| rest.split_once('"'));
        let (nonce, _) = nonce.ok_or(io::ErrorKind::InvalidData)?;
        self.stream.write_all(&wire::handshake(&self.name, RELAY, nonce, extra))
    }

    /// Waits for the ack.
    ///
    /// # Errors
    /// The connection ended, or the handshake was refused.
    pub fn finish(mut self) -> io::Result<TcpStream> {
        let accepted = self.line()?.contains(r#""status":"ok""#);
        accepted.then_some(self.stream).ok_or_else(|| io::ErrorKind::PermissionDenied.into())
    }

    /// What comes up to a line's end, and perhaps some bytes of what is behind it.
    fn line(&mut self) -> io::Result<String> {
        let (mut text, mut buffer) = (Vec::new(), [0; 1024]);
        while !text.contains(&b'\n') {
            let count = self.stream.read(&mut buffer)?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            text.extend_from_slice(&buffer[..count]);
        }
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}

/// What the relay knows of a scripted peer: its key and one address.
#[must_use]
pub fn record(name: &str) -> PeerRecord {
    let address = SocketAddr::from(([127, 0, 0, 1], 9));
    PeerRecord { id: id(name), key: Some(wire::key(name, RELAY)), addresses: [address].into_iter().collect() }
}

/// The name of the scripted peer of this number.
#[must_use]
pub fn name(number: usize) -> String {
    format!("build-host-{number:05}-0123abcd")
}

/// What this process has resident, in bytes, as the system counts it; 0 where it does not say.
#[must_use]
pub fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<usize>().ok()).unwrap_or(0) << 10
}

/// Processor time that this process has had.
#[must_use]
pub fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The middle one of an odd number of figures.
#[must_use]
pub fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}
