//! A payload's keys, read as tolerantly as the existing peer reads them.

use alloc::borrow::{Cow, ToOwned};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, Visitor};

use super::RawValue;
use super::raw::{self, Walk};

/// The known keys of a payload, each as the text of its value.
///
/// Of a repeated key the last value counts; other keys are ignored; a payload that is no object has no keys. It
/// holds one reference a known key and nothing else, whatever the text.
#[derive(Clone, Copy, Debug)]
pub struct Object<'a, const N: usize> {
    keys: &'static [&'static str; N],
    values: [Option<&'a RawValue>; N],
}

impl<'a, const N: usize> Object<'a, N> {
    /// Looks for `keys` in `payload`.
    #[must_use]
    pub fn new(payload: &'a RawValue, keys: &'static [&'static str; N]) -> Self {
        let mut values = [None; N];
        for (name, value) in Walk::object(payload).into_iter().flatten() {
            let Some(name) = raw::text(name) else { continue };
            if let Some(at) = keys.iter().position(|key| *key == name) {
                values[at] = Some(value);
            }
        }
        Self { keys, values: values.map(|value| value.and_then(raw::raw)) }
    }

    /// The value's text; `None` where the key is absent. An explicit null is a value.
    #[must_use]
    pub fn raw(&self, key: &str) -> Option<&'a RawValue> {
        let at = self.keys.iter().position(|known| *known == key);
        debug_assert!(at.is_some(), "`{key}` is none of the object's keys");
        self.values[at?]
    }

    /// The value's text; `None` where the key is absent or null.
    #[must_use]
    pub fn value(&self, key: &str) -> Option<&'a RawValue> {
        self.raw(key).filter(|raw| raw.get() != "null")
    }

    /// The value where it reads as a `T`; `None` where it is absent, null or of another type.
    #[must_use]
    pub fn get<T: Deserialize<'a>>(&self, key: &str) -> Option<T> {
        read(self.value(key)?)
    }

    /// `Some(None)` where the key is absent or null, `Some(Some(..))` where the value reads as a `T`, and `None`
    /// where it is of another type: for payloads that a mistyped key voids.
    #[must_use]
    pub fn optional<T: Deserialize<'a>>(&self, key: &str) -> Option<Option<T>> {
        self.value(key).map_or(Some(None), |raw| read(raw).map(Some))
    }

    /// The default where the key is absent, the value where it reads as a `T`, and `None` for null or another type.
    #[must_use]
    pub fn defaulted<T: Deserialize<'a> + Default>(&self, key: &str) -> Option<T> {
        self.raw(key).map_or_else(|| Some(T::default()), read)
    }

    /// A string.
    #[must_use]
    pub fn str(&self, key: &str) -> Option<Cow<'a, str>> {
        self.get::<Text<'a>>(key).map(|text| text.0)
    }

    /// A string of its own.
    #[must_use]
    pub fn string(&self, key: &str) -> Option<String> {
        self.str(key).map(Cow::into_owned)
    }

    /// An integer of 0 to 2^64 - 1, written without fraction or exponent: `1.0`, `-1` and `"1"` are absent.
    #[must_use]
    pub fn u64(&self, key: &str) -> Option<u64> {
        self.get(key)
    }

    /// As [`Object::u64`], up to 2^32 - 1.
    #[must_use]
    pub fn u32(&self, key: &str) -> Option<u32> {
        self.get(key)
    }

    /// As [`Object::u64`], up to 65,535.
    #[must_use]
    pub fn u16(&self, key: &str) -> Option<u16> {
        self.get(key)
    }

    /// Any number, read to the nearest `f64`.
    ///
    /// The JSON parser's own reading can be one step off, and a number that is passed on would drift at every hop.
    #[must_use]
    pub fn f64(&self, key: &str) -> Option<f64> {
        read_f64(self.raw(key)?)
    }

    /// As [`Object::optional`], for a number.
    #[must_use]
    pub fn optional_f64(&self, key: &str) -> Option<Option<f64>> {
        self.value(key).map_or(Some(None), |raw| read_f64(raw).map(Some))
    }

    /// Whether the value is `true`: nothing else counts.
    #[must_use]
    pub fn bool_true(&self, key: &str) -> bool {
        self.raw(key).is_some_and(|raw| raw.get() == "true")
    }

    /// The strings of an array, at most `max` of them, without its other elements; `None` where it is no array.
    #[must_use]
    pub fn strings(&self, key: &str, max: usize) -> Option<Vec<String>> {
        let mut strings = Vec::new();
        each_string(self.raw(key)?, |text| {
            if strings.len() < max {
                strings.push(text.into_owned());
            }
            strings.len() < max
        })
        .then_some(strings)
    }
}

/// Gives each element of an array to `visit`; false where `list` is no array.
pub(super) fn each<'a>(list: &'a RawValue, visit: impl FnMut(&'a RawValue)) -> bool {
    Walk::array(list).map(|elements| elements.filter_map(raw::raw).for_each(visit)).is_some()
}

/// Gives each string of an array to `visit` until that gives false, passing over other elements; false where `list` is no
/// array.
pub(super) fn each_string(list: &RawValue, visit: impl FnMut(Cow<'_, str>) -> bool) -> bool {
    let strings = |elements: Walk<'_>| elements.filter_map(raw::text).all(visit);
    Walk::array(list).map(strings).is_some()
}

/// Gives each key and value of an object to `visit` until that gives false; false where `object` is none.
pub(super) fn each_entry<'a>(
    object: &'a RawValue,
    mut visit: impl FnMut(Cow<'a, str>, &'a RawValue) -> bool,
) -> bool {
    let Some(entries) = Walk::object(object) else { return false };
    for (key, value) in entries {
        if let (Some(key), Some(value)) = (raw::text(key), raw::raw(value))
            && !visit(key, value)
        {
            break;
        }
    }
    true
}

