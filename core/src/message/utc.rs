//! Instants as lease messages write them.

use alloc::string::String;
use core::fmt;

use serde::{Serialize, Serializer};

/// A wall clock instant in whole seconds since the epoch, written `YYYY-MM-DDTHH:MM:SSZ`. The last one is the end
/// of the year 9999, beyond which the form has no room.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Utc(u64);

impl Utc {
    /// The last instant that the form can say.
    pub const MAX: Self = Self(253_402_300_799);

    /// The instant `secs` seconds behind the epoch; [`Self::MAX`] where that is later.
    #[must_use]
    pub const fn from_secs(secs: u64) -> Self {
        if secs > Self::MAX.0 { Self::MAX } else { Self(secs) }
    }

    /// Seconds since the epoch.
    #[must_use]
    pub const fn as_secs(self) -> u64 {
        self.0
    }

    /// Reads the exact form; `None` for another, for a date that the calendar has not, or one before the epoch.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text: &[u8; 20] = text.as_bytes().try_into().ok()?;
        let marks = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':'), (19, b'Z')];
        if marks.iter().any(|&(at, mark)| text[at] != mark) {
            return None;
        }
        let number = |from: usize, to: usize| {
            text[from..to].iter().try_fold(0_u64, |sum, digit| {
                digit.is_ascii_digit().then(|| sum * 10 + u64::from(digit - b'0'))
            })
        };
        let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
        let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
        let is_date = year >= 1970 && (1..=12).contains(&month) && (1..=days_in(year, month)).contains(&day);
        if !is_date || hour > 23 || minute > 59 || second > 59 {
            return None;
        }
        let days = days_before_year(year) + (1..month).map(|m| days_in(year, m)).sum::<u64>() + day - 1;
        Some(Self(((days * 24 + hour) * 60 + minute) * 60 + second))
    }
}

impl fmt::Display for Utc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut days, clock) = (self.0 / 86_400, self.0 % 86_400);
        // No later than the year wanted, and at most one step before it.
        let mut year = 1970 + days / 366;
        while days_before_year(year + 1) <= days {
            year += 1;
        }
        days -= days_before_year(year);
        let mut month = 1;
        while days >= days_in(year, month) {
            days -= days_in(year, month);
            month += 1;
        }
        let (hour, minute, second) = (clock / 3600, clock / 60 % 60, clock % 60);
        write!(f, "{year:04}-{month:02}-{:02}T{hour:02}:{minute:02}:{second:02}Z", days + 1)
    }
}

impl Serialize for Utc {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Utc {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text: String = serde::Deserialize::deserialize(from)?;
        Self::parse(&text)
            .ok_or_else(|| serde::de::Error::custom("no instant of the form YYYY-MM-DDTHH:MM:SSZ"))
    }
}

/// Days from the epoch to the first of January.
fn days_before_year(year: u64) -> u64 {
    let leaps = |year: u64| year / 4 - year / 100 + year / 400;
    (year - 1970) * 365 + leaps(year - 1) - leaps(1969)
}

fn days_in(year: u64, month: u64) -> u64 {
    match month {
        2 if year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400)) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use quickcheck::quickcheck;

    use super::*;

    #[test]
    fn known_instants() {
        for (secs, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_000_000_000, "2001-09-09T01:46:40Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            (253_402_300_799, "9999-12-31T23:59:59Z"),
        ] {
            assert_eq!(Utc::from_secs(secs).to_string(), text);
            assert_eq!(Utc::parse(text), Some(Utc::from_secs(secs)));
        }
        assert_eq!(Utc::from_secs(u64::MAX), Utc::MAX);
    }

    #[test]
    fn other_forms_and_dates_are_refused() {
        for text in [
            "",
            "2024-01-01",
            "2024-01-01T00:00:00",
            "2024-01-01T00:00:00z",
            "2024-01-01 00:00:00Z",
            "2024-01-01T00:00:00.0Z",
            "2024-13-01T00:00:00Z",
            "2024-00-01T00:00:00Z",
            "2023-02-29T00:00:00Z",
            "2024-01-00T00:00:00Z",
            "2024-01-01T24:00:00Z",
            "2024-01-01T00:60:00Z",
            "1969-12-31T23:59:59Z",
            "+024-01-01T00:00:00Z",
        ] {
            assert_eq!(Utc::parse(text), None, "{text}");
        }
    }

    quickcheck! {
        fn any_instant_reads_back(secs: u64) -> bool {
            let instant = Utc::from_secs(secs % (Utc::MAX.0 + 1));
            Utc::parse(&instant.to_string()) == Some(instant)
        }
    }
}
