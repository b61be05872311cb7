//! Bytes to frames.

use alloc::vec::Vec;

use super::{COMPRESS_FROM, COMPRESSED, FrameFault, Framing, HEADER, MAX_FRAME, MAX_RAW, RAW_LENGTH};

/// Cuts a byte stream into frames, one at a time, whatever the slices it arrives in.
///
/// It holds nothing but the part of a frame whose end has not come: at most [`MAX_FRAME`] bytes and a header, grown
/// as bytes arrive and never because a length field announced them. Between frames it owns no heap memory.
///
/// A fault is final: which byte begins the next frame is unknown, so the caller closes and cuts no more.
#[derive(Debug, Default)]
pub struct Cutter {
    /// The frame so far: a line without its LF, or a binary frame with its header.
    partial: Vec<u8>,
    framing: Framing,
}

impl Cutter {
    /// A cutter at the start of a stream.
    #[must_use]
    pub const fn new(framing: Framing) -> Self {
        Self { partial: Vec::new(), framing }
    }

    /// How the next frame is read.
    #[must_use]
    pub const fn framing(&self) -> Framing {
        self.framing
    }

    /// Reads the next frame in another framing. Only between frames: what came of a frame belongs to its framing.
    pub fn set_framing(&mut self, framing: Framing) {
        debug_assert!(self.partial.is_empty(), "the framing changes between frames only");
        self.framing = framing;
    }

    /// Takes from the front of `data` what completes one frame, and gives that frame's JSON text.
    ///
    /// `None` says that all of `data` was taken and the frame is not whole yet. The text is borrowed from `data`
    /// where it stands there whole and plain, else from `scratch`, whose former content is lost. Nothing is said
    /// about the text itself: not that it is UTF-8, nor that it is JSON.
    ///
    /// # Errors
    ///
    /// The peer broke the framing. How much of `data` was taken is then unspecified.
    pub fn cut<'d: 's, 's>(
        &mut self,
        data: &mut &'d [u8],
        scratch: &'s mut Vec<u8>,
    ) -> Result<Option<&'s [u8]>, FrameFault> {
        if data.is_empty() {
            return Ok(None);
        }
        match self.framing {
            Framing::Ndjson => self.cut_line(data, scratch),
            Framing::Binary => self.cut_binary(data, scratch),
        }
    }

    /// Whether a frame's first byte has come and its last has not.
    #[must_use]
    pub const fn is_partial(&self) -> bool {
        !self.partial.is_empty()
    }

    /// Bytes held of a partial frame.
    #[must_use]
    pub const fn buffered(&self) -> usize {
        self.partial.len()
    }

    /// Says whether the stream may end here.
    ///
    /// # Errors
    ///
    /// [`FrameFault::Truncated`] inside a frame or a line: a message that the end cuts is never executed.
    pub const fn eof(&self) -> Result<(), FrameFault> {
        if self.is_partial() { Err(FrameFault::Truncated) } else { Ok(()) }
    }

    fn cut_line<'d: 's, 's>(
        &mut self,
        data: &mut &'d [u8],
        scratch: &'s mut Vec<u8>,
    ) -> Result<Option<&'s [u8]>, FrameFault> {
        // One byte more than fits, so that a line of the full length is found with its LF.
        let room = MAX_FRAME + 1 - self.partial.len();
        let seen = &data[..data.len().min(room)];
        let Some(end) = memchr::memchr(b'\n', seen) else {
            if seen.len() == room {
                return Err(FrameFault::LineTooLong);
            }
            self.keep(seen, MAX_FRAME);
            *data = &[];
            return Ok(None);
        };
        *data = &data[end + 1..];
        if self.partial.is_empty() {
            return if end == 0 { Err(FrameFault::BlankLine) } else { Ok(Some(&seen[..end])) };
        }
        self.keep(&seen[..end], MAX_FRAME);
        *scratch = core::mem::take(&mut self.partial);
        Ok(Some(scratch))
    }

    fn cut_binary<'d: 's, 's>(
        &mut self,
        data: &mut &'d [u8],
        scratch: &'s mut Vec<u8>,
    ) -> Result<Option<&'s [u8]>, FrameFault> {
        if self.partial.is_empty() {
            let Some(total) = check_header(data)? else {
                self.keep(data, HEADER + RAW_LENGTH);
                *data = &[];
                return Ok(None);
            };
            if let Some((frame, rest)) = data.split_at_checked(total) {
                *data = rest;
                return if frame[HEADER - 1] == COMPRESSED {
                    decompress(&frame[HEADER..], scratch).map(Some)
                } else {
                    Ok(Some(&frame[HEADER..]))
                };
            }
            self.keep(data, total);
            *data = &[];
            return Ok(None);
        }
        // The header first, and only then the body, since how much of `data` is the frame's is not known before.
        let total = loop {
            match check_header(&self.partial)? {
                Some(total) => break total,
                None if data.is_empty() => return Ok(None),
                None => self.take(data, header_missing(&self.partial), HEADER + RAW_LENGTH),
            }
        };
        self.take(data, total - self.partial.len(), total);
        if self.partial.len() < total {
            return Ok(None);
        }
        let frame = core::mem::take(&mut self.partial);
        if frame[HEADER - 1] == COMPRESSED {
            return decompress(&frame[HEADER..], scratch).map(Some);
        }
        *scratch = frame;
        Ok(Some(&scratch[HEADER..]))
    }

    /// Moves up to `count` bytes from the front of `data` behind the partial frame.
    fn take(&mut self, data: &mut &[u8], count: usize, bound: usize) {
        let (head, rest) = data.split_at(count.min(data.len()));
        self.keep(head, bound);
        *data = rest;
    }

    /// Appends to the partial frame, which is to have `bound` bytes at most. Doubling keeps small pieces cheap; the
    /// bound keeps doubling from overshooting.
    fn keep(&mut self, piece: &[u8], bound: usize) {
        let needed = self.partial.len() + piece.len();
        if needed > self.partial.capacity() {
            let capacity = (self.partial.capacity() * 2).min(bound).max(needed);
            self.partial.reserve_exact(capacity - self.partial.len());
        }
        self.partial.extend_from_slice(piece);
    }
}