/// The value where it reads as a `T`.
pub(super) fn read<'a, T: Deserialize<'a>>(raw: &'a RawValue) -> Option<T> {
    serde_json::from_str(raw.get()).ok()
}

/// A number to the nearest `f64`; `None` for anything else.
fn read_f64(raw: &RawValue) -> Option<f64> {
    let is_number = raw.get().starts_with(|c: char| c == '-' || c.is_ascii_digit());
    raw.get().parse().ok().filter(|number: &f64| is_number && number.is_finite())
}

/// A string, borrowed where it has no escapes.
pub(super) struct Text<'a>(pub(super) Cow<'a, str>);

impl<'de> Deserialize<'de> for Text<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_str(TextVisitor)
    }
}

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Text<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Text<'de>, E> {
        Ok(Text(Cow::Borrowed(text)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Text<'de>, E> {
        Ok(Text(Cow::Owned(text.to_owned())))
    }
}

#[cfg(test)]
mod tests {
    use alloc::boxed::Box;

    use super::*;

    const KEYS: &[&str; 2] = &["a", "b"];

    fn raw(text: &str) -> Box<RawValue> {
        serde_json::from_str(text).unwrap()
    }

    /// Reads key `a` of an object in which it has this value.
    fn a<T>(value: &str, read: impl Fn(Object<'_, 2>) -> T) -> T {
        read(Object::new(&raw(&alloc::format!("{{\"b\":0,\"a\":{value},\"c\":[]}}")), KEYS))
    }

    #[test]
    fn the_last_duplicate_wins() {
        let payload = raw(r#"{"a":1,"x":1,"a":2,"\u0061":3,"x":2}"#);
        assert_eq!(Object::new(&payload, KEYS).u64("a"), Some(3));
        let payload = raw(r#"{"a":1,"a":null}"#);
        assert_eq!(Object::new(&payload, KEYS).u64("a"), None);
    }

    #[test]
    fn a_payload_that_is_no_object_has_no_keys() {
        for text in ["null", "[]", "[\"a\",1]", "1", "\"a\""] {
            assert!(Object::new(&raw(text), KEYS).raw("a").is_none(), "{text}");
        }
    }

    #[test]
    fn absent_and_null_are_told_apart() {
        let payload = raw(r#"{"a":null}"#);
        let object = Object::new(&payload, KEYS);
        assert!(object.raw("a").is_some() && object.raw("b").is_none());
        assert!(object.value("a").is_none() && object.value("b").is_none());
        assert_eq!((object.optional::<u64>("a"), object.defaulted::<u64>("a")), (Some(None), None));
        assert_eq!((object.optional::<u64>("b"), object.defaulted::<u64>("b")), (Some(None), Some(0)));
        assert_eq!(a("\"x\"", |o| (o.optional::<u64>("a"), o.defaulted::<u64>("a"))), (None, None));
        assert_eq!(a("5", |o| (o.optional::<u64>("a"), o.defaulted::<u64>("a"))), (Some(Some(5)), Some(5)));
    }

    #[test]
    fn an_integer_has_no_fraction_sign_or_quotes() {
        assert_eq!(a("18446744073709551615", |o| o.u64("a")), Some(u64::MAX));
        for text in ["1.0", "-1", "-0", "1e2", "\"1\"", "18446744073709551616", "true", "null", "[1]"] {
            assert_eq!(a(text, |o| o.u64("a")), None, "{text}");
        }
        assert_eq!(a("65535", |o| o.u16("a")), Some(u16::MAX));
        assert_eq!(a("65536", |o| o.u16("a")), None);
        assert_eq!(a("4294967295", |o| o.u32("a")), Some(u32::MAX));
        assert_eq!(a("4294967296", |o| o.u32("a")), None);
    }

    #[test]
    fn other_types_are_absent() {
        assert_eq!(a("1", |o| o.string("a")), None);
        assert_eq!(a(r#""\u0000x""#, |o| o.string("a")).as_deref(), Some("\0x"));
        assert_eq!(a("-1.5e1", |o| o.f64("a")), Some(-15.0));
        assert_eq!(a("2", |o| o.f64("a")), Some(2.0));
        assert_eq!(a("1364106077564153852", |o| o.f64("a")), Some(1.364_106_077_564_153_9e18));
        for text in ["\"2\"", "null", "[2]", "true"] {
            assert_eq!(a(text, |o| o.f64("a")), None, "{text}");
        }
        assert_eq!(
            (a("null", |o| o.optional_f64("a")), a("[]", |o| o.optional_f64("a"))),
            (Some(None), None)
        );
        assert!(a("true", |o| o.bool_true("a")));
        for text in ["false", "1", "\"true\"", "null"] {
            assert!(!a(text, |o| o.bool_true("a")), "{text}");
        }
    }

    #[test]
    fn what_is_no_string_is_dropped_from_an_array_alone() {
        let strings = a(r#"["x",1,null,["y"],"z"]"#, |o| o.strings("a", 9)).unwrap();
        assert_eq!(strings, ["x", "z"]);
        assert_eq!(a(r#"["x","y"]"#, |o| o.strings("a", 1)).unwrap(), ["x"]);
        assert_eq!(a(r#"{"x":"y"}"#, |o| o.strings("a", 9)), None);
    }
}
