//! The results of a run or of a window of one.

use super::answer::Failure;
use hdrhistogram::Histogram;
use std::fmt;
use std::time::Duration;

#[derive(Debug, Clone)]
pub struct Outcome {
    /// Number of requests that were sent or, in an open loop, should have been sent. Includes failed ones, and failures
    /// of connections without an outstanding request.
    pub requests: u64,
    /// Number of requests without a complete 200 response with the upstream's body.
    pub failed: u64,
    /// The reason of the first failure.
    pub first_failure: Option<String>,
    /// Number of times that a closed connection was opened again. This alone is not a failure, because a server may
    /// close idle connections.
    pub reconnects: u64,
    /// Duration of the run or window. The last window lasts at least until the last response.
    pub elapsed: Duration,
    /// Latency in nanoseconds of the successful responses.
    pub latency: Histogram<u64>,
    /// Processor time of the load generator's own thread.
    pub cpu: Duration,
}

impl Default for Outcome {
    fn default() -> Self {
        Self {
            requests: 0,
            failed: 0,
            first_failure: None,
            reconnects: 0,
            elapsed: Duration::ZERO,
            latency: Histogram::new(3).expect("three digits are allowed"),
            cpu: Duration::ZERO,
        }
    }
}

impl Outcome {
    /// Adds the results of a later window or run.
    pub fn merge(&mut self, other: &Self) {
        self.requests += other.requests;
        self.failed += other.failed;
        self.reconnects += other.reconnects;
        self.elapsed += other.elapsed;
        self.cpu += other.cpu;
        if self.first_failure.is_none() {
            self.first_failure.clone_from(&other.first_failure);
        }
        self.latency
            .add(&other.latency)
            .expect("a histogram that grows takes every value");
    }

    /// Returns the requests per second, including failed ones.
    pub fn rate(&self) -> f64 {
        self.requests as f64 / self.elapsed.as_secs_f64()
    }

    /// Returns a quantile of the latency in microseconds.
    pub fn quantile(&self, at: f64) -> f64 {
        self.latency.value_at_quantile(at) as f64 / 1e3
    }

    pub(super) fn record(&mut self, latency: Duration) {
        let nanoseconds = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.requests += 1;
        self.latency
            .record(nanoseconds)
            .expect("a histogram that grows takes every value");
    }

    pub(super) fn record_failures(&mut self, count: u64, failure: &Failure) {
        self.requests += count;
        self.failed += count;
        if self.first_failure.is_none() {
            self.first_failure = Some(failure.to_string());
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{} requests, {} failed, {:.0} a second, median {:.1} µs, p99 {:.1} µs; the load generator took {:.2} µs for each",
            self.requests,
            self.failed,
            self.rate(),
            self.quantile(0.5),
            self.quantile(0.99),
            self.cpu.as_secs_f64() * 1e6 / self.requests as f64,
        )?;
        if self.reconnects > 0 {
            write!(
                formatter,
                "; {} connections were opened again",
                self.reconnects
            )?;
        }
        match &self.first_failure {
            Some(failure) => write!(formatter, "; the first failure: {failure}"),
            None => Ok(()),
        }
    }
}
