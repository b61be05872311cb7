//! A peer on a real socket that asks for leases, as fast as it likes: the wire knows no least time between two polls.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::atomic::{AtomicU64, Ordering};

use relay_tests::fleet::wire;
use relay_tests::loads::{RELAY, Shake};
use relay_tests::peers::{PATIENCE, RelayHome, Runtime};
use serde_json::{Value, json};

const FEATURES: &str = r#""transient":true,"proto":1,"features":["unknown-ok","lease-fleet","lease-fence"]"#;
/// Longer than any test, in seconds.
const TTL: u64 = 3600;

static NEXT: AtomicU64 = AtomicU64::new(1);

/// A home of the program at `program` that has the keys of these peers.
pub(crate) fn home(program: &str, runtime: Runtime, peers: &[String]) -> RelayHome {
    let home = RelayHome::new(program, RELAY, runtime);
    for peer in peers {
        let path = home.path().join(format!("peers/{peer}.key"));
        let mut file =
            std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).unwrap();
        file.write_all(wire::key(peer, RELAY).to_hex().as_bytes()).unwrap();
    }
    home
}

/// What is asked: the same for every try, but for the message's id.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    msg_type: &'static str,
    payload: Value,
}

impl Request {
    fn new(msg_type: &'static str, mut payload: Value) -> Self {
        payload["request_id"] = json!(format!("r{}", NEXT.fetch_add(1, Ordering::Relaxed)));
        Self { msg_type, payload }
    }

    pub(crate) fn claim(lease: &str, resource: &str) -> Self {
        let payload = json!({
            "lease_id": lease, "session": "s", "kind": "res", "value": resource, "mode": "exclusive", "ttl_secs": TTL,
        });
        Self::new("lease_claim", payload)
    }

    /// A claim that waits, and its poll once it has a place.
    pub(crate) fn wait(lease: &str, resource: &str, waiter_id: Option<&str>) -> Self {
        let mut wait = Self::claim(lease, resource);
        wait.payload["wait"] = json!(true);
        if let Some(waiter_id) = waiter_id {
            wait.payload["waiter_id"] = json!(waiter_id);
        }
        wait
    }

    pub(crate) fn release(lease: &str) -> Self {
        Self::new("lease_release", json!({"lease_id": lease, "session": "s"}))
    }

    pub(crate) fn list() -> Self {
        Self::new("lease_list", json!({}))
    }
}

/// A connection of a peer.
pub(crate) struct Wired {
    pub(crate) stream: TcpStream,
    name: String,
    heard: Vec<u8>,
}

impl Wired {
    /// Connects and proves itself.
    pub(crate) fn join(address: SocketAddr, name: &str) -> Self {
        let mut shake = Shake::connect(address, name.to_owned()).unwrap();
        shake.prove(FEATURES).unwrap();
        let stream = shake.finish().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { stream, name: name.to_owned(), heard: Vec::new() }
    }

    /// Sends a request, under a new message id.
    pub(crate) fn send(&mut self, request: &Request) -> io::Result<()> {
        let id = format!("m{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let text = wire::text(&id, request.msg_type, &self.name, &request.payload.to_string());
        self.stream.write_all(format!("{text}\n").as_bytes())
    }

    /// The next answer; nothing where the connection ends first.
    pub(crate) fn answer(&mut self) -> Option<Value> {
        loop {
            if let Some(answer) = self.heard_answer() {
                return Some(answer);
            }
            match self.fill() {
                Ok(0) => return None,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("no answer: {error}"),
            }
        }
    }

    /// The answer to a request.
    pub(crate) fn ask(&mut self, request: &Request) -> Value {
        self.send(request).unwrap();
        self.answer().expect("the authority answers")
    }

    /// The answers that are there now, of a socket that does not block.
    pub(crate) fn answers(&mut self) -> Vec<Value> {
        loop {
            match self.fill() {
                Ok(0) => panic!("the authority closed the connection of {}", self.name),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        }
        std::iter::from_fn(|| self.heard_answer()).collect()
    }

    fn fill(&mut self) -> io::Result<usize> {
        let mut chunk = [0; 4096];
        let count = self.stream.read(&mut chunk)?;
        self.heard.extend_from_slice(&chunk[..count]);
        Ok(count)
    }

    fn heard_answer(&mut self) -> Option<Value> {
        while let Some(end) = self.heard.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.heard.drain(..=end).collect();
            let mut message: Value = serde_json::from_slice(&line).unwrap();
            if message["msg_type"] == "lease_result" {
                return Some(message["payload"].take());
            }
        }
        None
    }
}

/// The fencing token of a grant.
pub(crate) fn granted(answer: &Value) -> u64 {
    assert_eq!(answer["outcome"], "granted", "{answer}");
    answer["lease"]["fencing_token"].as_u64().unwrap()
}

/// The place of one who waits.
pub(crate) fn queued(answer: &Value) -> String {
    assert_eq!(answer["outcome"], "queued", "{answer}");
    answer["waiter_id"].as_str().unwrap().to_owned()
}
