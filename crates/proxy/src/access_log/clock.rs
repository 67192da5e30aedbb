//! The time in the formats of log lines, formatted at most once per second. It is always UTC, so that lines do not
//! depend on the machine's time zone.

use crate::session::date::http_date;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

#[derive(Debug, Default)]
pub(super) struct Clock {
    /// Time since 1970.
    pub(super) now: Duration,
    second: Option<u64>,
    /// The time as in `20/Nov/2026:11:00:00 +0000`.
    pub(super) local: String,
    /// The time as in `2026-11-20T11:00:00+00:00`.
    pub(super) iso: String,
}

impl Clock {
    pub(super) fn set(&mut self, now: SystemTime) {
        self.now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let second = self.now.as_secs();
        if self.second == Some(second) {
            return;
        }
        self.second = Some(second);
        // The date has the form `Fri, 20 Nov 2026 11:00:00 GMT`.
        let date = http_date(second);
        let (day, month, year, time) = (&date[5..7], &date[8..11], &date[12..16], &date[17..25]);
        let number = MONTHS.find(month).map_or(0, |at| at / 3 + 1);
        self.local = format!("{day}/{month}/{year}:{time} +0000");
        self.iso = format!("{year}-{number:02}-{day}T{time}+00:00");
    }
}

const MONTHS: &str = "JanFebMarAprMayJunJulAugSepOctNovDec";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_month_is_written_by_its_name_and_its_number() {
        let mut clock = Clock::default();
        for (second, local, iso) in [
            (0, "01/Jan/1970:00:00:00 +0000", "1970-01-01T00:00:00+00:00"),
            (
                1_709_164_799,
                "28/Feb/2024:23:59:59 +0000",
                "2024-02-28T23:59:59+00:00",
            ),
            (
                1_709_164_800,
                "29/Feb/2024:00:00:00 +0000",
                "2024-02-29T00:00:00+00:00",
            ),
            (
                1_795_172_400,
                "20/Nov/2026:11:00:00 +0000",
                "2026-11-20T11:00:00+00:00",
            ),
            (
                1_798_761_599,
                "31/Dec/2026:23:59:59 +0000",
                "2026-12-31T23:59:59+00:00",
            ),
        ] {
            clock.set(UNIX_EPOCH + Duration::from_secs(second));
            assert_eq!((&*clock.local, &*clock.iso), (local, iso));
        }
    }
}
