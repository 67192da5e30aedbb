//! Parameters of a queue, as in the record `queue` of a plugin's configuration (kong/tools/queue_schema.lua).

use serde::Deserialize;
use serde::de::{Deserializer, Error};
use std::time::Duration;

/// Parameters of a queue. A missing field has Kong's default.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct QueueParams {
    /// Maximum number of entries that are sent together. Default: 1.
    #[serde(deserialize_with = "at_least_one")]
    pub max_batch_size: usize,
    /// Maximum time that the first entry of a batch waits for others. Default: 1 second. It has no effect if
    /// `max_batch_size` is 1.
    #[serde(deserialize_with = "seconds")]
    pub max_coalescing_delay: Duration,
    /// Maximum number of waiting entries. Default: 10,000.
    #[serde(deserialize_with = "at_least_one")]
    pub max_entries: usize,
    /// Maximum size of all waiting entries together. Default: [`DEFAULT_MAX_BYTES`].
    #[serde(deserialize_with = "bytes")]
    pub max_bytes: Option<usize>,
    /// Time before the first retry; each further retry doubles it. Default: 10 milliseconds.
    #[serde(deserialize_with = "seconds")]
    pub initial_retry_delay: Duration,
    /// Time after which a batch is given up. `None`, which is a negative number in a configuration, means that a batch
    /// is sent only once. Default: 60 seconds.
    #[serde(deserialize_with = "seconds_or_never")]
    pub max_retry_time: Option<Duration>,
    /// Maximum time between two retries. Default: 60 seconds.
    #[serde(deserialize_with = "seconds")]
    pub max_retry_delay: Duration,
    /// Number of batches that are sent at once. Default: 1.
    pub concurrency_limit: Concurrency,
}

/// Maximum size of the waiting entries of a queue without `max_bytes`. Kong has no limit then: while a log server is
/// away, clients could fill the memory with long requests.
pub const DEFAULT_MAX_BYTES: usize = 256 * 1024 * 1024;

/// Number of batches that a queue sends at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Concurrency {
    /// One batch at a time, in the order of the entries.
    #[default]
    One,
    /// Each entry is sent alone and at once, so that entries can arrive in any order. Kong writes it as -1.
    Unlimited,
}

impl Default for QueueParams {
    /// Returns Kong's defaults.
    fn default() -> Self {
        Self {
            max_batch_size: 1,
            max_coalescing_delay: Duration::from_secs(1),
            max_entries: 10_000,
            max_bytes: None,
            initial_retry_delay: Duration::from_millis(10),
            max_retry_time: Some(Duration::from_secs(60)),
            max_retry_delay: Duration::from_secs(60),
            concurrency_limit: Concurrency::One,
        }
    }
}

impl QueueParams {
    /// Returns the parameters for entries that are sent alone also if they are collected: without a configured size of
    /// batches, they are collected for a moment, so that a busy worker seldom has to wake the background.
    #[must_use]
    pub fn collecting(self) -> Self {
        match self.max_batch_size {
            1 => Self {
                max_batch_size: 1000,
                max_coalescing_delay: Duration::from_millis(10),
                ..self
            },
            _ => self,
        }
    }

    /// Returns the delay before a retry, where 0 is the first retry of a batch. `pause` is what the receiver asks for.
    pub(super) fn retry_delay(&self, retry: u32, pause: Option<Duration>) -> Duration {
        let factor = 2_u32.saturating_pow(retry);
        let delay = self.initial_retry_delay.saturating_mul(factor);
        let delay = delay.max(pause.unwrap_or_default());
        delay.min(self.max_retry_delay).min(LONGEST)
    }

    /// Returns the number of waiting entries from which on a push must look at the limits: 80 percent of `max_entries`,
    /// where Kong warns.
    pub(super) fn warn_at(&self) -> usize {
        let limit = self.max_entries.max(1);
        limit - limit / 5
    }

    /// Returns the maximum size of all waiting entries together.
    pub fn max_bytes(&self) -> usize {
        self.max_bytes.unwrap_or(DEFAULT_MAX_BYTES)
    }

    /// Returns how many texts can be pushed together, so that neither a batch nor the queue is larger than configured.
    pub fn most_together(&self) -> usize {
        self.batch_size().min(self.max_entries.max(1))
    }

    pub(super) fn batch_size(&self) -> usize {
        match self.concurrency_limit {
            Concurrency::One => self.max_batch_size.max(1),
            Concurrency::Unlimited => 1,
        }
    }

