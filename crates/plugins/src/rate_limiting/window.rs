//! The periods and their windows: calendar time in UTC, with the lengths that Kong uses for all months and years.
//! Sources: kong/tools/timestamp.lua, kong/plugins/rate-limiting/expiration.lua.

use std::sync::atomic::{AtomicU64, Ordering};
use time::{Date, OffsetDateTime};

const DAY: u64 = 86_400;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Period {
    Second,
    Minute,
    Hour,
    Day,
    Month,
    Year,
}

impl Period {
    pub(crate) const COUNT: usize = 6;

    /// All periods, the shortest first.
    pub(crate) const ALL: [Period; Self::COUNT] = [
        Self::Second,
        Self::Minute,
        Self::Hour,
        Self::Day,
        Self::Month,
        Self::Year,
    ];

    /// The name of the field that has the limit.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Second => "second",
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Month => "month",
            Self::Year => "year",
        }
    }

    /// Length in seconds, for `RateLimit-Reset`. Kong counts 30 days for every month and 365 for every year.
    pub(crate) const fn seconds(self) -> u64 {
        match self {
            Self::Second => 1,
            Self::Minute => 60,
            Self::Hour => 3600,
            Self::Day => DAY,
            Self::Month => 30 * DAY,
            Self::Year => 365 * DAY,
        }
    }

    /// Maximum time between the beginnings of two consecutive windows.
    pub(crate) const fn longest(self) -> u64 {
        match self {
            Self::Month => 31 * DAY,
            Self::Year => 366 * DAY,
            _ => self.seconds(),
        }
    }

    /// The unit in which beginnings of windows are counted since 1970.
    pub(crate) const fn unit(self) -> u64 {
        match self {
            Self::Second => 1,
            Self::Minute => 60,
            Self::Hour => 3600,
            Self::Day | Self::Month | Self::Year => DAY,
        }
    }

    /// Bits that hold such a beginning until the year 2089 at least.
    pub(crate) const fn window_bits(self) -> u32 {
        match self {
            Self::Second => 32,
            Self::Minute => 26,
            Self::Hour => 20,
            Self::Day | Self::Month | Self::Year => 16,
        }
    }

    pub(crate) const fn limit_header(self) -> &'static str {
        match self {
            Self::Second => "X-RateLimit-Limit-Second",
            Self::Minute => "X-RateLimit-Limit-Minute",
            Self::Hour => "X-RateLimit-Limit-Hour",
            Self::Day => "X-RateLimit-Limit-Day",
            Self::Month => "X-RateLimit-Limit-Month",
            Self::Year => "X-RateLimit-Limit-Year",
        }
    }

    pub(crate) const fn remaining_header(self) -> &'static str {
        match self {
            Self::Second => "X-RateLimit-Remaining-Second",
            Self::Minute => "X-RateLimit-Remaining-Minute",
            Self::Hour => "X-RateLimit-Remaining-Hour",
            Self::Day => "X-RateLimit-Remaining-Day",
            Self::Month => "X-RateLimit-Remaining-Month",
            Self::Year => "X-RateLimit-Remaining-Year",
        }
    }
}

/// The time of a request, with what its windows need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Moment {
    /// Seconds since 1970.
    pub(crate) now: u64,
    month_begin: u32,
    year_begin: u32,
    /// Whether the windows before the current ones count as well.
    is_sliding: bool,
}

impl Moment {
    /// Returns the same moment for a request whose windows slide.
    pub(crate) fn sliding(self) -> Self {
        Self {
            is_sliding: true,
            ..self
        }
    }

    pub(crate) fn is_sliding(&self) -> bool {
        self.is_sliding
    }

    /// The beginning of the current window, in units of the period.
    pub(crate) fn window(&self, period: Period) -> u64 {
        match period {
            Period::Second => self.now,
            Period::Minute => self.now / 60,
            Period::Hour => self.now / 3600,
            Period::Day => self.now / DAY,
            Period::Month => self.month_begin.into(),
            Period::Year => self.year_begin.into(),
        }
    }

    /// Seconds until the window ends, at least 1.
    pub(crate) fn reset(&self, period: Period) -> u64 {
        let elapsed = self.now.saturating_sub(self.window(period) * period.unit());
        period.seconds().saturating_sub(elapsed).max(1)
    }
}

/// The beginning of the current month and year. Dates are computed once a day: the day, the first of its month and the
/// first of its year (as days since 1970, 20 bits each) are one atomic value that requests read.
#[derive(Debug, Default)]
pub(crate) struct Calendar(AtomicU64);

impl Calendar {
    const BITS: u32 = 20;
    const MASK: u64 = (1 << Self::BITS) - 1;