/// Checks as much of a frame's header as is there: the size of the whole frame once that is certain and every field
/// is in its bounds, `None` while bytes are missing.
fn check_header(frame: &[u8]) -> Result<Option<usize>, FrameFault> {
    let Some(len) = frame.first_chunk::<4>().map(|len| u32::from_be_bytes(*len)) else { return Ok(None) };
    if len == 0 {
        return Err(FrameFault::Empty);
    }
    if len as usize > MAX_FRAME {
        return Err(FrameFault::TooLong { len });
    }
    let total = HEADER - 1 + len as usize;
    let Some(&flags) = frame.get(HEADER - 1) else { return Ok(None) };
    if flags & !COMPRESSED != 0 {
        return Err(FrameFault::ReservedFlags { flags });
    }
    if flags != COMPRESSED {
        return Ok(Some(total));
    }
    if total < HEADER + RAW_LENGTH {
        return Err(FrameFault::ShortBody);
    }
    let Some(raw) = frame[HEADER..].first_chunk::<4>().map(|raw| u32::from_le_bytes(*raw)) else {
        return Ok(None);
    };
    if !(COMPRESS_FROM..=MAX_RAW).contains(&(raw as usize)) {
        return Err(FrameFault::RawLength { raw });
    }
    Ok(Some(total))
}

/// How many bytes more decide the next header field of a frame whose header is not whole.
fn header_missing(frame: &[u8]) -> usize {
    let header = if frame.len() < HEADER { HEADER } else { HEADER + RAW_LENGTH };
    header - frame.len()
}

/// Opens the body of a compressed frame, whose raw length was checked.
fn decompress<'s>(body: &[u8], scratch: &'s mut Vec<u8>) -> Result<&'s [u8], FrameFault> {
    let Some((raw, block)) = body.split_first_chunk::<RAW_LENGTH>() else {
        return Err(FrameFault::ShortBody);
    };
    let raw = u32::from_le_bytes(*raw) as usize;
    // No byte of a block stands for more than 255 of text, so a few bytes cannot have us clear megabytes.
    if raw > block.len().saturating_mul(255) {
        return Err(FrameFault::Block);
    }
    scratch.clear();
    scratch.resize(raw, 0);
    match lz4_flex::block::decompress_into(block, scratch) {
        Ok(written) if written == raw => Ok(scratch),
        Ok(_) | Err(_) => Err(FrameFault::Block),
    }
}
