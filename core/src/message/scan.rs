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
    place: Place,
    parts: Parts,
}

/// Where a walk is. A walk has it in registers, which is most of its speed.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    at: usize,
    next: Next,
    /// The containers that are open, the innermost in the lowest bit: 1 for an object.
    objects: u128,
    depth: u32,
}

/// What may stand next.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Next {
    #[default]
    Value,
    /// The first value of an array, or its end.
    First,
    /// The first key of an object, or its end.
    FirstKey,
    Key,
    Colon,
    /// A comma, or the end of the innermost container.
    Comma,
    /// The rest of a string that is a value.
    Text,
    /// The rest of a string that is a key.
    KeyText,
    Nothing,
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

/// Why a walk ends before the text does.
enum Stop {
    /// Its work is done.
    Spent,
    Bad,
    Repeated(Key),
    /// A value that is no message.
    Other,
}

impl Scan {
    /// Where the values stand; whole once [`advance`](Self::advance) gave `Some`.
    pub(super) const fn parts(&self) -> &Parts {
        &self.parts
    }

    /// Walks about `work` bytes on, through the same text each time. `Some` with how many bytes it was at the text's end,
    /// `None` where there is more.
    ///
    /// # Errors
    ///
    /// The text is no JSON, or no message.
    pub(super) fn advance(&mut self, text: &str, work: usize) -> Result<Option<usize>, MessageFault> {
        let start = self.place.at;
        let walked = self.walk(text.as_bytes(), start.saturating_add(work));
        let at = || column(text.as_bytes(), self.place.at);
        match walked {
            Ok(()) => Ok(Some(self.place.at - start)),
            Err(Stop::Spent) => Ok(None),
            Err(Stop::Bad) => Err(MessageFault::NotJson { at: at() }),
            Err(Stop::Other) => Err(MessageFault::NotMessage { at: at() }),
            Err(Stop::Repeated(key)) => Err(MessageFault::Repeated(key)),
        }
    }

    fn walk(&mut self, bytes: &[u8], stop: usize) -> Result<(), Stop> {
        let mut place = self.place;
        let walked = self.parts.walk(bytes, stop, &mut place);
        self.place = place;
        walked
    }
}

impl Parts {
    #[inline]
    fn walk(&mut self, bytes: &[u8], mut stop: usize, place: &mut Place) -> Result<(), Stop> {
        let Place { mut at, mut next, mut objects, mut depth } = *place;
        let walked = loop {
            let Some(&byte) = bytes.get(at) else {
                break if next == Next::Nothing { Ok(()) } else { Err(Stop::Bad) };
            };
            match (next, byte) {
                // In front of the others, since it is a part of the text.
                (Next::Text | Next::KeyText, _) => {
                    let end = string(bytes, at, stop);
                    at = end.at;
                    match end.why {
                        Ended::Whole => {}
                        Ended::Spent => break Err(Stop::Spent),
                        Ended::Bad => break Err(Stop::Bad),
                    }
                    if next == Next::Text {
                        next = Next::Comma;
                        if depth == 1 {
                            self.end(at);
                        }
                        continue;
                    }
                    next = Next::Colon;
                    if depth == 1
                        && let Err(stop) = self.name(bytes, at)
                    {
                        break Err(stop);
                    }
                }
                (_, b' ' | b'\n' | b'\r' | b'\t') => at += 1,
                (Next::First, b']') | (Next::FirstKey, b'}') => {
                    next = Next::Comma;
                }
                (Next::Value | Next::First, _) => {
                    if at >= stop {
                        break Err(Stop::Spent);
                    }
                    if depth <= 1
                        && let Err(stop) = self.begin(at, byte, objects, depth)
                    {
                        break Err(stop);
                    }
                    match byte {
                        b'"' => {
                            at += 1;
                            next = Next::Text;
                            continue;
                        }
                        b'0'..=b'9' | b'-' => {
                            let Some((end, hard)) = number(bytes, at) else { break Err(Stop::Bad) };
                            at = end;
                            if hard {
                                stop = stop.saturating_sub(NUMBER_WORK);
                            }
                        }
                        b'{' | b'[' => {
                            if depth == MAX_DEPTH {
                                break Err(Stop::Bad);
                            }
                            depth += 1;
                            objects = objects << 1 | u128::from(byte == b'{');
                            at += 1;
                            next = if byte == b'{' { Next::FirstKey } else { Next::First };
                            continue;
                        }
                        _ => {
                            let Some(end) = word(bytes, at) else { break Err(Stop::Bad) };
                            at = end;
                        }
                    }
                    next = Next::Comma;
                    if depth == 1 {
                        self.end(at);
                    }
                }
                (Next::Comma, b',') => {
                    at += 1;
                    next = if objects & 1 == 1 { Next::Key } else { Next::Value };
                }
                (Next::Comma, b'}' | b']') => {
                    if (objects & 1 == 1) != (byte == b'}') {
                        break Err(Stop::Bad);
                    }
                    at += 1;
                    objects >>= 1;
                    depth -= 1;
                    match depth {
                        0 => next = Next::Nothing,
                        1 => self.end(at),
                        _ => {}
                    }
                }
                (Next::FirstKey | Next::Key, b'"') => {
                    if depth == 1 {
                        self.from = at;
                    }
                    at += 1;
                    next = Next::KeyText;
                }
                (Next::Colon, b':') => {
                    at += 1;
                    next = Next::Value;
                }
                (Next::FirstKey | Next::Key | Next::Colon | Next::Comma | Next::Nothing, _) => {
                    break Err(Stop::Bad);
                }
            }
        };
        *place = Place { at, next, objects, depth };
        walked
    }