    /// Returns the moment for a time in seconds since 1970.
    pub(crate) fn moment(&self, now: u64) -> Moment {
        let today = (now / DAY) & Self::MASK;
        let mut known = self.0.load(Ordering::Relaxed);
        if known >> (2 * Self::BITS) != today {
            known = Self::compute(today);
            self.0.store(known, Ordering::Relaxed);
        }
        Moment {
            now,
            month_begin: (known >> Self::BITS & Self::MASK) as u32,
            year_begin: (known & Self::MASK) as u32,
            is_sliding: false,
        }
    }

    fn compute(today: u64) -> u64 {
        let (month, year) = begins(today).unwrap_or((today, today));
        today << (2 * Self::BITS) | month << Self::BITS | year
    }
}

/// Returns the first days of the month and of the year of a day, as days since 1970. `None` after the year 9999.
fn begins(day: u64) -> Option<(u64, u64)> {
    let seconds = i64::try_from(day * DAY).ok()?;
    let date = OffsetDateTime::from_unix_timestamp(seconds).ok()?.date();
    let first_of_month = date.replace_day(1).ok()?;
    let first_of_year = Date::from_ordinal_date(date.year(), 1).ok()?;
    let days = |first: Date| Some(day - u64::try_from((date - first).whole_days()).ok()?);
    Some((days(first_of_month)?, days(first_of_year)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use time::macros::datetime;

    fn moment(time: OffsetDateTime) -> Moment {
        Calendar::default().moment(time.unix_timestamp() as u64)
    }

    fn begin(time: OffsetDateTime, period: Period) -> OffsetDateTime {
        let begin = moment(time).window(period) * period.unit();
        OffsetDateTime::from_unix_timestamp(begin as i64).unwrap()
    }

    #[test]
    fn windows_begin_with_the_calendar_in_utc() {
        let time = datetime!(2024-02-29 23:59:58 UTC);
        let expected = [
            datetime!(2024-02-29 23:59:58 UTC),
            datetime!(2024-02-29 23:59:00 UTC),
            datetime!(2024-02-29 23:00:00 UTC),
            datetime!(2024-02-29 00:00:00 UTC),
            datetime!(2024-02-01 00:00:00 UTC),
            datetime!(2024-01-01 00:00:00 UTC),
        ];
        for (period, expected) in Period::ALL.into_iter().zip(expected) {
            assert_eq!(begin(time, period), expected, "{period:?}");
        }
    }

    #[test]
    fn the_first_second_of_a_year_begins_all_windows() {
        let time = datetime!(2027-01-01 00:00:00 UTC);
        for period in Period::ALL {
            assert_eq!(begin(time, period), time);
        }
    }

    #[test]
    fn the_reset_counts_down_with_kongs_lengths() {
        let noon = moment(datetime!(2026-03-30 12:00:15 UTC));
        let expected = [1, 45, 3600 - 15, DAY / 2 - 15];
        for (period, expected) in Period::ALL.into_iter().zip(expected) {
            assert_eq!(noon.reset(period), expected);
        }
        assert_eq!(noon.reset(Period::Month), DAY / 2 - 15);
    }

    #[test]
    fn the_thirty_first_of_a_month_has_a_reset_of_one_second() {
        let late = moment(datetime!(2026-03-31 12:00:00 UTC));
        assert_eq!(late.reset(Period::Month), 1);
        let late = moment(datetime!(2028-12-31 12:00:00 UTC));
        assert_eq!(late.reset(Period::Year), 1);
    }

    #[test]
    fn a_calendar_follows_the_days_in_both_directions() {
        let calendar = Calendar::default();
        for time in [
            datetime!(2026-11-30 23:59:59 UTC),
            datetime!(2026-12-01 00:00:00 UTC),
            datetime!(2026-11-30 23:59:59 UTC),
            datetime!(1970-01-01 00:00:00 UTC),
        ] {
            let seconds = time.unix_timestamp() as u64;
            assert_eq!(calendar.moment(seconds), moment(time));
        }
    }

    #[test]
    fn windows_fit_into_their_bits_until_2089() {
        let last = moment(datetime!(2089-01-01 00:00:00 UTC));
        for period in Period::ALL {
            assert!(
                last.window(period) < 1 << period.window_bits(),
                "{period:?}"
            );
        }
    }

    #[test]
    fn no_time_makes_a_calendar_fail() {
        for now in [0, 1, u64::from(u32::MAX), u64::MAX / 2, u64::MAX] {
            let moment = Calendar::default().moment(now);
            for period in [Period::Second, Period::Minute, Period::Hour, Period::Day] {
                let _ = (moment.window(period), moment.reset(period));
            }
        }
    }
}
