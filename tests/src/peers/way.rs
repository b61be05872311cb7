//! A way to a peer that counts what is asked there, and may lose an answer.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;

use super::PATIENCE;

/// Passes on what comes, both ways, and counts the connections that carry a request of one type.
#[derive(Debug)]
pub struct Way {
    /// Where it listens.
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    target: SocketAddr,
    /// As it stands in a message.
    msg_type: String,
    /// Connections that carried such a request.
    carried: Mutex<usize>,
    more: Condvar,
    loses_the_first: bool,
    is_over: AtomicBool,
}

impl Way {
    /// A way to `target` that counts requests of this type.
    ///
    /// # Panics
    /// Where no port can be had.
    #[must_use]
    pub fn to(target: SocketAddr, msg_type: &str) -> Self {
        Self::new(target, msg_type, false)
    }

    /// As [`to`](Self::to), and on the first connection that carries such a request nothing comes back from then on: it
    /// stays, mute.
    ///
    /// # Panics
    /// Where no port can be had.
    #[must_use]
    pub fn losing_the_first_answer(target: SocketAddr, msg_type: &str) -> Self {
        Self::new(target, msg_type, true)
    }

    fn new(target: SocketAddr, msg_type: &str, loses_the_first: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("a listener has an address");
        let shared = Arc::new(Shared {
            target,
            msg_type: format!("\"{msg_type}\""),
            carried: Mutex::new(0),
            more: Condvar::new(),
            loses_the_first,
            is_over: AtomicBool::new(false),
        });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                if accepting.is_over.load(Ordering::SeqCst) {
                    return;
                }
                // Where nobody listens there, the connection just ends.
                if let Ok(far) = TcpStream::connect(accepting.target) {
                    join(&accepting, near, far);
                }
            }
        });
        Self { address, shared }
    }

    /// How many connections carried such a request.
    #[must_use]
    pub fn carried(&self) -> usize {
        *self.shared.carried.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until so many connections carried such a request.
    ///
    /// # Panics
    /// Where that does not come about in time.
    pub fn until_carried(&self, count: usize) {
        let carried = self.shared.carried.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.shared.more.wait_timeout_while(carried, PATIENCE, |carried| *carried < count);
        let (carried, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        assert!(!waited.timed_out(), "{} of {count} came: {}", *carried, self.shared.msg_type);
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
    }
}

/// Passes on what comes between two ends, on two threads that end with them.
fn join(shared: &Arc<Shared>, near: TcpStream, far: TcpStream) {
    let mute = Arc::new(AtomicBool::new(false));
    let (Ok(near_too), Ok(far_too)) = (near.try_clone(), far.try_clone()) else { return };
    let (is_mute, shared) = (Arc::clone(&mute), Arc::clone(shared));
    thread::spawn(move || pass(far_too, near_too, |_| !is_mute.load(Ordering::SeqCst)));
    thread::spawn(move || {
        let mut tail = Vec::new();
        let mut counted = false;
        pass(near, far, |bytes| {
            tail.extend_from_slice(bytes);
            if !counted && tail.windows(shared.msg_type.len()).any(|part| part == shared.msg_type.as_bytes())
            {
                counted = true;
                // Before the request itself goes on, so that no answer can be ahead of it.
                let mut carried = shared.carried.lock().unwrap_or_else(PoisonError::into_inner);
                mute.store(*carried == 0 && shared.loses_the_first, Ordering::SeqCst);
                *carried += 1;
                shared.more.notify_all();
            }
            let keep = tail.len().min(shared.msg_type.len() - 1);
            tail.drain(..tail.len() - keep);
            true
        });
    });
}

/// Passes on what `goes` says, until either end is over.
fn pass(mut from: TcpStream, mut to: TcpStream, mut goes: impl FnMut(&[u8]) -> bool) {
    let mut chunk = [0; 16 << 10];
    while let Ok(count @ 1..) = from.read(&mut chunk) {
        if goes(&chunk[..count]) && to.write_all(&chunk[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}
