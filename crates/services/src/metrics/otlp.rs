//! OTLP's form of metrics: entries of `ScopeMetrics.metrics`, with cumulative counts. The numbers of the fields are those
//! of `opentelemetry/proto/metrics/v1/metrics.proto`.
//!
//! Names stay those of Prometheus. A unit is given only if the name ends with it in the form that receivers add for
//! Prometheus, so that they add nothing.

use super::exemplar::Exemplar;
use super::labels::Labels;
use super::page::{Kind, Number, Observed, Page};
use super::protobuf::{BYTES, FIXED64, double, integer, key, message, text, varint};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// `AGGREGATION_TEMPORALITY_CUMULATIVE`.
const CUMULATIVE: u64 = 2;

/// Fields of all data points except for attributes.
mod point {
    pub(super) const SINCE: u64 = 2;
    pub(super) const NOW: u64 = 3;
}

/// Nanoseconds since 1970.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Times {
    /// When counting began.
    since: u64,
    now: u64,
}

impl Times {
    pub(super) fn new(since: SystemTime) -> Self {
        let of = |at: SystemTime| nanoseconds(at.duration_since(UNIX_EPOCH).unwrap_or_default());
        let now = of(SystemTime::now());
        Self {
            since: of(since).min(now),
            now,
        }
    }
}

fn nanoseconds(since_1970: Duration) -> u64 {
    u64::try_from(since_1970.as_nanos()).unwrap_or(u64::MAX)
}

pub(super) fn number(page: &mut Page, labels: &str, value: Number) {
    data_point(page, 7, labels, |out| match value {
        Number::Count(count) => fixed(out, 6, count),
        Number::Level(level) => fixed(out, 6, level as u64),
        Number::Float(number) => double(out, 4, number),
    });
}

pub(super) fn summary(page: &mut Page, labels: &str, sum: f64, count: u64) {
    data_point(page, 7, labels, |out| {
        fixed(out, 4, count);
        double(out, 5, sum);
    });
}

pub(super) fn histogram(page: &mut Page, labels: &str, observed: &Observed<'_>) {
    let Observed { buckets, cells, .. } = observed;
    let exemplars = observed.exemplars.read();
    data_point(page, 9, labels, |out| {
        fixed(out, 4, cells.iter().sum());
        double(out, 5, observed.sum);
        let mut before = 0;
        let counts = buckets.cumulative(cells).map(|count| {
            let own = count - before;
            before = count;
            own.to_le_bytes()
        });
        packed(out, 6, buckets.bounds.len() + 1, counts);
        let bounds = buckets.bounds.iter().map(|bound| bound.to_le_bytes());
        packed(out, 7, buckets.bounds.len(), bounds);
        for exemplar in exemplars.iter().flatten() {
            message(out, 8, |out| write_exemplar(out, exemplar));
        }
    });
}

fn write_exemplar(out: &mut Vec<u8>, exemplar: &Exemplar) {
    fixed(out, 2, nanoseconds(exemplar.at));
    double(out, 3, exemplar.value);
    key(out, 5, BYTES);
    varint(out, exemplar.trace.len() as u64);
    out.extend_from_slice(&exemplar.trace);
}

/// Writes a data point of the current metric. `attributes` is the field of its labels.
fn data_point(page: &mut Page, attributes: u64, labels: &str, write: impl FnOnce(&mut Vec<u8>)) {
    let Page { times, family, .. } = page;
    let counts = !matches!(family.kind, Kind::Gauge);
    message(&mut family.series, 1, |out| {
        if counts {
            fixed(out, point::SINCE, times.since);
        }
        fixed(out, point::NOW, times.now);
        for (name, value) in Labels(labels) {
            message(out, attributes, |out| {
                text(out, 1, name);
                message(out, 2, |out| text(out, 1, &value));
            });
        }
        write(out);
    });
}

/// Writes the message of the current metric, if it has data points.
pub(super) fn end_family(page: &mut Page) {
    let Page { buffer, family, .. } = page;
    if family.series.is_empty() {
        return;
    }
    let series = std::mem::take(&mut family.series);
    message(buffer, 2, |out| {
        text(out, 1, &family.name);
        text(out, 2, &family.help);
        if let Some(unit) = unit(&family.name) {
            text(out, 3, unit);
        }
        let field = match family.kind {
            Kind::Gauge => 5,
            Kind::Counter | Kind::Level => 7,
            Kind::Histogram => 9,
            Kind::Summary => 11,
        };
        message(out, field, |out| {
            out.extend_from_slice(&series);
            if matches!(family.kind, Kind::Counter | Kind::Level | Kind::Histogram) {
                integer(out, 2, CUMULATIVE);
            }
            if family.kind == Kind::Counter {
                // It only grows.
                integer(out, 3, 1);
            }
        });
    });
    family.series = series;
    family.series.clear();
}

/// The unit that a name ends with.
fn unit(name: &str) -> Option<&'static str> {
    let name = name.strip_suffix("_total").unwrap_or(name);
    if name.ends_with("_seconds") {
        Some("s")
    } else if name.ends_with("_bytes") {
        Some("By")
    } else {
        None
    }
}

fn fixed(out: &mut Vec<u8>, field: u64, value: u64) {
    key(out, field, FIXED64);
    out.extend_from_slice(&value.to_le_bytes());
}

/// Writes numbers of eight bytes as one field.
fn packed(out: &mut Vec<u8>, field: u64, count: usize, numbers: impl Iterator<Item = [u8; 8]>) {
    if count == 0 {
        return;
    }
    key(out, field, BYTES);
    varint(out, 8 * count as u64);
    for number in numbers {
        out.extend_from_slice(&number);
    }
}
