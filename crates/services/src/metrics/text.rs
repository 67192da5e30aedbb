//! The text format of Prometheus, version 0.0.4.

use std::fmt::{Display, Write};

/// The type of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Counter,
    Gauge,
    /// A gauge that workers increment and decrement.
    Level,
    Histogram,
}

/// A page of metrics that is being written.
#[derive(Debug, Default)]
pub struct Page {
    text: String,
    /// Name of the current metric.
    name: String,
}

impl Page {
    /// Begins a metric. Its samples follow.
    pub fn family(&mut self, name: &str, help: &str, kind: Kind) {
        name.clone_into(&mut self.name);
        self.text.push_str("# HELP ");
        self.text.push_str(name);
        self.text.push(' ');
        for character in help.chars() {
            match character {
                '\\' => self.text.push_str("\\\\"),
                '\n' => self.text.push_str("\\n"),
                other => self.text.push(other),
            }
        }
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge | Kind::Level => "gauge",
            Kind::Histogram => "histogram",
        };
        self.put(format_args!("\n# TYPE {name} {kind}\n"));
    }

    /// Writes a sample of the current metric.
    pub fn sample(&mut self, labels: &[(&str, &str)], value: f64) {
        self.float("", labels, value);
    }

    /// Writes a histogram of the current metric. `buckets` has the number of values in each bucket, and one more for
    /// those above the last bound.
    pub fn histogram(
        &mut self,
        labels: &[(&str, &str)],
        bounds: &[f64],
        buckets: &[u64],
        sum: f64,
    ) {
        let mut count = 0;
        let bounds = bounds.iter().copied().chain([f64::INFINITY]);
        for (bound, values) in bounds.zip(buckets) {
            count += values;
            self.line("_bucket", labels, Some(bound), count);
        }
        self.float("_sum", labels, sum);
        self.line("_count", labels, None, count);
    }

    /// Writes a sample whose name is that of the metric and a suffix.
    pub(super) fn float(&mut self, suffix: &str, labels: &[(&str, &str)], value: f64) {
        self.line(suffix, labels, None, Float(value));
    }

    /// Writes a sample; `bound` is the upper bound of a bucket.
    pub(super) fn line(
        &mut self,
        suffix: &str,
        labels: &[(&str, &str)],
        bound: Option<f64>,
        value: impl Display,
    ) {
        self.text.push_str(&self.name);
        self.text.push_str(suffix);
        let mut separator = '{';
        for (name, value) in labels {
            self.text.push(separator);
            separator = ',';
            self.text.push_str(name);
            self.text.push_str("=\"");
            self.escape(value);
            self.text.push('"');
        }
        if let Some(bound) = bound {
            let bound = Float(bound);
            self.put(format_args!("{separator}le=\"{bound}\""));
            separator = ',';
        }
        if separator == ',' {
            self.text.push('}');
        }
        self.put(format_args!(" {value}\n"));
    }

    fn escape(&mut self, value: &str) {
        for character in value.chars() {
            match character {
                '\\' => self.text.push_str("\\\\"),
                '"' => self.text.push_str("\\\""),
                '\n' => self.text.push_str("\\n"),
                other => self.text.push(other),
            }
        }
    }

    fn put(&mut self, arguments: std::fmt::Arguments<'_>) {
        let written = self.text.write_fmt(arguments);
        written.expect("writing to memory does not fail");
    }

    pub fn into_text(self) -> String {
        self.text
    }
}

/// A number as Go writes it, which is what Prometheus reads.
struct Float(f64);

impl Display for Float {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            f64::INFINITY => formatter.write_str("+Inf"),
            f64::NEG_INFINITY => formatter.write_str("-Inf"),
            number if number.is_nan() => formatter.write_str("NaN"),
            number => write!(formatter, "{number}"),
        }
    }
}

/// Whether a text is a name of the format: letters, digits, underscores and `further` bytes, not beginning with a digit.
pub(super) fn is_name(text: &str, further: &[u8]) -> bool {
    let starts = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_' || further.contains(&byte);
    let mut bytes = text.bytes();
    bytes.next().is_some_and(starts) && bytes.all(|byte| starts(byte) || byte.is_ascii_digit())
}
