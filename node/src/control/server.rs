//! The node's end of the control socket.
//!
//! A client is served by a thread of its own, so that a slow one costs itself alone: a line has a bound in bytes and
//! in time, an answer that is not read ends the client, a client that leaves takes its request back, and only so many
//! are let in.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use relay_core::machine::Endpoint;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::geteuid;
use serde_json::value::RawValue;

use super::wire::{Asked, Back, read};
use super::{MAX_REQUEST, Place};
use crate::failure::Failure;
use crate::home::Home;
use crate::service::{Desk, Feed, Request};

/// Clients at once.
const MAX_CLIENTS: usize = 64;
/// Those of them that watch.
const MAX_WATCHERS: usize = 32;
/// Those of them that wait for a peer, so that what needs none is answered all the same.
const MAX_WAITING: usize = 48;
/// How long a client may say nothing.
const IDLE: Duration = Duration::from_secs(30);
/// How long a request may take from its first byte to its last, and an answer to be taken.
const SLOW: Duration = Duration::from_secs(5);
/// How long the end waits for watchers to be told of it.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How often a watcher that nothing is told is looked after.
const GLANCE: Duration = Duration::from_millis(500);

/// A control socket that takes clients until it is dropped.
#[derive(Debug)]
pub struct Server {
    place: Place,
    /// The socket's own number: what stands at its place later may be another's.
    number: Option<(u64, u64)>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    desk: Desk,
    feed: Feed,
    stopped: AtomicBool,
    clients: Arc<Seats>,
    watchers: Arc<Seats>,
    waiting: Arc<Seats>,
}

impl Server {
    /// Opens the socket. The caller holds the home's lock, so one that is there already was left behind.
    ///
    /// # Errors
    /// The socket cannot be made.
    pub fn start(home: &Home, runtime_dir: Option<&OsStr>, desk: Desk, feed: Feed) -> Result<Self, Failure> {
        let place = Place::make(home, runtime_dir)?;
        let failed = |error: &io::Error| Failure::io("listen on", place.socket(), error);
        let listener = listen(&place).map_err(|error| failed(&error))?;
        let number = number(&place);
        let stopped = AtomicBool::new(false);
        let [clients, watchers, waiting] = core::array::from_fn(|_| Arc::default());
        let shared = Arc::new(Shared { desk, feed, stopped, clients, watchers, waiting });
        let serving = Arc::clone(&shared);
        let started =
            thread::Builder::new().name("relay-control".into()).spawn(move || serving.accept(&listener));
        started.map_err(|error| failed(&error))?;
        Ok(Self { place, number, shared })
    }

    /// Where it is.
    #[must_use]
    pub const fn place(&self) -> &Place {
        &self.place
    }
}

impl Drop for Server {
    /// Watchers that read hear the last line first: the process may end as soon as this returns.
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        if number(&self.place) == self.number {
            // Wakes the thread that accepts, which then ends.
            let _ = UnixStream::connect(self.place.socket());
            self.place.remove();
        }
        self.shared.watchers.wait_until_empty(LAST_WORDS);
    }
}

fn number(place: &Place) -> Option<(u64, u64)> {
    fs::symlink_metadata(place.socket()).ok().map(|meta| (meta.dev(), meta.ino()))
}

