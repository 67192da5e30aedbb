//! The time as log lines write it, made anew once a second at most. Always UTC: a line means the same wherever it is read.

use crate::session::date::{MONTHS, civil};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

#[derive(Debug, Default)]
pub(super) struct Clock {
    /// Since 1970.
    pub(super) now: Duration,
    second: Option<u64>,
    /// `20/Nov/2026:11:00:00 +0000`
    pub(super) local: String,
    /// `2026-11-20T11:00:00+00:00`
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
        let (year, month, day) = civil(second / 86_400);
        let (hour, minute, rest) = (second / 3600 % 24, second / 60 % 60, second % 60);
        let time = format!("{hour:02}:{minute:02}:{rest:02}");
        self.local = format!("{day:02}/{}/{year:04}:{time} +0000", MONTHS[month]);
        self.iso = format!("{year:04}-{:02}-{day:02}T{time}+00:00", month + 1);
    }
}

/// `2026-11-20T11:00:00+00:00`, as log lines have it.
pub fn iso_time(time: SystemTime) -> String {
    let mut clock = Clock::default();
    clock.set(time);
    clock.iso
}
