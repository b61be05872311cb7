//! Bodies of fuzz targets: each takes any bytes, and panics where a law is broken.
//!
//! They are ordinary library code, so that every build compiles them and every test run replays the corpus; the
//! targets themselves, in `tests/fuzz`, only call them.

mod operations;
mod rig;

use relay_core::frame::{Cutter, Framing};

use crate::fleet::wire;

pub use operations::node;
pub use rig::{Rig, Transcript};

/// What a target is: any bytes go in, and a law that they break panics.
pub type Body = fn(&[u8]);

/// The targets by name.
pub const TARGETS: [(&str, Body); 4] = [
    ("frame_ndjson", frame_ndjson),
    ("frame_binary", frame_binary),
    ("handshake", handshake),
    ("node", node),
];

/// What is left to tell of a stream: its frames, and whether it ended in a fault.
type Cut = (Vec<Vec<u8>>, bool);

/// Lines, cut where the first byte says, are the same lines as in one piece.
pub fn frame_ndjson(data: &[u8]) {
    chunks_do_not_matter(Framing::Ndjson, data);
}

/// Binary frames, cut where the first byte says, are the same frames as in one piece.
pub fn frame_binary(data: &[u8]) {
    chunks_do_not_matter(Framing::Binary, data);
}

/// A conversation with a node in the role that the first byte says, cut where the second says, is the same as in one
/// piece. Where the bytes say `$PROOF`, the right proof stands.
pub fn handshake(data: &[u8]) {
    let [role, chunk, data @ ..] = data else { return };
    let (dials, size) = (role % 2 == 1, usize::from(*chunk).max(1));
    let whole = conversation(dials, data, usize::MAX);
    let cut = conversation(dials, data, size);
    assert!(whole.agrees_with(&cut), "how bytes are cut changes nothing: {whole:?} {cut:?}");
}

/// What a node does with these bytes from somebody that it dialled, or that dialled it, in pieces of this size.
#[must_use]
pub fn conversation(dials: bool, data: &[u8], size: usize) -> Transcript {
    let mut rig = Rig::new(1);
    let conn = if dials { rig.dialled("mmm") } else { rig.accepted(1) };
    let nonce = rig.nonce(conn).unwrap_or_default();
    let data = with_proof(data, &wire::key("mmm", rig::NAME).prove(&nonce));
    for piece in data.chunks(size) {
        rig.receive(conn, piece);
    }
    rig.eof(conn);
    rig.finish()
}

fn with_proof(data: &[u8], proof: &str) -> Vec<u8> {
    const MARK: &[u8] = b"$PROOF";
    let mut whole = Vec::with_capacity(data.len());
    let mut rest = data;
    while let Some(at) = rest.windows(MARK.len()).position(|window| window == MARK) {
        whole.extend_from_slice(&rest[..at]);
        whole.extend_from_slice(proof.as_bytes());
        rest = &rest[at + MARK.len()..];
    }
    whole.extend_from_slice(rest);
    whole
}

fn chunks_do_not_matter(framing: Framing, data: &[u8]) {
    let Some((size, data)) = data.split_first() else { return };
    let whole = cut(framing, data, usize::MAX);
    assert_eq!(whole, cut(framing, data, usize::from(*size).max(1)), "how bytes are cut changes nothing");
    assert_eq!(whole, cut(framing, data, 1), "how bytes are cut changes nothing");
}

fn cut(framing: Framing, data: &[u8], size: usize) -> Cut {
    let (mut cutter, mut scratch, mut frames) = (Cutter::new(framing), Vec::new(), Vec::new());
    for mut piece in data.chunks(size) {
        loop {
            match cutter.cut(&mut piece, &mut scratch) {
                Ok(Some(frame)) => frames.push(frame.to_vec()),
                Ok(None) => break,
                Err(_) => return (frames, true),
            }
        }
    }
    let ended = cutter.eof().is_err();
    (frames, ended)
}
