//! A walk over a frame's text that checks all of it once, and finds the envelope's values on its way.
//!
//! The existing peer parses every value whole, so numbers out of range, escapes of lone surrogates and nesting too deep
//! are refused wherever they stand, also where nobody looks at the value. The walk builds nothing, and may be done in
//! pieces: between any two it is where it stopped.

use core::ops::Range;

use super::{Key, MessageFault};

/// Deepest nesting of arrays and objects in one message, its own object included.
pub(super) const MAX_DEPTH: u32 = 127;
/// Decimal places before the point up to which a number is certainly below the largest `f64`.
const SAFE_PLACES: i64 = 308;
/// What a number that has to be computed costs, in bytes of text.
const NUMBER_WORK: usize = 64;

/// How far a text was walked.
#[derive(Clone, Debug, Default)]
pub(super) struct Scan {
    at: usize,
    next: Next,
    /// The containers that are open, the innermost in the lowest bit: 1 for an object.
    open: u128,
    depth: u32,
    parts: Parts,
}

/// What may stand next.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Next {
    #[default]
    Value,
    /// The first element of an array, or its end.
    Element,
    /// The first key of an object, or its end.
    FirstKey,
    Key,
    Colon,
    /// A comma, or the end of the innermost container.
    Comma,
    /// The rest of a string that is a value, or a key.
    InString {
        key: bool,
    },
    /// Nothing.
    End,
}

/// Where the envelope's values stand.
#[derive(Clone, Debug, Default)]
pub(super) struct Parts {
    pub(super) values: [Option<Range<usize>>; 5],
    /// The value under way: which it is, and where it begins.
    key: Option<Key>,
    from: usize,
    /// How many values an array had.
    count: usize,
}

/// Bytes that end the plain part of a string.
const SPECIAL: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 0x20 {
        table[byte] = true;
        byte += 1;
    }
    table[b'"' as usize] = true;
    table[b'\\' as usize] = true;
    table
};

impl Scan {
    /// Where the values stand; whole once [`advance`](Self::advance) gave `Some`.
    pub(super) const fn parts(&self) -> &Parts {
        &self.parts
    }

    /// Walks about `work` bytes on, through the same text each time. `Some` with what it cost at the text's end, `None`
    /// where there is more.
    ///
    /// # Errors
    ///
    /// The text is no JSON, or no message.
    pub(super) fn advance(&mut self, text: &str, work: usize) -> Result<Option<usize>, MessageFault> {
        let bytes = text.as_bytes();
        let start = self.at;
        let mut stop = start.saturating_add(work);
        loop {
            if !matches!(self.next, Next::InString { .. }) {
                while let Some(b' ' | b'\n' | b'\r' | b'\t') = bytes.get(self.at) {
                    self.at += 1;
                }
            }
            let Some(&byte) = bytes.get(self.at) else {
                let whole = self.next == Next::End;
                return if whole { Ok(Some(self.at - start)) } else { Err(self.not_json(bytes)) };
            };
            if self.at >= stop {
                return Ok(None);
            }
            match (self.next, byte) {
                (Next::Comma, b',') => {
                    self.at += 1;
                    self.next = if self.open & 1 == 1 { Next::Key } else { Next::Value };
                }
                (Next::Comma | Next::FirstKey, b'}') if self.open & 1 == 1 => self.close(bytes)?,
                (Next::Comma | Next::Element, b']') if self.open & 1 == 0 => self.close(bytes)?,
                (Next::Colon, b':') => {
                    self.at += 1;
                    self.next = Next::Value;
                }
                (Next::FirstKey | Next::Key, b'"') => {
                    if self.depth == 1 {
                        self.parts.from = self.at;
                    }
                    self.at += 1;
                    self.string(bytes, stop, true)?;
                }
                (Next::InString { key }, _) => self.string(bytes, stop, key)?,
                (Next::Value | Next::Element, _) => {
                    if self.depth == 1 {
                        self.begin_part(bytes)?;
                    } else if self.depth == 0 && byte != b'{' && byte != b'[' {
                        return Err(MessageFault::NotMessage { at: column(bytes, self.at) });
                    }
                    stop = stop.saturating_sub(self.value(bytes, byte, stop)?);
                }
                (Next::FirstKey | Next::Key | Next::Colon | Next::Comma | Next::End, _) => {
                    return Err(self.not_json(bytes));
                }
            }
        }
    }

    /// Begins a value, and ends it where it is a number or a word. Gives what it cost beside its length.
    fn value(&mut self, bytes: &[u8], byte: u8, stop: usize) -> Result<usize, MessageFault> {
        match byte {
            b'{' => self.open(bytes, true)?,
            b'[' => self.open(bytes, false)?,
            b'"' => {
                self.at += 1;
                self.string(bytes, stop, false)?;
            }
            b'-' | b'0'..=b'9' => {
                let (end, hard) = number(bytes, self.at).ok_or_else(|| self.not_json(bytes))?;
                self.at = end;
                self.ended();
                return Ok(if hard { NUMBER_WORK } else { 0 });
            }
            _ => {
                let rest = &bytes[self.at..];
                let word = [&b"true"[..], b"false", b"null"].into_iter().find(|word| rest.starts_with(word));
                self.at += word.ok_or_else(|| self.not_json(bytes))?.len();
                self.ended();
            }
        }
        Ok(0)
    }

