//! The time as HTTP writes it (`Fri, 20 Nov 2026 11:00:00 GMT`), made anew once a second at most.

use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::Instant;

const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
pub(crate) const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

#[derive(Debug, Default)]
pub(super) struct HttpDate {
    text: String,
    /// When the second ends.
    until: Option<Instant>,
}

impl HttpDate {
    /// `now` is the caller's latest look at the clock: the calendar is looked at only when a second is over.
    pub(super) fn at(&mut self, now: Instant) -> &str {
        if self.until.is_none_or(|until| until <= now) {
            self.renew(now);
        }
        &self.text
    }

    #[cold]
    fn renew(&mut self, now: Instant) {
        let elapsed = SystemTime::now().duration_since(UNIX_EPOCH);
        let elapsed = elapsed.unwrap_or_default();
        self.text = format(elapsed.as_secs());
        let left = 1_000_000_000 - elapsed.subsec_nanos();
        self.until = Some(now + Duration::from_nanos(left.into()));
    }
}

fn format(second: u64) -> String {
    let day = second / 86_400;
    let (year, month, day_of_month) = civil(day);
    format!(
        "{}, {day_of_month:02} {} {year:04} {:02}:{:02}:{:02} GMT",
        DAYS[(day % 7) as usize],
        MONTHS[month],
        second / 3600 % 24,
        second / 60 % 60,
        second % 60,
    )
}

/// Year, month from 0, and day of month of a day since 1970.
pub(crate) fn civil(mut day: u64) -> (u64, usize, u64) {
    let mut year = 1970;
    loop {
        let length = if is_leap(year) { 366 } else { 365 };
        if day < length {
            break;
        }
        day -= length;
        year += 1;
    }
    let february = if is_leap(year) { 29 } else { 28 };
    let lengths = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while day >= lengths[month] {
        day -= lengths[month];
        month += 1;
    }
    (year, month, day + 1)
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_written_as_http_has_them() {
        assert_eq!(format(0), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(format(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(format(1_709_164_799), "Wed, 28 Feb 2024 23:59:59 GMT");
        assert_eq!(format(1_709_164_800), "Thu, 29 Feb 2024 00:00:00 GMT");
        assert_eq!(format(1_795_172_400), "Fri, 20 Nov 2026 11:00:00 GMT");
    }
}