    /// Returns the coalescing delay, which is short enough to be added to the current time.
    pub(super) fn coalescing_delay(&self) -> Duration {
        self.max_coalescing_delay.min(LONGEST)
    }
}

impl<'de> Deserialize<'de> for Concurrency {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match i64::deserialize(deserializer)? {
            1 => Ok(Self::One),
            -1 => Ok(Self::Unlimited),
            _ => Err(D::Error::custom("concurrency_limit must be 1 or -1")),
        }
    }
}

/// Longer times are cut, because adding them to the current time could overflow.
const LONGEST: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// Reads seconds. A negative number counts as zero.
fn seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    Ok(duration(f64::deserialize(deserializer)?).unwrap_or_default())
}

fn seconds_or_never<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Duration>, D::Error> {
    f64::deserialize(deserializer).map(duration)
}

/// Returns `None` for a negative number and for one that is not a number.
fn duration(seconds: f64) -> Option<Duration> {
    let duration = Duration::try_from_secs_f64(seconds);
    match duration {
        Ok(duration) => Some(duration.min(LONGEST)),
        Err(_) if seconds > 0.0 => Some(LONGEST),
        Err(_) => None,
    }
}

fn at_least_one<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    let number = i64::deserialize(deserializer)?;
    usize::try_from(number)
        .ok()
        .filter(|number| *number > 0)
        .ok_or_else(|| D::Error::custom("the limit must be 1 or more"))
}

/// Reads a size. A negative one counts as zero: in Kong every entry is larger than it.
fn bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<usize>, D::Error> {
    let bytes: Option<i64> = Option::deserialize(deserializer)?;
    Ok(bytes.map(|bytes| usize::try_from(bytes.max(0)).unwrap_or(usize::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<QueueParams, String> {
        serde_json::from_str(json).map_err(|error| error.to_string())
    }

    #[test]
    fn an_empty_record_has_the_defaults() {
        assert_eq!(read("{}").unwrap(), QueueParams::default());
    }

    #[test]
    fn every_field_is_read() {
        let params = read(
            r#"{"max_batch_size":2,"max_coalescing_delay":0.5,"max_entries":3,"max_bytes":4,"initial_retry_delay":0.25,
                "max_retry_time":5,"max_retry_delay":6,"concurrency_limit":-1}"#,
        );
        let expected = QueueParams {
            max_batch_size: 2,
            max_coalescing_delay: Duration::from_millis(500),
            max_entries: 3,
            max_bytes: Some(4),
            initial_retry_delay: Duration::from_millis(250),
            max_retry_time: Some(Duration::from_secs(5)),
            max_retry_delay: Duration::from_secs(6),
            concurrency_limit: Concurrency::Unlimited,
        };
        assert_eq!(params.unwrap(), expected);
    }

    #[test]
    fn values_out_of_range_are_errors_or_the_nearest_value() {
        for wrong in [
            r#"{"max_batch_size":0}"#,
            r#"{"max_entries":-1}"#,
            r#"{"concurrency_limit":2}"#,
            r#"{"unknown":1}"#,
        ] {
            read(wrong).unwrap_err();
        }
        let params =
            read(r#"{"max_retry_time":-1,"max_retry_delay":1e300,"max_bytes":-1}"#).unwrap();
        assert_eq!(params.max_retry_time, None);
        assert_eq!(params.max_retry_delay, LONGEST);
        assert_eq!(params.max_bytes, Some(0));
    }

    #[test]
    fn retry_delays_double_up_to_the_maximum() {
        let params = QueueParams {
            max_retry_delay: Duration::from_millis(50),
            ..QueueParams::default()
        };
        let delays = [0, 1, 2, 3, 40, u32::MAX].map(|n| params.retry_delay(n, None).as_millis());
        assert_eq!(delays, [10, 20, 40, 50, 50, 50]);
        let asked = [1, 30, 5000].map(Duration::from_millis);
        let delays = asked.map(|pause| params.retry_delay(1, Some(pause)).as_millis());
        assert_eq!(delays, [20, 30, 50]);
    }

    #[test]
    fn the_warning_starts_at_eighty_percent() {
        let at = |max_entries| {
            let params = QueueParams {
                max_entries,
                ..QueueParams::default()
            };
            params.warn_at()
        };
        assert_eq!([1, 4, 5, 10, 10_000].map(at), [1, 4, 4, 8, 8000]);
    }
}
