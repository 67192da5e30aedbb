//! Fields of configurations that several log plugins have: the deprecated ones of the queue, and times.

use services::queue::QueueParams;
use std::time::Duration;

/// Time limit if none is set, as in OpenResty.
pub(crate) const NO_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum milliseconds of a configuration: more cannot be added to the current time.
const MOST_MILLISECONDS: f64 = 1e12;

/// The fields that `queue` has replaced.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Deprecated {
    /// It has no effect.
    pub(crate) retry_count: Option<i64>,
    /// If it is not 1, it replaces `queue.max_batch_size`.
    pub(crate) queue_size: Option<i64>,
    /// If it is not 2, it replaces `queue.max_coalescing_delay`, in seconds.
    pub(crate) flush_timeout: Option<f64>,
}

/// Returns the parameters of the queue, and the names of the deprecated fields that are set. The defaults of these
/// fields count as not set, as in Kong. Source: kong/tools/queue.lua, `get_plugin_params`.
pub(crate) fn queue_params(
    queue: &QueueParams,
    deprecated: Deprecated,
) -> (QueueParams, Vec<&'static str>) {
    let mut params = queue.clone();
    let mut set = Vec::new();
    if deprecated.retry_count.is_some_and(|count| count != 10) {
        set.push("retry_count");
    }
    if let Some(size) = deprecated.queue_size.filter(|size| *size != 1) {
        params.max_batch_size = usize::try_from(size).unwrap_or(1).max(1);
        set.push("queue_size");
    }
    if let Some(seconds) = deprecated.flush_timeout.filter(|seconds| *seconds != 2.0) {
        let delay = Duration::try_from_secs_f64(seconds).unwrap_or(match seconds > 0.0 {
            true => Duration::MAX,
            false => Duration::ZERO,
        });
        params.max_coalescing_delay = delay;
        set.push("flush_timeout");
    }
    (params, set)
}

pub(crate) fn warn_of_deprecated(plugin: &str, fields: &[&str]) {
    for field in fields {
        tracing::warn!(
            plugin,
            field,
            "the field is deprecated; use the fields of `queue` instead"
        );
    }
}

/// Returns a time limit in milliseconds. As in OpenResty, 0 means its default.
pub(crate) fn time_limit(number: Option<f64>) -> Duration {
    let limit = milliseconds(number).filter(|limit| !limit.is_zero());
    limit.unwrap_or(NO_TIMEOUT)
}

/// Returns the time that a connection is kept. In OpenResty, 0 means no limit, and a negative number is an error after
/// which the connection is closed.
pub(crate) fn keepalive(number: Option<f64>) -> Duration {
    match number {
        Some(0.0) => Duration::MAX,
        Some(_) => milliseconds(number).unwrap_or_default(),
        None => NO_TIMEOUT,
    }
}

fn milliseconds(number: Option<f64>) -> Option<Duration> {
    let number = number?.min(MOST_MILLISECONDS);
    Duration::try_from_secs_f64(number / 1000.0).ok()
}