fn listen(place: &Place) -> io::Result<UnixListener> {
    match fs::remove_file(place.socket()) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let listener = UnixListener::bind(place.socket())?;
    fs::set_permissions(place.socket(), fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

impl Shared {
    fn accept(self: Arc<Self>, listener: &UnixListener) {
        while !self.stopped.load(Ordering::SeqCst) {
            match listener.accept() {
                Ok((stream, _)) if !self.stopped.load(Ordering::SeqCst) => self.admit(stream),
                Ok(_) => return,
                // No descriptor left, most likely: it passes.
                Err(_) => thread::sleep(Duration::from_millis(100)),
            }
        }
    }

    fn admit(self: &Arc<Self>, stream: UnixStream) {
        if !is_ours(&stream) {
            return;
        }
        let Some(seat) = Seat::take(&self.clients, MAX_CLIENTS) else {
            let full =
                Failure::refused("too many control clients", "Try again when some of them have ended.");
            let mut client = Client { stream };
            let _ = client.stream.set_nonblocking(true);
            let _ = client.write(&Back::of(0, Err(full)));
            return;
        };
        let shared = Arc::clone(self);
        // Where no thread can be started, stream and seat are dropped with what it should have run.
        let _ = thread::Builder::new().name("relay-client".into()).spawn(move || {
            let _seat = seat;
            let _ = Client { stream }.serve(&shared);
        });
    }
}

/// How many places of one kind are taken.
#[derive(Debug, Default)]
struct Seats {
    taken: Mutex<usize>,
    freed: Condvar,
}

impl Seats {
    fn wait_until_empty(&self, within: Duration) {
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = self.freed.wait_timeout_while(taken, within, |taken| *taken > 0);
    }
}

/// A place among a bounded number, given back when dropped.
struct Seat(Arc<Seats>);

impl Seat {
    fn take(seats: &Arc<Seats>, most: usize) -> Option<Self> {
        let mut taken = seats.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if *taken >= most {
            return None;
        }
        *taken += 1;
        Some(Self(Arc::clone(seats)))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        *self.0.taken.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.0.freed.notify_all();
    }
}

/// Whether the kernel says that the process at the other end is this user's, or root's.
fn is_ours(stream: &UnixStream) -> bool {
    match relay_runtime::unix_endpoint(stream) {
        Endpoint::Unix { uid: Some(uid), .. } => uid == geteuid().as_raw() || uid == 0,
        // A system that does not say: the socket's mode and folder keep others out.
        Endpoint::Unix { uid: None, .. } => true,
        Endpoint::Tcp(_) | _ => false,
    }
}

struct Client {
    stream: UnixStream,
}

impl Client {
    fn serve(mut self, shared: &Shared) -> io::Result<()> {
        self.stream.set_write_timeout(Some(SLOW))?;
        let mut rest = Vec::new();
        while let Some(line) = self.line(&mut rest)? {
            let (id, asked) = match line {
                Ok(line) => read(&line),
                Err(failure) => {
                    self.write(&Back::of(0, Err(failure)))?;
                    return Ok(());
                }
            };
            match asked {
                Ok(Asked::Watch) => return self.watch(id, shared),
                Ok(Asked::Request(request)) => {
                    let outcome = self.carry_out(request, shared);
                    self.write(&Back::of(id, outcome))?;
                }
                Err(failure) => self.write(&Back::of(id, Err(failure)))?,
            }
        }
        Ok(())
    }

    fn carry_out(&self, request: Request, shared: &Shared) -> Result<Box<RawValue>, Failure> {
        let full = || {
            Failure::refused("too many requests wait for peers", "Try again when some of them have ended.")
        };
        let _seat = if request.waits() {
            Some(Seat::take(&shared.waiting, MAX_WAITING).ok_or_else(full)?)
        } else {
            None
        };
        shared.desk.carry_out_while(request, &|| !self.has_closed())
    }

    /// Whether nobody is there to read an answer. A client that closed its writing half alone reads still.
    fn has_closed(&self) -> bool {
        let mut fds = [PollFd::new(&self.stream, PollFlags::empty())];
        let looked = poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
        looked.is_ok() && fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
    }

    /// The next line; `None` at the end of the stream, or where the client is too slow.
    fn line(&mut self, rest: &mut Vec<u8>) -> io::Result<Option<Result<Vec<u8>, Failure>>> {
        let mut until = Instant::now() + if rest.is_empty() { IDLE } else { SLOW };
        let mut looked_at = 0;
        let mut chunk = [0; 16 << 10];
        loop {
            if let Some(end) = rest[looked_at..].iter().position(|byte| *byte == b'\n') {
                let mut line: Vec<u8> = rest.drain(..=looked_at + end).collect();
                line.pop();
                return Ok(Some(Ok(line)));
            }
            if rest.len() > MAX_REQUEST {
                let message = format!("the request is longer than {MAX_REQUEST} bytes");
                return Ok(Some(Err(Failure::usage(message, "Send less at once."))));
            }
            looked_at = rest.len();
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            self.stream.set_read_timeout(Some(left))?;
            match self.stream.read(&mut chunk) {
                Ok(0) => return Ok(None),
                Ok(taken) => {
                    if rest.is_empty() {
                        until = Instant::now() + SLOW;
                    }
                    rest.extend_from_slice(&chunk[..taken]);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Writes each line that the node tells, until the client closes or does not read.
    fn watch(&mut self, id: u64, shared: &Shared) -> io::Result<()> {
        let Some(_seat) = Seat::take(&shared.watchers, MAX_WATCHERS) else {
            let full = Failure::refused("too many watchers", "Try again when some of them have ended.");
            return self.write(&Back::of(id, Err(full)));
        };
        let lines = shared.feed.listen();
        self.write(&Back::done(id))?;
        loop {
            match lines.recv_timeout(GLANCE) {
                Ok(line) => self.write(&Back::event(id, &line))?,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            if self.has_left()? {
                return Ok(());
            }
        }
    }

    /// Whether the client closed. What it says while it watches is dropped.
    fn has_left(&mut self) -> io::Result<bool> {
        let mut fds = [PollFd::new(&self.stream, PollFlags::IN)];
        if poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))? == 0 {
            return Ok(false);
        }
        let mut dropped = [0; 4096];
        Ok(self.stream.read(&mut dropped)? == 0)
    }

    fn write(&mut self, back: &Back) -> io::Result<()> {
        // One deadline for all of it, however few bytes the client takes at a time.
        let until = Instant::now() + SLOW;
        let line = back.to_line();
        let mut left = &line[..];
        while !left.is_empty() {
            if Instant::now() > until {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let taken = self.stream.write(left)?;
            left = &left[taken..];
        }
        Ok(())
    }
}
