//! The wall time, read at most once per second, and its text in HTTP's format (`Fri, 20 Nov 2026 11:00:00 GMT`).

use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::Instant;

#[derive(Debug, Default)]
pub(super) struct HttpDate {
    text: String,
    /// End of the second that `text` shows.
    until: Option<Instant>,
    /// When the wall time was read, and what it was.
    read: Option<(Instant, SystemTime)>,
}

impl HttpDate {
    /// `now` is the caller's latest clock reading. The system's date is read only when the second is over.
    pub(super) fn at(&mut self, now: Instant) -> &str {
        self.look(now);
        &self.text
    }

    /// Returns the wall time at an earlier moment. `now` is the caller's latest clock reading. A clock that was set is
    /// noticed within a second.
    #[inline]
    pub(super) fn wall_time(&mut self, earlier: Instant, now: Instant) -> SystemTime {
        self.look(now);
        let Some((at, time)) = self.read else {
            return SystemTime::now();
        };
        match earlier.checked_duration_since(at) {
            Some(after) => time + after,
            None => time - (at - earlier),
        }
    }

    #[inline]
    fn look(&mut self, now: Instant) {
        if self.until.is_none_or(|until| until <= now) {
            self.renew(now, SystemTime::now());
        }
    }

    #[cold]
    fn renew(&mut self, now: Instant, time: SystemTime) {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        self.text = http_date(since.as_secs());
        let left = 1_000_000_000 - since.subsec_nanos();
        self.until = Some(now + Duration::from_nanos(left.into()));
        self.read = Some((now, time));
    }
}

/// `second` counts from 1970. The `httpdate` crate panics for years after 9999, so later times are shown as the last
/// second of that year.
pub(crate) fn http_date(second: u64) -> String {
    httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(second.min(LAST_SECOND)))
}

/// The last second of the year 9999.
const LAST_SECOND: u64 = 253_402_300_799;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_date_stays_for_its_second_and_any_clock_is_shown() {
        let now = Instant::now();
        let mut date = HttpDate::default();
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        for (time, text) in [
            (at(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT"),
            (at(LAST_SECOND + 1), "Fri, 31 Dec 9999 23:59:59 GMT"),
            (
                UNIX_EPOCH - Duration::from_secs(1),
                "Thu, 01 Jan 1970 00:00:00 GMT",
            ),
        ] {
            date.renew(now, time);
            assert_eq!(date.at(now), text);
            assert_eq!(date.at(now + Duration::from_millis(999)), text);
            let tenth = Duration::from_millis(100);
            assert_eq!(date.wall_time(now + tenth, now + tenth), time + tenth);
            assert_eq!(date.wall_time(now - tenth, now + tenth), time - tenth);
        }
        let later = now + Duration::from_secs(1);
        assert_ne!(date.at(later), "Thu, 01 Jan 1970 00:00:00 GMT");
    }
}