    /// The message begins, or a value of its own.
    fn begin(&mut self, at: usize, byte: u8, objects: u128, depth: u32) -> Result<(), Stop> {
        if depth == 0 {
            return match byte {
                b'{' | b'[' => Ok(()),
                b'"' | b'-' | b'0'..=b'9' | b't' | b'f' | b'n' => Err(Stop::Other),
                _ => Err(Stop::Bad),
            };
        }
        self.from = at;
        if objects & 1 == 0 {
            // An array has the values in the order of the keys.
            self.key = Some(*Key::ALL.get(self.count).ok_or(Stop::Bad)?);
            self.count += 1;
        }
        Ok(())
    }

    /// A value of the message's own ended.
    fn end(&mut self, at: usize) {
        if let Some(key) = self.key.take() {
            self.values[key as usize] = Some(self.from..at);
        }
    }

    /// A key of the message's own ended.
    fn name(&mut self, bytes: &[u8], at: usize) -> Result<(), Stop> {
        self.key = Key::of_text(&bytes[self.from..at]);
        match self.key {
            Some(key) if self.values[key as usize].is_some() => Err(Stop::Repeated(key)),
            Some(_) | None => Ok(()),
        }
    }
}

/// How far a string was walked.
struct Walked {
    at: usize,
    why: Ended,
}

enum Ended {
    /// Behind its last quote.
    Whole,
    /// Between two of its characters.
    Spent,
    Bad,
}

/// Walks behind a string's end, or stops between two of its characters.
#[inline]
fn string(bytes: &[u8], mut at: usize, stop: usize) -> Walked {
    loop {
        at = plain(bytes, at);
        match bytes.get(at) {
            Some(b'"') => return Walked { at: at + 1, why: Ended::Whole },
            Some(b'\\') => match escape(bytes, at) {
                Some(end) => at = end,
                None => return Walked { at, why: Ended::Bad },
            },
            Some(_) | None => return Walked { at, why: Ended::Bad },
        }
        if at >= stop {
            return Walked { at, why: Ended::Spent };
        }
    }
}

fn word(bytes: &[u8], at: usize) -> Option<usize> {
    let words: [&[u8]; 3] = [b"true", b"false", b"null"];
    words.into_iter().find(|word| bytes[at..].starts_with(word)).map(|word| at + word.len())
}

/// A byte's place in its line, counted from 1.
pub(super) fn column(bytes: &[u8], at: usize) -> usize {
    let before = &bytes[..at.min(bytes.len())];
    before.len() - memchr::memrchr(b'\n', before).map_or(0, |line| line + 1) + 1
}

/// The end of a string's part that stands for itself.
#[inline]
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
    while bytes.get(at).is_some_and(|byte| *byte >= 0x20 && !matches!(byte, b'"' | b'\\')) {
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
#[inline]
fn number(bytes: &[u8], start: usize) -> Option<(usize, bool)> {
    // Most are one digit.
    match (bytes[start], bytes.get(start + 1)) {
        (b'0'..=b'9', Some(b',' | b']' | b'}')) => Some((start + 1, false)),
        _ => long_number(bytes, start),
    }
}

fn long_number(bytes: &[u8], start: usize) -> Option<(usize, bool)> {
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
