//! Frames to bytes.

use alloc::vec::Vec;

use lz4_flex::block::{compress_into, get_maximum_output_size};

use super::{COMPRESS_FROM, COMPRESSED, EncodeError, Framing, HEADER, MAX_FRAME, MAX_RAW, RAW_LENGTH};

/// Appends one frame that holds `json` to `out`.
///
/// A binary frame is compressed where the text has at least [`COMPRESS_FROM`] bytes and that makes it smaller.
///
/// # Errors
///
/// The text is empty, has a raw line break, or is too long for its framing. `out` is then as it was.
pub fn encode(framing: Framing, json: &[u8], out: &mut Vec<u8>) -> Result<(), EncodeError> {
    if json.is_empty() {
        return Err(EncodeError::Empty);
    }
    match framing {
        Framing::Ndjson => encode_line(json, out),
        Framing::Binary => encode_binary(json, out),
    }
}

fn encode_line(json: &[u8], out: &mut Vec<u8>) -> Result<(), EncodeError> {
    if json.len() > MAX_FRAME {
        return Err(EncodeError::FrameTooLong { bytes: json.len() });
    }
    if memchr::memchr(b'\n', json).is_some() {
        return Err(EncodeError::Newline);
    }
    out.reserve(json.len() + 1);
    out.extend_from_slice(json);
    out.push(b'\n');
    Ok(())
}

fn encode_binary(json: &[u8], out: &mut Vec<u8>) -> Result<(), EncodeError> {
    if json.len() > MAX_RAW {
        return Err(EncodeError::RawTooLong { bytes: json.len() });
    }
    let start = out.len();
    if json.len() >= COMPRESS_FROM {
        let body = start + HEADER + RAW_LENGTH;
        out.resize(body + get_maximum_output_size(json.len()), 0);
        if let Ok(block) = compress_into(json, &mut out[body..])
            && block + RAW_LENGTH < json.len()
        {
            out.truncate(body + block);
            out[start + HEADER..body].copy_from_slice(&(json.len() as u32).to_le_bytes());
            return seal(out, start, COMPRESSED);
        }
        out.truncate(start);
    }
    out.reserve(HEADER + json.len());
    out.extend_from_slice(&[0; HEADER]);
    out.extend_from_slice(json);
    seal(out, start, 0)
}

/// Writes the header of the frame that stands at `start`, or takes the frame back where it is too long.
fn seal(out: &mut Vec<u8>, start: usize, flags: u8) -> Result<(), EncodeError> {
    let len = out.len() - start - (HEADER - 1);
    if len > MAX_FRAME {
        out.truncate(start);
        return Err(EncodeError::FrameTooLong { bytes: len });
    }
    out[start..start + HEADER - 1].copy_from_slice(&(len as u32).to_be_bytes());
    out[start + HEADER - 1] = flags;
    Ok(())
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::vec;

    use super::*;

    /// Text that LZ4 cannot shorten: a fixed sequence of pseudo-random letters.
    fn noise(len: usize) -> Vec<u8> {
        let mut state = 1_u32;
        let letter = |_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            // Any byte but LF and the rest below space.
            32 + (state >> 24) as u8 % 224
        };
        (0..len).map(letter).collect()
    }

    fn binary(json: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        encode(Framing::Binary, json, &mut out).unwrap();
        out
    }

    #[test]
    fn a_line_is_the_text_and_lf() {
        let mut out = b"before".to_vec();
        encode(Framing::Ndjson, b"{}", &mut out).unwrap();
        assert_eq!(out, b"before{}\n");
    }

    #[test]
    fn a_short_text_goes_plain_behind_its_header() {
        assert_eq!(binary(b"{}"), b"\0\0\0\x03\0{}");
    }

    #[test]
    fn compression_starts_at_1024_bytes() {
        assert_eq!(binary(&[b'x'; 1023])[4], 0);
        assert_eq!(binary(&[b'x'; 1024])[4], 1);
        assert_eq!(binary(&[b'x'; 1024])[5..9], 1024_u32.to_le_bytes());
    }

    #[test]
    fn text_that_does_not_shrink_goes_plain() {
        let frame = binary(&noise(5000));
        assert_eq!(frame.len(), 5005);
        assert_eq!(frame[4], 0);
    }

    #[test]
    fn a_line_has_at_most_1_mib_without_its_lf() {
        let mut out = Vec::new();
        assert_eq!(encode(Framing::Ndjson, &vec![b'x'; MAX_FRAME], &mut out), Ok(()));
        out.clear();
        let long = vec![b'x'; MAX_FRAME + 1];
        let refused = Err(EncodeError::FrameTooLong { bytes: MAX_FRAME + 1 });
        assert_eq!(encode(Framing::Ndjson, &long, &mut out), refused);
        assert!(out.is_empty());
    }

    #[test]
    fn a_frame_above_1_mib_is_refused_and_leaves_no_trace() {
        let mut out = b"before".to_vec();
        assert_eq!(encode(Framing::Binary, &noise(MAX_FRAME - 1), &mut out), Ok(()));
        out.truncate(6);
        let refused = Err(EncodeError::FrameTooLong { bytes: MAX_FRAME + 1 });
        assert_eq!(encode(Framing::Binary, &noise(MAX_FRAME), &mut out), refused);
        assert_eq!(out, b"before");
    }

    #[test]
    fn a_text_above_4_mib_is_refused_however_well_it_shrinks() {
        let mut out = Vec::new();
        assert_eq!(encode(Framing::Binary, &vec![b'x'; MAX_RAW], &mut out), Ok(()));
        out.clear();
        let refused = Err(EncodeError::RawTooLong { bytes: MAX_RAW + 1 });
        assert_eq!(encode(Framing::Binary, &vec![b'x'; MAX_RAW + 1], &mut out), refused);
        assert!(out.is_empty());
    }

    #[test]
    fn an_empty_text_and_a_line_break_are_refused() {
        let mut out = Vec::new();
        assert_eq!(encode(Framing::Ndjson, b"", &mut out), Err(EncodeError::Empty));
        assert_eq!(encode(Framing::Binary, b"", &mut out), Err(EncodeError::Empty));
        assert_eq!(encode(Framing::Ndjson, b"{\n}", &mut out), Err(EncodeError::Newline));
        assert!(out.is_empty());
        assert_eq!(format!("{}", EncodeError::Empty), "we tried to send an empty message");
    }
}