    fn open(&mut self, bytes: &[u8], object: bool) -> Result<(), MessageFault> {
        if self.depth == MAX_DEPTH {
            return Err(self.not_json(bytes));
        }
        self.depth += 1;
        self.open = self.open << 1 | u128::from(object);
        self.at += 1;
        self.next = if object { Next::FirstKey } else { Next::Element };
        Ok(())
    }

    fn close(&mut self, bytes: &[u8]) -> Result<(), MessageFault> {
        if self.depth == 1 && self.open & 1 == 0 && self.parts.count > Key::ALL.len() {
            return Err(self.not_json(bytes));
        }
        self.depth -= 1;
        self.open >>= 1;
        self.at += 1;
        self.ended();
        Ok(())
    }

    /// A value ended right before `at`.
    fn ended(&mut self) {
        self.next = if self.depth == 0 { Next::End } else { Next::Comma };
        if self.depth == 1
            && let Some(key) = self.parts.key.take()
        {
            self.parts.values[key as usize] = Some(self.parts.from..self.at);
        }
    }

    /// A value of the message's own begins.
    fn begin_part(&mut self, bytes: &[u8]) -> Result<(), MessageFault> {
        self.parts.from = self.at;
        if self.open & 1 == 0 {
            // An array has the values in the order of the keys.
            self.parts.key = Key::ALL.get(self.parts.count).copied();
            self.parts.count += 1;
            if self.parts.key.is_none() {
                return Err(self.not_json(bytes));
            }
        }
        Ok(())
    }

    /// Walks to a string's end, or stops between two of its characters.
    fn string(&mut self, bytes: &[u8], stop: usize, key: bool) -> Result<(), MessageFault> {
        loop {
            self.at = plain(bytes, self.at);
            match bytes.get(self.at) {
                Some(b'"') => {
                    self.at += 1;
                    return if key { self.key_ended(bytes) } else { Ok(self.ended()) };
                }
                Some(b'\\') => {
                    self.at = escape(bytes, self.at).ok_or_else(|| self.not_json(bytes))?;
                }
                Some(_) | None => return Err(self.not_json(bytes)),
            }
            if self.at >= stop {
                self.next = Next::InString { key };
                return Ok(());
            }
        }
    }

    fn key_ended(&mut self, bytes: &[u8]) -> Result<(), MessageFault> {
        self.next = Next::Colon;
        if self.depth != 1 {
            return Ok(());
        }
        let name = &bytes[self.parts.from..self.at];
        self.parts.key = Key::of_text(name);
        match self.parts.key {
            Some(key) if self.parts.values[key as usize].is_some() => Err(MessageFault::Repeated(key)),
            Some(_) | None => Ok(()),
        }
    }

    fn not_json(&self, bytes: &[u8]) -> MessageFault {
        MessageFault::NotJson { at: column(bytes, self.at) }
    }
}

/// A byte's place in its line, counted from 1.
pub(super) fn column(bytes: &[u8], at: usize) -> usize {
    let before = &bytes[..at.min(bytes.len())];
    before.len() - memchr::memrchr(b'\n', before).map_or(0, |line| line + 1) + 1
}

/// The end of a string's part that stands for itself.
fn plain(bytes: &[u8], mut at: usize) -> usize {
    const ONES: u64 = u64::MAX / 255;
    const HIGH: u64 = ONES * 0x80;
    while let Some(eight) = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
        let eight = u64::from_le_bytes(*eight);
        let zero = |lanes: u64| lanes.wrapping_sub(ONES) & !lanes & HIGH;
        let control = eight.wrapping_sub(ONES * 0x20) & !eight & HIGH;
        let special = zero(eight ^ (ONES * 0x22)) | zero(eight ^ (ONES * 0x5c)) | control;
        if special != 0 {
            // The lowest lane that is marked is truly special; only those above it may be marked by its borrow.
            return at + (special.trailing_zeros() / 8) as usize;
        }
        at += 8;
    }
    while bytes.get(at).is_some_and(|byte| !SPECIAL[usize::from(*byte)]) {
        at += 1;
    }
    at
}

/// The end of an escape; `None` where it is none, or one of a lone surrogate.
fn escape(bytes: &[u8], at: usize) -> Option<usize> {
    match bytes.get(at + 1)? {
        b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Some(at + 2),
        b'u' => match hex(bytes, at + 2)? {
            0xd800..=0xdbff => {
                let pair =
                    bytes.get(at + 6..at + 8)? == b"\\u" && (0xdc00..=0xdfff).contains(&hex(bytes, at + 8)?);
                pair.then_some(at + 12)
            }
            0xdc00..=0xdfff => None,
            _ => Some(at + 6),
        },
        _ => None,
    }
}

