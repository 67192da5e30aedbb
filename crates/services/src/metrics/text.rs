//! The text format of Prometheus, version 0.0.4, and OpenMetrics 1.0.0, which is nearly the same.

use super::exemplar::Exemplar;
use super::labels;
use super::page::{Format, Kind, Number, Observed, Page};
use std::io::Write;

pub(super) fn number(page: &mut Page, labels: &str, value: Number) {
    let suffix = match (page.format, page.family.kind) {
        (Format::OpenMetrics, Kind::Counter) => "_total",
        _ => "",
    };
    announce(page);
    line(page, suffix, labels, None, value);
    page.buffer.push(b'\n');
}

pub(super) fn summary(page: &mut Page, labels: &str, sum: f64, count: u64) {
    announce(page);
    line(page, "_sum", labels, None, Number::Float(sum));
    page.buffer.push(b'\n');
    line(page, "_count", labels, None, Number::Count(count));
    page.buffer.push(b'\n');
}

/// Writes the samples of a histogram in the order of their names, as Kong does.
pub(super) fn histogram(page: &mut Page, labels: &str, observed: &Observed<'_>) {
    announce(page);
    let Observed { buckets, .. } = observed;
    let exemplars = match page.format {
        Format::OpenMetrics => observed.exemplars.read(),
        Format::Text | Format::Protobuf | Format::Otlp => Vec::new(),
    };
    let mut total = 0;
    let texts = buckets.texts.iter().map(|text| &**text).chain(["+Inf"]);
    for (bucket, (bound, count)) in texts.zip(buckets.cumulative(observed.cells)).enumerate() {
        total = count;
        if count == 0 && buckets.whole {
            continue;
        }
        line(page, "_bucket", labels, Some(bound), Number::Count(count));
        if let Some(Some(exemplar)) = exemplars.get(bucket) {
            write_exemplar(page, exemplar);
        }
        page.buffer.push(b'\n');
    }
    line(page, "_count", labels, None, Number::Count(total));
    page.buffer.push(b'\n');
    line(page, "_sum", labels, None, Number::Float(observed.sum));
    page.buffer.push(b'\n');
}

/// Writes the help and the type of the current metric, before its first sample.
fn announce(page: &mut Page) {
    if page.family.is_announced {
        return;
    }
    page.family.is_announced = true;
    let kind = match page.family.kind {
        Kind::Counter => "counter",
        Kind::Gauge | Kind::Level => "gauge",
        Kind::Histogram => "histogram",
        Kind::Summary => "summary",
    };
    let is_open = page.format == Format::OpenMetrics;
    if is_open && page.family.kind == Kind::Counter && page.family.name.ends_with("_total") {
        let length = page.family.name.len() - "_total".len();
        page.family.name.truncate(length);
    }
    let mut help = String::with_capacity(page.family.help.len());
    labels::escape(&mut help, &page.family.help, is_open);
    let name = page.family.name.as_bytes();
    let parts = [
        b"# HELP ".as_slice(),
        name,
        b" ",
        help.as_bytes(),
        b"\n# TYPE ",
        name,
        b" ",
        kind.as_bytes(),
        b"\n",
    ];
    for part in parts {
        page.buffer.extend_from_slice(part);
    }
}

/// Writes a sample without the end of its line. `bound` is the upper bound of a bucket.
fn line(page: &mut Page, suffix: &str, labels: &str, bound: Option<&str>, value: Number) {
    let out = &mut page.buffer;
    out.extend_from_slice(page.family.name.as_bytes());
    out.extend_from_slice(suffix.as_bytes());
    if !labels.is_empty() || bound.is_some() {
        out.push(b'{');
        out.extend_from_slice(labels.as_bytes());
        if let Some(bound) = bound {
            if !labels.is_empty() {
                out.push(b',');
            }
            out.extend_from_slice(b"le=\"");
            out.extend_from_slice(bound.as_bytes());
            if page.format == Format::OpenMetrics && bound.bytes().all(|byte| byte.is_ascii_digit())
            {
                // OpenMetrics writes every bound as a floating-point number.
                out.extend_from_slice(b".0");
            }
            out.push(b'"');
        }
        out.push(b'}');
    }
    out.push(b' ');
    write_number(out, value);
}

/// Writes a number as Go writes it, which is what Prometheus reads.
fn write_number(out: &mut Vec<u8>, value: Number) {
    let mut buffer = itoa::Buffer::new();
    let text = match value {
        Number::Count(count) => buffer.format(count),
        Number::Level(level) => buffer.format(level),
        Number::Float(f64::INFINITY) => "+Inf",
        Number::Float(f64::NEG_INFINITY) => "-Inf",
        Number::Float(number) if number.is_nan() => "NaN",
        Number::Float(number) if number.fract() == 0.0 && number.abs() < 1e15 => {
            buffer.format(number as i64)
        }
        Number::Float(number) => {
            // Writing to memory does not fail.
            let _ = write!(out, "{number}");
            return;
        }
    };
    out.extend_from_slice(text.as_bytes());
}

fn write_exemplar(page: &mut Page, exemplar: &Exemplar) {
    let Exemplar { value, .. } = exemplar;
    let (trace, seconds) = (exemplar.trace_id(), exemplar.at.as_secs_f64());
    let _ = write!(
        page.buffer,
        " # {{trace_id=\"{trace}\"}} {value} {seconds:.3}"
    );
}
