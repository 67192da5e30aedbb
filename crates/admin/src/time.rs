//! Times in history and logs, and in requests: RFC 3339, or seconds since 1970.

use std::time::{SystemTime, UNIX_EPOCH};
use time::format_description::BorrowedFormatItem;
use time::format_description::well_known::Rfc3339;
use time::macros::format_description;
use time::{OffsetDateTime, PrimitiveDateTime};

const SHOWN: &[BorrowedFormatItem<'_>] =
    format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z");

/// Formats milliseconds since 1970 as `2026-02-03T04:05:06.789Z`.
pub fn rfc3339(ms: u64) -> String {
    let time = OffsetDateTime::from_unix_timestamp_nanos(i128::from(ms) * 1_000_000);
    // The `time` crate supports no years after 9999.
    let time = time.unwrap_or(PrimitiveDateTime::MAX.assume_utc());
    time.format(SHOWN).unwrap_or_default()
}

/// Returns milliseconds since 1970; times before 1970 count as 1970.
pub fn since_1970(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Parses either format to milliseconds since 1970. RFC 3339 times are cut off to milliseconds, and numbers of seconds
/// are rounded to milliseconds. Times before 1970 count as 1970.
pub(crate) fn parse(text: &str) -> Option<u64> {
    let ms = match text.parse::<f64>() {
        Ok(seconds) if seconds.is_finite() => (seconds * 1000.0).round() as i64,
        Ok(_) => return None,
        Err(_) => parse_rfc3339(text)?,
    };
    Some(u64::try_from(ms).unwrap_or(0))
}

/// Parses RFC 3339, also with a space instead of the `T`.
fn parse_rfc3339(text: &str) -> Option<i64> {
    let (date, rest) = text.split_at_checked(10)?;
    let text = match rest.strip_prefix(' ') {
        Some(rest) => format!("{date}T{rest}"),
        None => text.to_owned(),
    };
    let time = OffsetDateTime::parse(&text, &Rfc3339).ok()?;
    i64::try_from(time.unix_timestamp_nanos() / 1_000_000).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_shown_and_read_in_both_forms() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_001, "2000-02-29T00:00:00.001Z"),
            (1_798_761_599_999, "2026-12-31T23:59:59.999Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(rfc3339(ms), text);
            assert_eq!(parse(text), Some(ms));
            assert_eq!(parse(&format!("{}.{:03}", ms / 1000, ms % 1000)), Some(ms));
        }
        for (text, ms) in [
            ("2000-01-01T00:00:00+01:30", 946_679_400_000),
            ("2000-01-01 00:00:00.5-00:00", 946_684_800_500),
            ("2000-01-01t00:00:00.123456z", 946_684_800_123),
            ("1960-01-01T00:00:00Z", 0),
            ("-5", 0),
            ("946684800", 946_684_800_000),
        ] {
            assert_eq!(parse(text), Some(ms), "{text}");
        }
    }

    #[test]
    fn every_day_of_four_centuries_is_read_as_it_is_shown() {
        for day in 0..146_097 {
            let ms = day * 86_400_000;
            assert_eq!(parse(&rfc3339(ms)), Some(ms));
        }
    }

    #[test]
    fn invalid_times_are_refused() {
        for text in [
            "",
            "now",
            "inf",
            "2000-01-01",
            "2000-01-01T00:00:00",
            "2000-02-30T00:00:00Z",
            "2001-02-29T00:00:00Z",
            "2000-13-01T00:00:00Z",
            "2000-00-01T00:00:00Z",
            "2000-01-00T00:00:00Z",
            "2000-01-01T24:00:00Z",
            "2000-01-01T00:00:00.Z",
            "2000-01-01T00:00:00+1:00",
            "2000-01-01T00:00:00ü",
            "20ü0-01-01T00:00:00Z",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
