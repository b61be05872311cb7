//! What the two drivers say about sockets in the same words.

use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use relay_core::machine::{CloseReason, DialError, Endpoint};
use rustix::net::listen;
use rustix::net::sockopt::set_tcp_nodelay;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// How many callers may wait to be accepted; the system may allow fewer. The standard library's 128 are full when a
/// fleet comes back at once, and who finds no room tries again only after a second.
const BACKLOG: i32 = 4096;

/// A socket that listens: bound before the machine is made, so that the machine can be told the real port.
///
/// A driver numbers its listeners in the order in which it is given them, from `ListenerId(0)`.
#[derive(Debug)]
#[allow(clippy::exhaustive_enums)]
pub enum Listener {
    /// TCP.
    Tcp(TcpListener),
    /// A unix socket, removed when dropped.
    Unix(UnixListener, SocketFile),
}

impl Listener {
    /// Listens on a TCP address; port 0 takes a free one.
    ///
    /// # Errors
    /// The address cannot be had.
    pub fn tcp(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listen(&listener, BACKLOG)?;
        listener.set_nonblocking(true)?;
        Ok(Self::Tcp(listener))
    }

    /// Listens on a unix socket that only this user may connect to. A socket that a process left behind is replaced, one
    /// that somebody listens on is not.
    ///
    /// # Errors
    /// The path cannot be had: [`ErrorKind::AddrInUse`] where somebody listens there.
    pub fn unix(path: &Path) -> io::Result<Self> {
        let listener = match UnixListener::bind(path) {
            Ok(listener) => listener,
            Err(error) if error.kind() == ErrorKind::AddrInUse && UnixStream::connect(path).is_err() => {
                std::fs::remove_file(path)?;
                UnixListener::bind(path)?
            }
            Err(error) => return Err(error),
        };
        listen(&listener, BACKLOG)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        Ok(Self::Unix(listener, SocketFile(path.to_owned())))
    }

    /// The TCP address that it listens on.
    #[must_use]
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(listener) => listener.local_addr().ok(),
            Self::Unix(..) => None,
        }
    }
}

impl fmt::Display for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(listener) => match listener.local_addr() {
                Ok(address) => address.fmt(f),
                Err(_) => f.write_str("(unbound)"),
            },
            Self::Unix(_, file) => file.0.display().fmt(f),
        }
    }
}

/// The file of a unix socket, removed with it.
#[derive(Debug)]
pub struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Lets what is written to the connections of this listener leave at once: a machine writes whole messages, once a turn,
/// and waiting for more would only delay them. Who is accepted inherits it, which saves a call for each.
pub fn send_at_once(listener: &TcpListener) {
    // Where it cannot be had, messages are late and nothing else.
    let _ = set_tcp_nodelay(listener, true);
}

/// The process at the other end of a unix socket, as the kernel vouches for it.
#[must_use]
pub fn unix_endpoint(socket: impl std::os::fd::AsFd) -> Endpoint {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    if let Ok(peer) = rustix::net::sockopt::socket_peercred(socket) {
        let pid = u32::try_from(peer.pid.as_raw_nonzero().get()).ok();
        return Endpoint::Unix { uid: Some(peer.uid.as_raw()), pid };
    }
    Endpoint::Unix { uid: None, pid: None }
}

/// What a socket's error means for its connection.
#[must_use]
#[expect(clippy::wildcard_enum_match_arm, reason = "the system's errors are not our enum")]
pub fn close_reason(error: &io::Error) -> CloseReason {
    match error.kind() {
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::ConnectionAborted => {
            CloseReason::Reset
        }
        ErrorKind::TimedOut | ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => {
            CloseReason::TimedOut
        }
        _ => CloseReason::Failed,
    }
}

/// What a failed dial means.
#[must_use]
#[expect(clippy::wildcard_enum_match_arm, reason = "the system's errors are not our enum")]
pub fn dial_error(error: &io::Error) -> DialError {
    match error.kind() {
        ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset => DialError::Refused,
        ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable | ErrorKind::NetworkDown => {
            DialError::Unreachable
        }
        ErrorKind::TimedOut => DialError::TimedOut,
        ErrorKind::NotFound => DialError::NoSuchSocket,
        ErrorKind::PermissionDenied => DialError::Denied,
        ErrorKind::AddrNotAvailable => DialError::Exhausted,
        _ if is_exhausted(error) => DialError::Exhausted,
        _ => DialError::Failed,
    }
}

/// Whether an error says that the process or the system has no descriptor or buffer left, which passes.
#[must_use]
pub fn is_exhausted(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let code = error.raw_os_error();
    [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM]
        .iter()
        .any(|errno| code == Some(errno.raw_os_error()))
}

/// Raises the number of descriptors that this process may have to the most that it is allowed, and returns it; `None`
/// where there is no limit.
pub fn raise_descriptor_limit() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    getrlimit(Resource::Nofile).current
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_inherits_that_it_sends_at_once() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        send_at_once(&listener);
        let _caller = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert!(listener.accept().unwrap().0.nodelay().unwrap());
    }

    #[test]
    fn a_socket_that_a_process_left_behind_is_replaced_and_a_live_one_is_not() {
        let path = std::env::temp_dir().join(format!("relay-net-{}.sock", std::process::id()));
        drop(UnixListener::bind(&path).unwrap());
        let listener = Listener::unix(&path).unwrap();
        assert_eq!(Listener::unix(&path).unwrap_err().kind(), ErrorKind::AddrInUse);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        drop(listener);
        assert!(!path.exists());
    }
}
