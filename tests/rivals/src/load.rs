//! One thread that keeps a fixed number of requests under way on each of many connections, and takes their times.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use mio::{Events, Interest, Poll, Token};

/// What a contestant's requests look like on the wire. Every answer ends with one line feed.
pub trait Speech {
    /// Opens a connection and says all that comes before the first request.
    fn greet(&self, to: SocketAddr, client: usize) -> io::Result<TcpStream>;

    /// Writes the `nth` request of a client.
    fn ask(&self, client: usize, nth: usize, into: &mut Vec<u8>);

    /// Whether an answer is a success.
    fn is_success(&self, answer: &[u8]) -> bool;
}

/// How a round goes.
#[derive(Clone, Copy)]
pub struct Plan {
    /// Connections.
    pub clients: usize,
    /// Requests under way on each.
    pub deep: usize,
    /// Requests of each.
    pub requests: usize,
}

/// What came of a round.
pub struct Outcome {
    /// Requests a second.
    pub rate: f64,
    /// Times from a request to its answer, sorted.
    pub times: Vec<Duration>,
}

struct Client {
    stream: mio::net::TcpStream,
    sent: Vec<Instant>,
    answered: usize,
    unsent: Vec<u8>,
    partial: Vec<u8>,
}

/// Runs a round.
pub fn run(speech: &dyn Speech, to: SocketAddr, plan: Plan) -> io::Result<Outcome> {
    let mut poll = Poll::new()?;
    let mut clients = Vec::with_capacity(plan.clients);
    for at in 0..plan.clients {
        let stream = speech.greet(to, at)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let mut stream = mio::net::TcpStream::from_std(stream);
        let interest = Interest::READABLE | Interest::WRITABLE;
        poll.registry().register(&mut stream, Token(at), interest)?;
        let (unsent, partial) = (Vec::new(), Vec::new());
        clients.push(Client { stream, sent: Vec::with_capacity(plan.requests), answered: 0, unsent, partial });
    }
    let mut times = Vec::with_capacity(plan.clients * plan.requests);
    let mut buffer = vec![0; 1 << 16];
    let mut events = Events::with_capacity(256);
    let began = Instant::now();
    for (at, client) in clients.iter_mut().enumerate() {
        client.top_up(speech, at, plan)?;
    }
    while times.len() < plan.clients * plan.requests {
        poll.poll(&mut events, Some(Duration::from_secs(30)))?;
        if events.is_empty() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "no answer within 30 s"));
        }
        for event in &events {
            let at = event.token().0;
            clients[at].read(speech, &mut buffer, &mut times)?;
            clients[at].top_up(speech, at, plan)?;
        }
    }
    let rate = times.len() as f64 / began.elapsed().as_secs_f64();
    times.sort_unstable();
    Ok(Outcome { rate, times })
}

impl Client {
    fn top_up(&mut self, speech: &dyn Speech, at: usize, plan: Plan) -> io::Result<()> {
        let now = Instant::now();
        while self.sent.len() < plan.requests && self.sent.len() - self.answered < plan.deep {
            speech.ask(at, self.sent.len(), &mut self.unsent);
            self.sent.push(now);
        }
        while !self.unsent.is_empty() {
            match self.stream.write(&self.unsent) {
                Ok(count) => {
                    self.unsent.drain(..count);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn read(&mut self, speech: &dyn Speech, buffer: &mut [u8], times: &mut Vec<Duration>) -> io::Result<()> {
        loop {
            let count = match self.stream.read(buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            let now = Instant::now();
            self.partial.extend_from_slice(&buffer[..count]);
            let mut from = 0;
            while let Some(end) = self.partial[from..].iter().position(|byte| *byte == b'\n') {
                let answer = &self.partial[from..from + end];
                if !speech.is_success(answer) {
                    let text = String::from_utf8_lossy(answer).into_owned();
                    return Err(io::Error::other(format!("not granted: {text}")));
                }
                times.push(now.duration_since(self.sent[self.answered]));
                self.answered += 1;
                from += end + 1;
            }
            self.partial.drain(..from);
            if count < buffer.len() {
                return Ok(());
            }
        }
    }
}
