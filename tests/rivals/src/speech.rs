//! How the contestants are spoken to.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};

use relay_core::secret::Key;
use serde_json::Value;

use crate::load::Speech;

/// Claims over one-shots of protocol version 1, in NDJSON.
pub struct Claims {
    /// Distinguishes the leases of one round from those of another.
    pub round: usize,
    /// What each client shares with the authority.
    pub key: Key,
    /// Who the authority is.
    pub authority: String,
}

/// Who a client is.
pub fn client_id(client: usize) -> String {
    format!("client-{client}")
}

impl Speech for Claims {
    fn greet(&self, to: SocketAddr, client: usize) -> io::Result<TcpStream> {
        let stream = TcpStream::connect(to)?;
        let mut lines = BufReader::new(stream.try_clone()?);
        let mut read = || -> io::Result<Value> {
            let mut line = String::new();
            lines.read_line(&mut line)?;
            serde_json::from_str(&line).map_err(io::Error::other)
        };
        let challenge = read()?;
        let nonce = challenge["payload"]["nonce"].as_str().unwrap_or_default();
        let (proof, id) = (self.key.prove(nonce), client_id(client));
        let hello = format!(
            r#"{{"id":"h","msg_type":"handshake","from_peer":"{id}","timestamp":1700000000000,"payload":{{"proof":"{proof}","version":"0","proto":1,"features":["lease-fleet","lease-fence"],"transient":true}}}}"#
        );
        (&stream).write_all(format!("{hello}\n").as_bytes())?;
        let ack = read()?;
        if ack["payload"]["status"] == "ok" && ack["from_peer"] == self.authority.as_str() {
            Ok(stream)
        } else {
            Err(io::Error::other(format!("the handshake was refused: {ack}")))
        }
    }

    fn ask(&self, client: usize, nth: usize, into: &mut Vec<u8>) {
        let (round, id) = (self.round, client_id(client));
        let _ = writeln!(
            into,
            r#"{{"id":"m{round}-{nth}","msg_type":"lease_claim","from_peer":"{id}","timestamp":1700000000000,"payload":{{"request_id":"r{round}-{nth}","lease_id":"l{round}-{client}-{nth}","session":"s","kind":"res","value":"v{round}-{client}-{nth}","mode":"exclusive","ttl_secs":60}}}}"#
        );
    }

    fn is_success(&self, answer: &[u8]) -> bool {
        let granted = b"\"outcome\":\"granted\"";
        answer.windows(granted.len()).any(|part| part == granted)
    }
}

/// `SET key value NX PX 60000`.
pub struct Sets {
    /// Distinguishes the keys of one round from those of another.
    pub round: usize,
}

impl Speech for Sets {
    fn greet(&self, to: SocketAddr, _client: usize) -> io::Result<TcpStream> {
        TcpStream::connect(to)
    }

    fn ask(&self, client: usize, nth: usize, into: &mut Vec<u8>) {
        let key = format!("res:v{}-{client}-{nth}", self.round);
        let value = format!("s@{}", client_id(client));
        let _ = write!(
            into,
            "*6\r\n$3\r\nSET\r\n${}\r\n{key}\r\n${}\r\n{value}\r\n$2\r\nNX\r\n$2\r\nPX\r\n$5\r\n60000\r\n",
            key.len(),
            value.len()
        );
    }

    fn is_success(&self, answer: &[u8]) -> bool {
        answer.starts_with(b"+OK")
    }
}
