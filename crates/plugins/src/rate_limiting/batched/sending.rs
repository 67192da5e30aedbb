//! Reports on their way to Redis, which are taken back if they fail.

use super::Entry;
use crate::rate_limiting::direct::COUNT;
use crate::rate_limiting::names;
use crate::rate_limiting::tally::Report;
use services::Clock;
use services::redis::Call;
use std::sync::Arc;
use std::time::Duration;

/// Reports on their way to Redis. Dropped without an end, they have failed.
pub(super) struct Sending(Vec<(Arc<Entry>, Vec<Report>)>);

impl Sending {
    pub(super) fn new(reports: Vec<(Arc<Entry>, Vec<Report>)>) -> Self {
        Self(reports)
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.0.iter().map(|(entry, _)| entry)
    }

    pub(super) fn reports(&self) -> impl Iterator<Item = Report> + '_ {
        self.0
            .iter()
            .flat_map(|(_, reports)| reports.iter().copied())
    }

    pub(super) fn call(&self) -> Call {
        let (mut keys, mut arguments) = (Vec::new(), Vec::new());
        for (entry, reports) in &self.0 {
            for report in reports {
                keys.push(entry.names.of_window("", report.period, report.begin));
                arguments.push(report.requests.to_string().into_bytes());
                arguments.push(names::lifetime(report.period));
            }
        }
        Call::script(&COUNT, keys, arguments)
    }

    /// Ends the reports with the counts, which are in the same order. A report without a count has failed.
    pub(super) fn end(
        &mut self,
        counts: &[Option<u64>],
        taken: bool,
        clock: &Clock,
        interval: Duration,
    ) {
        let steady = clock.since_beginning();
        let mut counts = counts.iter();
        for (entry, reports) in std::mem::take(&mut self.0) {
            let mut tally = entry.tally();
            for (report, count) in reports.into_iter().zip(&mut counts) {
                match count {
                    Some(count) => tally.end(report, *count, taken, steady, interval),
                    None => tally.fail(report),
                }
            }
        }
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        for (entry, reports) in std::mem::take(&mut self.0) {
            let mut tally = entry.tally();
            for report in reports {
                tally.fail(report);
            }
        }
    }
}
