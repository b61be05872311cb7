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
