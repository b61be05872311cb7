//! Dials: both ways, refused, missing, late, given up.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};

use relay_core::machine::{CloseReason, ConnId, DialError, Endpoint, Opener, Target};
use relay_core::outbox::Close;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::machine::{Ask, Heard};
use crate::peers::{Client, Running, socket_path, start_plain};

#[test]
fn a_dial_carries_bytes_and_half_closes_both_ways() {
    let running = start_plain();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let conn = running.dial(Target::tcp(address));
    assert_eq!(running.event(), Heard::Opened(conn, Opener::Dialled, Endpoint::Tcp(address)));
    let mut peer = Client::over(listener.accept().unwrap().0);
    peer.say("hello");
    assert_eq!(running.event(), Heard::Bytes(conn, b"hello".to_vec()));
    running.ask(Ask::Send(conn, b"good day\n"));
    running.ask(Ask::Finish(conn));
    assert_eq!(peer.rest(), "good day\n");
    peer.say("more");
    assert_eq!(running.event(), Heard::Bytes(conn, b"more".to_vec()));
    peer.stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(running.event(), Heard::Eof(conn));
    assert_eq!(running.event(), Heard::Closed(conn, CloseReason::Finished, 0));
    // What it was is over: nothing of it goes anywhere.
    running.ask(Ask::Send(conn, b"late"));
    assert!(running.stop());
}

#[test]
fn what_is_sent_while_a_dial_is_under_way_comes_first() {
    let running = start_plain();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let conn = running.dial(Target::tcp(listener.local_addr().unwrap()));
    running.ask(Ask::Send(conn, b"first "));
    running.ask(Ask::Send(conn, b"second"));
    running.ask(Ask::Finish(conn));
    let mut peer = Client::over(listener.accept().unwrap().0);
    assert_eq!(peer.rest(), "first second");
    assert!(running.stop());
}

fn closed(running: &Running, conn: ConnId) -> CloseReason {
    running.find(|heard| {
        let Heard::Closed(closed, why, _) = heard else { return None };
        (*closed == conn).then_some(*why)
    })
}

#[test]
fn a_dial_to_nobody_is_refused() {
    let running = start_plain();
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let conn = running.dial(Target::tcp(address));
    assert_eq!(closed(&running, conn), CloseReason::DialFailed(DialError::Refused));

    let path = socket_path();
    drop(UnixListener::bind(&path).unwrap());
    let conn = running.dial(Target::unix(path.to_str().unwrap()));
    assert_eq!(closed(&running, conn), CloseReason::DialFailed(DialError::Refused));
    std::fs::remove_file(&path).unwrap();
    let conn = running.dial(Target::unix(path.to_str().unwrap()));
    assert_eq!(closed(&running, conn), CloseReason::DialFailed(DialError::NoSuchSocket));
    let conn = running.dial(Target::unix(&"long/".repeat(100)));
    assert!(matches!(closed(&running, conn), CloseReason::DialFailed(_)));
    assert!(running.stop());
}

#[test]
fn a_dial_to_a_unix_socket_knows_the_peer() {
    let running = start_plain();
    let path = socket_path();
    let listener = UnixListener::bind(&path).unwrap();
    let conn = running.dial(Target::unix(path.to_str().unwrap()));
    let Heard::Opened(opened, Opener::Dialled, Endpoint::Unix { pid, .. }) = running.event() else {
        panic!("the first event is the opening")
    };
    assert_eq!(opened, conn);
    if cfg!(target_os = "linux") {
        assert_eq!(pid, Some(std::process::id()));
    }
    let (mut peer, _) = listener.accept().unwrap();
    peer.write_all(b"hello").unwrap();
    assert_eq!(running.event(), Heard::Bytes(conn, b"hello".to_vec()));
    running.ask(Ask::Close(conn, Close::Abort));
    assert_eq!(closed(&running, conn), CloseReason::Asked);
    assert_eq!(peer.read(&mut [0; 8]).unwrap(), 0);
    std::fs::remove_file(&path).unwrap();
    assert!(running.stop());
}

/// On Linux a unix socket whose backlog is full says "try again", and nothing tells when.
#[test]
#[cfg(target_os = "linux")]
fn a_dial_waits_for_a_full_unix_backlog_and_can_be_given_up() {
    let running = start_plain();
    let path = socket_path();
    let listener =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
            .unwrap();
    rustix::net::bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let _first = UnixStream::connect(&path).unwrap();
    let given_up = running.dial(Target::unix(path.to_str().unwrap()));
    let waiting = running.dial(Target::unix(path.to_str().unwrap()));
    running.ask(Ask::Close(given_up, Close::Flush));
    assert_eq!(running.event(), Heard::Closed(given_up, CloseReason::Asked, 0));
    let _accepted = rustix::net::accept(&listener).unwrap();
    assert!(matches!(running.event(), Heard::Opened(conn, Opener::Dialled, _) if conn == waiting));
    std::fs::remove_file(&path).unwrap();
    assert!(running.stop());
}

/// On Linux a listener whose backlog is full lets connects wait, as a host that is not there does.
#[test]
#[cfg(target_os = "linux")]
fn a_dial_without_an_answer_ends_after_its_time() {
    let running = start_plain();
    let listener =
        rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)
            .unwrap();
    rustix::net::bind(&listener, &std::net::SocketAddrV4::new([127, 0, 0, 1].into(), 0)).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let listener = TcpListener::from(listener);
    let address = listener.local_addr().unwrap();
    let _first = TcpStream::connect(address).unwrap();
    let conn = running.dial(Target::tcp(address));
    assert_eq!(running.event(), Heard::Closed(conn, CloseReason::DialFailed(DialError::TimedOut), 0));
    assert!(running.stop());
}
