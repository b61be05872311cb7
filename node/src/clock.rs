//! The wall clock, and how a time is shown.

use std::time::{SystemTime, UNIX_EPOCH};

use relay_core::time::Wall;

/// The wall clock now.
#[must_use]
pub fn now() -> Wall {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Wall::from_millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// A time as every command shows it: RFC 3339, UTC, milliseconds. `None` beyond the calendar's end.
#[must_use]
pub fn rfc3339(at: Wall) -> Option<String> {
    let millis = i64::try_from(at.as_millis()).ok()?;
    let at = jiff::Timestamp::from_millisecond(millis).ok()?;
    Some(at.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_utc_with_milliseconds() {
        assert_eq!(
            rfc3339(Wall::from_millis(1_700_000_000_123)).as_deref(),
            Some("2023-11-14T22:13:20.123Z")
        );
        assert_eq!(rfc3339(Wall::from_millis(u64::MAX)), None);
    }
}
