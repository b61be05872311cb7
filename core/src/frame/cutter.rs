//! Bytes to frames.

use alloc::boxed::Box;
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
    /// The frame so far, where there is one: a line without its LF, or a binary frame with its header.
    #[expect(
        clippy::box_collection,
        reason = "every idle link has a cutter, and hardly one of them a partial frame"
    )]
    partial: Option<Box<Vec<u8>>>,
    framing: Framing,
}

impl Cutter {
    /// A cutter at the start of a stream.
    #[must_use]
    pub const fn new(framing: Framing) -> Self {
        Self { partial: None, framing }
    }

    /// How the next frame is read.
    #[must_use]
    pub const fn framing(&self) -> Framing {
        self.framing
    }

    /// Reads the next frame in another framing. Only between frames: what came of a frame belongs to its framing.
    pub fn set_framing(&mut self, framing: Framing) {
        debug_assert!(!self.is_partial(), "the framing changes between frames only");
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

    /// The length of the text that [`cut`](Self::cut) would decompress for the next frame, in bytes; 0 where it would not
    /// decompress any.
    #[must_use]
    pub fn would_inflate(&self, data: &[u8]) -> usize {
        if self.framing == Framing::Ndjson {
            return 0;
        }
        let mut header = [0; HEADER + RAW_LENGTH];
        let mut bytes = self.partial().iter().chain(data);
        for place in &mut header {
            let Some(byte) = bytes.next() else { return 0 };
            *place = *byte;
        }
        let [.., raw_0, raw_1, raw_2, raw_3] = header;
        let whole = |total| self.buffered() + data.len() >= total && header[HEADER - 1] == COMPRESSED;
        match check_header(&header) {
            Ok(Some(total)) if whole(total) => u32::from_le_bytes([raw_0, raw_1, raw_2, raw_3]) as usize,
            Ok(_) | Err(_) => 0,
        }
    }

    /// Whether a frame's first byte has come and its last has not.
    #[must_use]
    pub const fn is_partial(&self) -> bool {
        self.partial.is_some()
    }

    /// Bytes held of a partial frame.
    #[must_use]
    pub fn buffered(&self) -> usize {
        self.partial().len()
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
        let room = MAX_FRAME + 1 - self.buffered();
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
        if !self.is_partial() {
            return if end == 0 { Err(FrameFault::BlankLine) } else { Ok(Some(&seen[..end])) };
        }
        self.keep(&seen[..end], MAX_FRAME);
        *scratch = self.take_partial();
        Ok(Some(scratch))
    }

    fn cut_binary<'d: 's, 's>(
        &mut self,
        data: &mut &'d [u8],
        scratch: &'s mut Vec<u8>,
    ) -> Result<Option<&'s [u8]>, FrameFault> {
        if !self.is_partial() {
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
            match check_header(self.partial())? {
                Some(total) => break total,
                None if data.is_empty() => return Ok(None),
                None => self.take(data, header_missing(self.partial()), HEADER + RAW_LENGTH),
            }
        };
        self.take(data, total - self.buffered(), total);
        if self.buffered() < total {
            return Ok(None);
        }
        let frame = self.take_partial();
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
        if piece.is_empty() {
            return;
        }
        let partial = self.partial.get_or_insert_default();
        let needed = partial.len() + piece.len();
        if needed > partial.capacity() {
            let capacity = (partial.capacity() * 2).min(bound).max(needed);
            partial.reserve_exact(capacity - partial.len());
        }
        partial.extend_from_slice(piece);
    }

    fn partial(&self) -> &[u8] {
        self.partial.as_deref().map_or(&[], Vec::as_slice)
    }

    fn take_partial(&mut self) -> Vec<u8> {
        self.partial.take().map_or_else(Vec::new, |partial| *partial)
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

#[cfg(test)]
mod tests {
    use alloc::vec;

    use quickcheck::{TestResult, quickcheck};

    use super::super::encode;
    use super::*;

    /// What a stream came to: its frames, and how it ended.
    type Run = (Vec<Vec<u8>>, Result<(), FrameFault>);

    /// Cuts slices until a fault or the end of the stream.
    fn run<'a>(framing: Framing, slices: impl IntoIterator<Item = &'a [u8]>) -> Run {
        let (mut cutter, mut scratch, mut frames) = (Cutter::new(framing), Vec::new(), Vec::new());
        for mut slice in slices {
            loop {
                match cutter.cut(&mut slice, &mut scratch) {
                    Ok(Some(frame)) => frames.push(frame.to_vec()),
                    Ok(None) => break,
                    Err(fault) => return (frames, Err(fault)),
                }
                assert!(cutter.partial.is_none());
            }
            assert!(slice.is_empty());
            assert!(held(&cutter) <= MAX_FRAME + HEADER);
        }
        (frames, cutter.eof())
    }

    /// The room that a partial frame takes.
    fn held(cutter: &Cutter) -> usize {
        cutter.partial.as_ref().map_or(0, |partial| partial.capacity())
    }

    fn whole(framing: Framing, stream: &[u8]) -> Run {
        run(framing, [stream])
    }

    fn bytewise(framing: Framing, stream: &[u8]) -> Run {
        run(framing, stream.chunks(1))
    }

    fn fault(framing: Framing, stream: &[u8]) -> FrameFault {
        let ended = whole(framing, stream).1.unwrap_err();
        assert_eq!(bytewise(framing, stream).1, Err(ended));
        ended
    }

    fn frames(framing: Framing, stream: &[u8]) -> Vec<Vec<u8>> {
        let cut = whole(framing, stream);
        assert_eq!(cut, bytewise(framing, stream));
        assert_eq!(cut.1, Ok(()));
        cut.0
    }

    /// A frame with these fields, however wrong.
    fn frame(len: u32, flags: u8, body: &[u8]) -> Vec<u8> {
        let mut frame = len.to_be_bytes().to_vec();
        frame.push(flags);
        frame.extend_from_slice(body);
        frame
    }

    /// A compressed frame of a body made of a raw length and a block.
    fn compressed(raw: [u8; 4], block: &[u8]) -> Vec<u8> {
        let body = [&raw, block].concat();
        frame(body.len() as u32 + 1, 1, &body)
    }

    fn block_of(raw: usize) -> Vec<u8> {
        lz4_flex::block::compress(&vec![b'x'; raw])
    }

    #[test]
    fn an_idle_cutter_is_small_and_owns_nothing() {
        assert!(size_of::<Cutter>() <= 16);
        assert_eq!(held(&Cutter::new(Framing::Binary)), 0);
    }

    #[test]
    fn lines_end_at_lf_and_keep_all_else() {
        let cut = frames(Framing::Ndjson, b"{}\r\n \n\r\na\0b\n");
        assert_eq!(cut, [&b"{}\r"[..], b" ", b"\r", b"a\0b"]);
    }

    #[test]
    fn a_blank_line_is_the_end_of_the_stream() {
        assert_eq!(fault(Framing::Ndjson, b"\n"), FrameFault::BlankLine);
        let (before, ended) = whole(Framing::Ndjson, b"{}\n\n{}\n");
        assert_eq!((before.len(), ended), (1, Err(FrameFault::BlankLine)));
    }

    #[test]
    fn a_line_of_1_mib_without_lf_is_taken_and_one_byte_more_is_refused() {
        let mut line = vec![b'x'; MAX_FRAME];
        line.push(b'\n');
        assert_eq!(frames(Framing::Ndjson, &line)[0].len(), MAX_FRAME);
        let mut long = vec![b'x'; MAX_FRAME + 1];
        assert_eq!(fault(Framing::Ndjson, &long), FrameFault::LineTooLong);
        long.push(b'\n');
        assert_eq!(fault(Framing::Ndjson, &long), FrameFault::LineTooLong);
    }

    #[test]
    fn a_line_or_frame_that_eof_cuts_is_not_executed() {
        assert_eq!(whole(Framing::Ndjson, b"{}\n{}"), (vec![b"{}".to_vec()], Err(FrameFault::Truncated)));
        assert_eq!(fault(Framing::Binary, b"\0"), FrameFault::Truncated);
        assert_eq!(fault(Framing::Binary, b"\0\0\0\x03\0{"), FrameFault::Truncated);
    }

    #[test]
    fn binary_len_0_is_refused() {
        assert_eq!(fault(Framing::Binary, &frame(0, 0, b"")), FrameFault::Empty);
    }

    #[test]
    fn binary_len_above_1_mib_is_refused_from_its_header_alone() {
        let len = MAX_FRAME as u32;
        assert_eq!(fault(Framing::Binary, &(len + 1).to_be_bytes()), FrameFault::TooLong { len: len + 1 });
        assert_eq!(
            frames(Framing::Binary, &frame(len, 0, &vec![b'x'; MAX_FRAME - 1]))[0].len(),
            MAX_FRAME - 1
        );
    }

    #[test]
    fn binary_reserved_bits_are_refused() {
        for bit in 1..8 {
            let flags = 1 << bit;
            assert_eq!(fault(Framing::Binary, &frame(3, flags, b"{}")), FrameFault::ReservedFlags { flags });
            let flags = flags | 1;
            assert_eq!(fault(Framing::Binary, &frame(3, flags, b"{}")), FrameFault::ReservedFlags { flags });
        }
    }

    #[test]
    fn binary_flag_1_with_less_than_4_body_bytes_is_refused() {
        for len in 1..5 {
            assert_eq!(fault(Framing::Binary, &frame(len, 1, &[0; 4])), FrameFault::ShortBody);
        }
    }

    #[test]
    fn binary_raw_length_is_1024_to_4_mib() {
        for raw in [COMPRESS_FROM, MAX_RAW] {
            let stream = compressed((raw as u32).to_le_bytes(), &block_of(raw));
            assert_eq!(frames(Framing::Binary, &stream)[0], vec![b'x'; raw]);
        }
        for raw in [0, COMPRESS_FROM - 1, MAX_RAW + 1] {
            let stream = compressed((raw as u32).to_le_bytes(), &block_of(raw));
            assert_eq!(fault(Framing::Binary, &stream), FrameFault::RawLength { raw: raw as u32 });
        }
        let big_endian = compressed(1100_u32.to_be_bytes(), &block_of(1100));
        assert_eq!(fault(Framing::Binary, &big_endian), FrameFault::RawLength { raw: 1100_u32.swap_bytes() });
    }

    #[test]
    fn binary_block_must_come_to_exactly_the_raw_length() {
        let block = block_of(2048);
        for raw in [2047_u32, 2049] {
            assert_eq!(fault(Framing::Binary, &compressed(raw.to_le_bytes(), &block)), FrameFault::Block);
        }
        let raw = 2048_u32.to_le_bytes();
        assert_eq!(fault(Framing::Binary, &compressed(raw, b"\xff\xff\xff")), FrameFault::Block);
        assert_eq!(fault(Framing::Binary, &compressed(raw, b"")), FrameFault::Block);
        assert_eq!(fault(Framing::Binary, &compressed(raw, &block[..block.len() - 1])), FrameFault::Block);
        for behind in [&b"\0"[..], b"x", b"\x10x", b"\0\0\0\0\0"] {
            let stream = compressed(raw, &[&block, behind].concat());
            assert_eq!(fault(Framing::Binary, &stream), FrameFault::Block, "{behind:?}");
        }
    }

    #[test]
    fn binary_plain_1_kib_and_poor_compression_are_taken() {
        assert_eq!(frames(Framing::Binary, &frame(2001, 0, &[b'x'; 2000]))[0].len(), 2000);
        // All literals: a block that is longer than its text.
        let text = [b'x'; 1024];
        let block = [&b"\xf0\xff\xff\xff\xf4"[..], &text].concat();
        assert_eq!(frames(Framing::Binary, &compressed(1024_u32.to_le_bytes(), &block))[0], text);
    }

    #[test]
    fn a_few_bytes_do_not_have_megabytes_cleared() {
        let (mut cutter, mut scratch) = (Cutter::new(Framing::Binary), Vec::new());
        let stream = compressed((MAX_RAW as u32).to_le_bytes(), &[0; 100]);
        assert_eq!(cutter.cut(&mut &stream[..], &mut scratch), Err(FrameFault::Block));
        assert_eq!(scratch.capacity(), 0);
    }

    #[test]
    fn a_length_field_reserves_nothing() {
        let (mut cutter, mut scratch) = (Cutter::new(Framing::Binary), Vec::new());
        assert_eq!(cutter.cut(&mut &frame(MAX_FRAME as u32, 0, b"x")[..], &mut scratch), Ok(None));
        assert!(cutter.is_partial());
        assert_eq!(cutter.buffered(), 6);
        assert!(held(&cutter) <= 16);
    }

    #[test]
    fn the_framing_changes_between_two_frames_of_one_segment() {
        let mut stream = b"{\"ack\":1}\n".to_vec();
        encode(Framing::Binary, b"{\"a\":1}", &mut stream).unwrap();
        encode(Framing::Binary, &[b'x'; 3000], &mut stream).unwrap();
        let (mut cutter, mut scratch, mut data) = (Cutter::new(Framing::Ndjson), Vec::new(), &stream[..]);
        assert_eq!(cutter.cut(&mut data, &mut scratch), Ok(Some(&b"{\"ack\":1}"[..])));
        cutter.set_framing(Framing::Binary);
        assert_eq!(cutter.framing(), Framing::Binary);
        assert_eq!(cutter.cut(&mut data, &mut scratch), Ok(Some(&b"{\"a\":1}"[..])));
        assert_eq!(cutter.cut(&mut data, &mut scratch), Ok(Some(&[b'x'; 3000][..])));
        assert_eq!(cutter.cut(&mut data, &mut scratch), Ok(None));
    }

    #[test]
    fn lines_on_a_binary_link_and_frames_on_a_line_link_are_faults() {
        assert_eq!(
            fault(Framing::Binary, b"{\"id\":\"\"}\n"),
            FrameFault::TooLong { len: u32::from_be_bytes(*b"{\"id") }
        );
        assert_eq!(fault(Framing::Ndjson, &frame(3, 0, b"{}")), FrameFault::Truncated);
    }

    #[test]
    fn every_split_of_a_short_stream_gives_the_same_frames() {
        let mut binary = Vec::new();
        for text in [&b"{}"[..], b"[1]", &[b'x'; 1100]] {
            encode(Framing::Binary, text, &mut binary).unwrap();
        }
        binary.extend_from_slice(&frame(1, 0, b""));
        for (framing, stream) in [(Framing::Ndjson, &b"{}\n\r\nabc\nx"[..]), (Framing::Binary, &binary[..])] {
            let expected = whole(framing, stream);
            for first in 0..=stream.len() {
                for second in first..=stream.len() {
                    let slices = [&stream[..first], &stream[first..second], &stream[second..]];
                    assert_eq!(run(framing, slices), expected, "split at {first} and {second}");
                }
            }
        }
    }

    /// Cuts a stream at points that the sizes give, over and over.
    fn split(mut stream: &[u8], sizes: &[u8]) -> Vec<Vec<u8>> {
        let mut sizes = sizes.iter().cycle();
        let mut slices = Vec::new();
        while !stream.is_empty() {
            let size = sizes.next().map_or(1, |&size| usize::from(size) * 3 + 1).min(stream.len());
            slices.push(stream[..size].to_vec());
            stream = &stream[size..];
        }
        slices
    }

    /// Whether all ways of slicing agree.
    fn is_invariant(framing: Framing, stream: &[u8], sizes: &[u8]) -> bool {
        let expected = whole(framing, stream);
        bytewise(framing, stream) == expected
            && run(framing, split(stream, sizes).iter().map(Vec::as_slice)) == expected
    }

    quickcheck! {
        fn frames_are_the_same_however_they_arrive(texts: Vec<(Vec<u8>, u8)>, sizes: Vec<u8>) -> TestResult {
            for framing in [Framing::Ndjson, Framing::Binary] {
                let (mut stream, mut sent) = (Vec::new(), Vec::new());
                for (text, times) in &texts {
                    let text: Vec<u8> = text.repeat(usize::from(*times % 48));
                    if encode(framing, &text, &mut stream).is_ok() {
                        sent.push(text);
                    }
                }
                if whole(framing, &stream) != (sent, Ok(())) || !is_invariant(framing, &stream, &sizes) {
                    return TestResult::failed();
                }
            }
            TestResult::passed()
        }

        fn any_bytes_fault_alike_however_they_arrive(stream: Vec<u8>, sizes: Vec<u8>) -> bool {
            // A small length, so that a frame's body is reached at all.
            let short = [&[0, 0, 0, 12, 1, 0, 4, 0, 0][..], &stream].concat();
            is_invariant(Framing::Ndjson, &stream, &sizes)
                && is_invariant(Framing::Binary, &stream, &sizes)
                && is_invariant(Framing::Binary, &short, &sizes)
        }

        fn a_damaged_frame_faults_alike_however_it_arrives(at: usize, with: u8, sizes: Vec<u8>) -> bool {
            let mut stream = Vec::new();
            let mut text = vec![b'x'; 700];
            text.extend(0..=255);
            text.extend_from_slice(&[b'y'; 700]);
            encode(Framing::Binary, &text, &mut stream).is_ok() && {
                let at = at % stream.len();
                stream[at] = with;
                is_invariant(Framing::Binary, &stream, &sizes)
            }
        }
    }
}
