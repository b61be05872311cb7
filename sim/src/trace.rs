//! One hash over all that happened, and the same as lines to read.

use core::fmt;
use core::ops::Range;

use crate::draw::mix64;
use crate::node::NodeId;

/// The hash of a run so far: two runs are the same where it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fingerprint(u64, u64);

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}{:016x}", self.0, self.1)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

pub(crate) struct Trace {
    lanes: [u64; 2],
    count: u64,
    checkpoints: Vec<Fingerprint>,
    keep: Range<u64>,
    lines: Vec<String>,
}

impl Trace {
    /// Events between two checkpoints.
    pub(crate) const CHECKPOINT: u64 = 4096;
    /// Bytes of a payload that a line shows.
    const SHOWN: usize = 96;

    pub(crate) const fn new() -> Self {
        Self { lanes: [1, 2], count: 0, checkpoints: Vec::new(), keep: 0..0, lines: Vec::new() }
    }

    /// Keeps the lines of these events.
    pub(crate) const fn keep(&mut self, events: Range<u64>) {
        self.keep = events;
    }

    /// Notes one event: when, at whom, what, about which id, with which bytes.
    pub(crate) fn note(&mut self, at: u64, node: NodeId, kind: &'static str, id: u64, payload: &[u8]) {
        let count = self.count;
        self.count += 1;
        for word in [at, count, u64::from(node.number()), id] {
            self.fold(word);
        }
        self.fold_bytes(kind.as_bytes());
        self.fold_bytes(payload);
        if self.count.is_multiple_of(Self::CHECKPOINT) {
            self.checkpoints.push(self.fingerprint());
        }
        if self.keep.contains(&count) {
            self.lines.push(line(at, node, kind, id, payload));
        }
    }

    pub(crate) const fn count(&self) -> u64 {
        self.count
    }

    pub(crate) const fn fingerprint(&self) -> Fingerprint {
        Fingerprint(self.lanes[0], self.lanes[1])
    }

    /// The fingerprint behind each [`Self::CHECKPOINT`] events.
    pub(crate) fn checkpoints(&self) -> &[Fingerprint] {
        &self.checkpoints
    }

    pub(crate) fn lines(&self) -> &[String] {
        &self.lines
    }

    const fn fold(&mut self, word: u64) {
        self.lanes[0] = mix64(self.lanes[0] ^ word);
        self.lanes[1] = mix64(self.lanes[1].rotate_left(23).wrapping_add(word));
    }

    fn fold_bytes(&mut self, bytes: &[u8]) {
        self.fold(bytes.len() as u64);
        let (words, rest) = bytes.as_chunks();
        for word in words {
            self.fold(u64::from_le_bytes(*word));
        }
        if !rest.is_empty() {
            let mut word = [0; 8];
            word[..rest.len()].copy_from_slice(rest);
            self.fold(u64::from_le_bytes(word));
        }
    }
}

fn line(at: u64, node: NodeId, kind: &str, id: u64, payload: &[u8]) -> String {
    let shown = payload[..payload.len().min(Trace::SHOWN)].escape_ascii();
    let more = if payload.len() > Trace::SHOWN { "…" } else { "" };
    let (seconds, nanos) = (at / 1_000_000_000, at % 1_000_000_000);
    format!("{seconds}.{nanos:09} {node} {kind} #{id} [{}] {shown}{more}", payload.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash_of(notes: &[(u64, &'static str, &[u8])]) -> Fingerprint {
        let mut trace = Trace::new();
        for (at, kind, payload) in notes {
            trace.note(*at, NodeId(0), kind, 0, payload);
        }
        trace.fingerprint()
    }

    #[test]
    fn whatever_differs_changes_the_hash() {
        let base = hash_of(&[(1, "a", b"x"), (2, "b", b"")]);
        assert_eq!(base, hash_of(&[(1, "a", b"x"), (2, "b", b"")]));
        assert_ne!(base, hash_of(&[(1, "a", b"x"), (3, "b", b"")]));
        assert_ne!(base, hash_of(&[(1, "a", b""), (2, "b", b"x")]));
        assert_ne!(base, hash_of(&[(2, "b", b""), (1, "a", b"x")]));
        assert_ne!(base, hash_of(&[(1, "a", b"x\0"), (2, "b", b"")]));
    }

    #[test]
    fn lines_are_kept_only_where_asked_for() {
        let mut trace = Trace::new();
        trace.keep(1..2);
        for at in 0..3 {
            trace.note(at, NodeId(4), "read", 7, b"a\n");
        }
        assert_eq!(trace.lines(), ["0.000000001 n4 read #7 [2] a\\n"]);
    }
}
