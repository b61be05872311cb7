//! A payload's keys, read as tolerantly as the existing peer reads them.

use alloc::borrow::{Cow, ToOwned};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::RawValue;

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
        let mut object = Self { keys, values: [None; N] };
        if payload.get().starts_with('{') {
            let mut from = serde_json::Deserializer::from_str(payload.get());
            if from.deserialize_map(KeysVisitor(&mut object)).is_err() {
                object.values = [None; N];
            }
        }
        object
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

    /// Any number.
    #[must_use]
    pub fn f64(&self, key: &str) -> Option<f64> {
        self.get(key)
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
                strings.push(text.to_owned());
            }
        })
        .then_some(strings)
    }
}

/// Gives each element of an array to `visit`; false where `list` is no array.
pub(super) fn each<'a>(list: &'a RawValue, visit: impl FnMut(&'a RawValue)) -> bool {
    list.get().starts_with('[')
        && serde_json::Deserializer::from_str(list.get()).deserialize_seq(EachVisitor(visit)).is_ok()
}

/// Gives each string of an array to `visit`, passing over other elements; false where `list` is no array.
pub(super) fn each_string(list: &RawValue, mut visit: impl FnMut(&str)) -> bool {
    each(list, |element| {
        if let Some(Text(text)) = read(element) {
            visit(&text);
        }
    })
}

/// The value where it reads as a `T`.
pub(super) fn read<'a, T: Deserialize<'a>>(raw: &'a RawValue) -> Option<T> {
    serde_json::from_str(raw.get()).ok()
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

struct KeysVisitor<'o, 'a, const N: usize>(&'o mut Object<'a, N>);

impl<'de, const N: usize> Visitor<'de> for KeysVisitor<'_, 'de, N> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(Text(name)) = map.next_key()? {
            match self.0.keys.iter().position(|key| *key == name) {
                Some(at) => self.0.values[at] = Some(map.next_value()?),
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

struct EachVisitor<F>(F);

impl<'de, F: FnMut(&'de RawValue)> Visitor<'de> for EachVisitor<F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<(), A::Error> {
        while let Some(element) = seq.next_element()? {
            self.0(element);
        }
        Ok(())
    }
}
