//! What leases are on, as users name it.

use core::fmt;

use relay_core::lease::PATH_GLOB;
use relay_core::message::lease::{is_kind, is_value};

/// What a lease is on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Resource {
    /// Its kind; those of two kinds have nothing to do with each other.
    pub kind: String,
    /// Its name within the kind.
    pub value: String,
}

impl Resource {
    /// Reads `kind:value`, or a bare path, which is a `path_glob`. What stands before the first colon is a kind unless it
    /// can only be part of a path.
    ///
    /// # Errors
    /// What of it is out of its bounds, in a line for people.
    pub fn parse(text: &str) -> Result<Self, String> {
        let named = text.split_once(':').filter(|(kind, _)| !kind.contains(['/', '.', '*', '?', '[', '{']));
        let (kind, value) = named.unwrap_or((PATH_GLOB, text));
        if !is_kind(kind) {
            return Err(format!("the resource's kind is 1 to 32 of a-z, 0-9, _ and -, not {kind:?}"));
        }
        if !is_value(value) {
            return Err("the resource's value is 1 to 512 bytes without control characters".to_owned());
        }
        Ok(Self { kind: kind.to_owned(), value: value.to_owned() })
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind, self.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_is_a_kind_and_a_value_or_a_path_alone() {
        for (text, kind, value) in [
            ("res:demo", "res", "demo"),
            ("res:a:b", "res", "a:b"),
            ("src/*", "path_glob", "src/*"),
            ("a", "path_glob", "a"),
            ("path_glob:src", "path_glob", "src"),
            ("./a:b", "path_glob", "./a:b"),
            ("src/a:b", "path_glob", "src/a:b"),
        ] {
            let read = Resource::parse(text).unwrap();
            assert_eq!((read.kind.as_str(), read.value.as_str()), (kind, value), "{text}");
        }
        for (text, part) in [
            ("", "value"),
            ("res:", "value"),
            (":x", "kind"),
            ("Res:x", "kind is 1 to 32"),
            (&format!("{}:x", "k".repeat(33)), "kind"),
            (&"v".repeat(513), "value is 1 to 512"),
            ("a\nb", "value"),
        ] {
            assert!(Resource::parse(text).unwrap_err().contains(part), "{text}");
        }
    }
}
