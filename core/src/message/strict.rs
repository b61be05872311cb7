//! A walk over JSON text that finds what skipping it would miss.
//!
//! A value that is skipped or kept as text is checked for its grammar only: not for numbers out of range, escapes
//! of lone surrogates or depth. The existing peer parses every value whole and refuses all three wherever they
//! stand, so such text is walked once, without building anything.

use core::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// Deepest nesting of arrays and objects in one message, its own object included.
pub(super) const MAX_DEPTH: u8 = 127;

/// Walks one value, which may nest at most this deep.
#[derive(Clone, Copy)]
pub(super) struct Strict {
    /// Levels of arrays and objects that the value may have.
    pub(super) levels: u8,
}

impl Strict {
    fn deeper<E: Error>(self) -> Result<Self, E> {
        self.levels.checked_sub(1).map(|levels| Self { levels }).ok_or_else(|| E::custom("nested too deep"))
    }
}

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let inner = self.deeper()?;
        while seq.next_element_seed(inner)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let inner = self.deeper()?;
        // A key is a string, whatever its seed would allow.
        while map.next_key_seed(inner)?.is_some() {
            map.next_value_seed(inner)?;
        }
        Ok(())
    }
}