fn hex(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.iter().try_fold(0, |code, byte| Some(code << 4 | char::from(*byte).to_digit(16)?))
}

/// The end of a number, and whether it had to be computed; `None` where it is none, or larger than any `f64`.
fn number(bytes: &[u8], start: usize) -> Option<(usize, bool)> {
    let digits = |at: usize| {
        let rest = bytes.get(at..).unwrap_or_default();
        at + rest.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(rest.len())
    };
    let whole = if bytes[start] == b'-' { start + 1 } else { start };
    let mut end = match bytes.get(whole)? {
        b'0' => whole + 1,
        b'1'..=b'9' => digits(whole + 1),
        _ => return None,
    };
    let mut places = (end - whole) as i64;
    if bytes.get(end) == Some(&b'.') {
        let point = end + 1;
        end = digits(point);
        if end == point {
            return None;
        }
    }
    if let Some(b'e' | b'E') = bytes.get(end) {
        let sign = bytes.get(end + 1);
        let first = if let Some(b'+' | b'-') = sign { end + 2 } else { end + 1 };
        end = digits(first);
        if end == first {
            return None;
        }
        if sign != Some(&b'-') {
            // More digits than fit are as good as too many.
            let exponent = bytes[first..end].iter().fold(0_i64, |exponent, byte| {
                (exponent * 10 + i64::from(byte - b'0')).min(i64::from(u32::MAX))
            });
            places += exponent;
        }
    }
    if places <= SAFE_PLACES {
        return Some((end, false));
    }
    // Near the limit or beyond it, what the parser makes of it counts.
    let text = core::str::from_utf8(&bytes[start..end]).ok()?;
    serde_json::from_str::<f64>(text).ok().map(|_| (end, true))
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::string::String;
    use alloc::vec::Vec;

    use quickcheck::quickcheck;

    use super::*;

    /// Walks a text in pieces of this size.
    fn walk(text: &str, piece: usize) -> Result<Parts, MessageFault> {
        let mut scan = Scan::default();
        while scan.advance(text, piece)?.is_none() {}
        Ok(scan.parts)
    }

    fn in_array(value: &str) -> String {
        format!("[0,[{value}]]")
    }

    /// Texts that are nearly JSON: the pieces that numbers, strings and containers are made of, in any order.
    fn near(picks: &[u8]) -> String {
        const PIECES: [&str; 32] = [
            "0",
            "1",
            "9",
            "-",
            ".",
            "e",
            "E",
            "+",
            "308",
            "309",
            "999",
            "\"",
            "\"",
            "\\",
            "u",
            "d83d",
            "\\udc00",
            "\\ud83d\\ude00",
            "n",
            "\u{1}",
            "é",
            "[",
            "]",
            "{",
            "}",
            ",",
            ":",
            "\"k\":",
            " ",
            "true",
            "null",
            "00000000",
        ];
        picks.iter().map(|pick| PIECES[usize::from(*pick) % PIECES.len()]).collect()
    }

    #[test]
    fn a_number_is_refused_where_no_f64_holds_it() {
        let digits = "9".repeat(309);
        for (text, good) in [
            ("1e308", true),
            ("1.7976931348623157e308", true),
            ("1e309", false),
            ("1e99999999999999999999", false),
            ("0e999", true),
            ("0.0000001e310", true),
            ("1e-99999999999999999999", true),
            (&digits, false),
            (&digits[1..], true),
            ("-0", true),
            ("1.", false),
            ("-", false),
            ("1e+", false),
        ] {
            assert_eq!(walk(&in_array(text), 9).is_ok(), good, "{text}");
        }
    }

    #[test]
    fn the_plain_part_of_a_string_ends_where_it_must() {
        for at in 0..20 {
            for special in 0..=255_u8 {
                let mut bytes = [b'a'; 24];
                bytes[at] = special;
                bytes[23] = b'"';
                let ends = special < 0x20 || special == b'"' || special == b'\\';
                assert_eq!(plain(&bytes, 0), if ends { at } else { 23 }, "{special} at {at}");
            }
        }
    }

    quickcheck! {
        fn a_text_is_taken_exactly_where_the_whole_parser_takes_it(picks: Vec<u8>) -> bool {
            let text = near(&picks);
            let whole = serde_json::from_str::<serde_json::Value>(&in_array(&text)).is_ok();
            walk(&in_array(&text), usize::MAX).is_ok() == whole
        }

        fn a_walk_in_pieces_finds_what_a_whole_one_does(picks: Vec<u8>, piece: usize) -> bool {
            let text = format!("{{\"id\":[{}],\"payload\":{}}}", near(&picks), near(&picks[picks.len() / 2..]));
            let found = |piece| walk(&text, piece).map(|parts| parts.values);
            found(piece % 16 + 1) == found(usize::MAX)
        }
    }
}
