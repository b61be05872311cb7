//! The wall clock, and how a time is shown.

use core::time::Duration;
use std::time::{SystemTime, UNIX_EPOCH};

use relay_core::time::Wall;

/// The wall clock now.
#[must_use]
pub fn now() -> Wall {
    wall(SystemTime::now())
}

/// A time of the system as the core counts it; one before 1970 is its beginning.
#[must_use]
pub fn wall(at: SystemTime) -> Wall {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    Wall::from_millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// A time as every command shows it: RFC 3339, UTC, milliseconds. `None` beyond the calendar's end.
#[must_use]
pub fn rfc3339(at: Wall) -> Option<String> {
    let millis = i64::try_from(at.as_millis()).ok()?;
    let at = jiff::Timestamp::from_millisecond(millis).ok()?;
    Some(at.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string())
}

/// Reads what [`rfc3339`] wrote.
#[must_use]
pub fn read_rfc3339(text: &str) -> Option<Wall> {
    let at: jiff::Timestamp = text.parse().ok()?;
    u64::try_from(at.as_millisecond()).ok().map(Wall::from_millis)
}

/// How long ago something was, for people: in the largest unit of which there are two or more.
#[must_use]
pub fn ago(span: Duration) -> String {
    if span.as_secs() == 0 { "now".to_owned() } else { format!("{} ago", short(span)) }
}

/// In how long something will be, for people, in the same units.
#[must_use]
pub fn ahead(span: Duration) -> String {
    if span.as_secs() == 0 { "now".to_owned() } else { format!("in {}", short(span)) }
}

fn short(span: Duration) -> String {
    let secs = span.as_secs();
    match secs {
        0..120 => format!("{secs} s"),
        120..7200 => format!("{} min", secs / 60),
        7200..172_800 => format!("{} h", secs / 3600),
        _ => format!("{} d", secs / 86_400),
    }
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
        assert_eq!(read_rfc3339("2023-11-14T22:13:20.123Z"), Some(Wall::from_millis(1_700_000_000_123)));
    }

    #[test]
    fn an_age_is_short() {
        let ages = [0, 1, 119, 120, 7199, 7200, 172_799, 172_800].map(|secs| ago(Duration::from_secs(secs)));
        let said =
            ["now", "1 s ago", "119 s ago", "2 min ago", "119 min ago", "2 h ago", "47 h ago", "2 d ago"];
        assert_eq!(ages, said);
        assert_eq!([0, 1, 7200].map(|secs| ahead(Duration::from_secs(secs))), ["now", "in 1 s", "in 2 h"]);
    }
}
