//! The protobuf format of Prometheus: messages `io.prometheus.client.MetricFamily`, each with its length in front. The
//! numbers of the fields are those of `io/prometheus/client/metrics.proto`.
//!
//! The messages are written by hand: they have few fields, and no message is built only to be written.

use super::buckets::{Native, Span};
use super::exemplar::Exemplar;
use super::labels::Labels;
use super::page::{Kind, Number, Observed, Page};

/// Wire types of the fields that this format uses.
const VARINT: u64 = 0;
pub(super) const FIXED64: u64 = 1;
pub(super) const BYTES: u64 = 2;

pub(super) fn number(page: &mut Page, labels: &str, value: Number) {
    let value = match value {
        Number::Count(count) => count as f64,
        Number::Level(level) => level as f64,
        Number::Float(number) => number,
    };
    // Metric.counter or Metric.gauge, whose first field is the value.
    let field = match page.family.kind {
        Kind::Counter => 3,
        _ => 2,
    };
    metric(page, labels, |out| {
        message(out, field, |out| double(out, 1, value));
    });
}

pub(super) fn summary(page: &mut Page, labels: &str, sum: f64, count: u64) {
    metric(page, labels, |out| {
        message(out, 4, |out| {
            integer(out, 1, count);
            double(out, 2, sum);
        });
    });
}

pub(super) fn histogram(page: &mut Page, labels: &str, observed: &Observed<'_>) {
    let exemplars = observed.exemplars.read();
    metric(page, labels, |out| {
        message(out, 7, |out| write_histogram(out, observed, &exemplars));
    });
}

fn write_histogram(out: &mut Vec<u8>, observed: &Observed<'_>, exemplars: &[Option<Exemplar>]) {
    let Observed { buckets, cells, .. } = observed;
    integer(out, 1, cells.iter().sum());
    double(out, 2, observed.sum);
    let bounds = buckets.bounds.iter().copied().chain([f64::INFINITY]);
    for (bucket, (bound, count)) in bounds.zip(buckets.cumulative(cells)).enumerate() {
        if count == 0 && buckets.whole {
            continue;
        }
        message(out, 3, |out| {
            integer(out, 1, count);
            double(out, 2, bound);
            if let Some(Some(exemplar)) = exemplars.get(bucket) {
                message(out, 3, |out| write_exemplar(out, exemplar));
            }
        });
    }
    if let Some(native) = &buckets.native {
        write_native(out, native, cells);
        // Prometheus takes the exemplars of native histograms from here.
        for exemplar in exemplars.iter().flatten() {
            message(out, 16, |out| write_exemplar(out, exemplar));
        }
    }
}

fn write_native(out: &mut Vec<u8>, native: &Native, cells: &[u64]) {
    let (zeros, spans) = native.read(cells);
    integer(out, 5, zigzag(Native::schema().into()));
    double(out, 6, native.zero_threshold);
    integer(out, 7, zeros);
    let mut next = 0;
    for Span { start, counts } in &spans {
        // The gap after the span before; of the first span, its index.
        message(out, 12, |out| {
            integer(out, 1, zigzag((start - next).into()));
            integer(out, 2, counts.len() as u64);
        });
        next = start + counts.len() as i32;
    }
    let mut before = 0;
    message(out, 13, |out| {
        for count in spans.iter().flat_map(|span| &span.counts) {
            let count = *count as i64;
            varint(out, zigzag(count - before));
            before = count;
        }
    });
}

fn write_exemplar(out: &mut Vec<u8>, exemplar: &Exemplar) {
    message(out, 1, |out| {
        text(out, 1, "trace_id");
        text(out, 2, &exemplar.trace_id());
    });
    double(out, 2, exemplar.value);
    message(out, 3, |out| {
        integer(out, 1, exemplar.at.as_secs());
        integer(out, 2, exemplar.at.subsec_nanos().into());
    });
}

/// Writes a series of the current metric.
fn metric(page: &mut Page, labels: &str, write: impl FnOnce(&mut Vec<u8>)) {
    message(&mut page.family.series, 4, |out| {
        for (name, value) in Labels(labels) {
            message(out, 1, |out| {
                text(out, 1, name);
                text(out, 2, &value);
            });
        }
        write(out);
    });
}

/// Writes the message of the current metric, if it has series.
pub(super) fn end_family(page: &mut Page) {
    let family = &mut page.family;
    if family.series.is_empty() {
        return;
    }
    let kind = match family.kind {
        Kind::Counter => 0,
        Kind::Gauge | Kind::Level => 1,
        Kind::Summary => 2,
        Kind::Histogram => 4,
    };
    let mut head = Vec::with_capacity(family.name.len() + family.help.len() + 16);
    text(&mut head, 1, &family.name);
    text(&mut head, 2, &family.help);
    integer(&mut head, 3, kind);
    let out = &mut page.buffer;
    varint(out, (head.len() + family.series.len()) as u64);
    out.extend_from_slice(&head);
    out.extend_from_slice(&family.series);
    family.series.clear();
}

/// Writes a message as a field. Its length is known only at the end: it is put in front then.
pub(super) fn message(out: &mut Vec<u8>, field: u64, write: impl FnOnce(&mut Vec<u8>)) {
    key(out, field, BYTES);
    let start = out.len();
    // Nearly all messages are shorter than 128 bytes, so that their length has one byte.
    out.push(0);
    write(out);
    let length = out.len() - start - 1;
    match u8::try_from(length) {
        Ok(short @ 0..128) => out[start] = short,
        _ => {
            let mut bytes = Vec::with_capacity(10);
            varint(&mut bytes, length as u64);
            out.splice(start..=start, bytes);
        }
    }
}

pub(super) fn text(out: &mut Vec<u8>, field: u64, value: &str) {
    key(out, field, BYTES);
    varint(out, value.len() as u64);
    out.extend_from_slice(value.as_bytes());
}

pub(super) fn double(out: &mut Vec<u8>, field: u64, value: f64) {
    key(out, field, FIXED64);
    out.extend_from_slice(&value.to_le_bytes());
}

pub(super) fn integer(out: &mut Vec<u8>, field: u64, value: u64) {
    key(out, field, VARINT);
    varint(out, value);
}

pub(super) fn key(out: &mut Vec<u8>, field: u64, wire_type: u64) {
    varint(out, field << 3 | wire_type);
}

pub(super) fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Maps numbers near zero to small ones, whatever their sign.
fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63) as u64
}
