//! Spans of time as users give them: `90`, `90s`, `5m`, `2h`, `7d`.

use core::time::Duration;

use relay_core::message::lease::MAX_TTL_SECS;

/// Reads a span of a second or more: a whole number of seconds, or of what the letter behind it says.
///
/// # Errors
/// The rule, in a line for people.
pub(super) fn span(text: &str) -> Result<Duration, String> {
    let unit = match text.bytes().last() {
        Some(b's' | b'0'..=b'9') => 1,
        Some(b'm') => 60,
        Some(b'h') => 60 * 60,
        Some(b'd') => 24 * 60 * 60,
        Some(_) | None => 0,
    };
    let digits = text.strip_suffix(['s', 'm', 'h', 'd']).unwrap_or(text);
    let number =
        digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse::<u64>().ok()).flatten();
    let secs = number.and_then(|number| number.checked_mul(unit)).filter(|secs| *secs > 0);
    let secs = secs.ok_or("a span is 90, 90s, 5m, 2h or 7d, and a second at least")?;
    Ok(Duration::from_secs(secs))
}

/// Reads the time to live of a lease.
///
/// # Errors
/// The rule, in a line for people.
pub(super) fn ttl(text: &str) -> Result<Duration, String> {
    let ttl = span(text)?;
    if ttl.as_secs() > MAX_TTL_SECS {
        return Err("the time to live of a lease is 1 second to 7 days".to_owned());
    }
    Ok(ttl)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_seconds_unless_a_letter_says_otherwise() {
        for (text, secs) in [("90", 90), ("90s", 90), ("5m", 300), ("2h", 7200), ("7d", 604_800), ("007", 7)]
        {
            assert_eq!(span(text), Ok(Duration::from_secs(secs)), "{text}");
        }
        for bad in ["", "s", "0", "0m", "-1", "+1", "1.5", "1w", "m5", "1 m", "5mm", "99999999999999999d"] {
            assert!(span(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_lease_lives_seven_days_at_most() {
        assert!(ttl("7d").is_ok() && ttl("604801").is_err());
    }
}
