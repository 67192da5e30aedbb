//! A page of metrics that is being written, in one of the formats that Prometheus reads, or for OTLP.
//!
//! The page is written in pieces: what is complete goes to a sink, so a page of any length needs little memory. The
//! exception is protobuf, whose metrics have their length in front. A metric with very many series is therefore split into
//! several with the same name, which Prometheus reads as one, and receivers of OTLP too.

use super::buckets::Buckets;
use super::exemplar::Exemplars;
use super::otlp::Times;
use super::{labels, otlp, protobuf, text};
use std::io::{self, Write};
use std::time::SystemTime;

/// The type of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Counter,
    Gauge,
    /// A gauge that workers increment and decrement.
    Level,
    Histogram,
    /// A sum and a count.
    Summary,
}

/// A format of the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Format {
    /// The text format, version 0.0.4.
    #[default]
    Text,
    /// OpenMetrics 1.0.0. The names of counters end with `_total` there.
    OpenMetrics,
    /// Messages `io.prometheus.client.MetricFamily`, each with its length in front.
    Protobuf,
    /// The field `metrics` of OTLP's `ScopeMetrics`, once per metric. Each piece has whole metrics.
    Otlp,
}

/// Size of a piece.
const PIECE: usize = 64 << 10;

/// Maximum size of a metric in protobuf. One that is larger is split.
const LARGEST_FAMILY: usize = 4 << 20;

/// Maximum size of a metric in OTLP. Servers of gRPC accept 4 MiB at once by default.
const LARGEST_OF_OTLP: usize = 512 << 10;

/// A page of metrics that is being written.
#[derive(Default)]
pub struct Page {
    pub(super) format: Format,
    pub(super) buffer: Vec<u8>,
    /// Where full pieces go. Without a sink the whole page stays in memory.
    sink: Option<Box<dyn Write + Send>>,
    /// The first error of the sink. Nothing is written after it.
    failure: Option<io::Error>,
    /// The current metric.
    pub(super) family: Current,
    /// The labels of a sample, as a text.
    labels: String,
    /// The times that samples of OTLP have.
    pub(super) times: Times,
}

/// The metric that is being written.
pub(super) struct Current {
    pub(super) name: String,
    pub(super) help: String,
    pub(super) kind: Kind,
    /// Whether its help and type are written. They are only if it has a sample.
    pub(super) is_announced: bool,
    /// Its series in protobuf.
    pub(super) series: Vec<u8>,
}

/// The value of a sample.
#[derive(Debug, Clone, Copy)]
pub(super) enum Number {
    Count(u64),
    Level(i64),
    Float(f64),
}

/// What a histogram has counted.
pub(super) struct Observed<'a> {
    pub(super) buckets: &'a Buckets,
    pub(super) cells: &'a [u64],
    pub(super) sum: f64,
    pub(super) exemplars: &'a Exemplars,
}

impl Default for Current {
    fn default() -> Self {
        Self {
            name: String::new(),
            help: String::new(),
            kind: Kind::Gauge,
            is_announced: false,
            series: Vec::new(),
        }
    }
}

impl Page {
    /// Begins a page whose pieces go to `sink`. [`Self::finish`] writes the last one.
    pub fn new(format: Format, sink: Box<dyn Write + Send>) -> Self {
        Self {
            format,
            sink: Some(sink),
            ..Self::default()
        }
    }

    /// Begins a page for OTLP, whose pieces go to `sink`: each piece can be sent alone. Counters have counted since `since`.
    pub fn for_otlp(since: SystemTime, sink: Box<dyn Write + Send>) -> Self {
        Self {
            times: Times::new(since),
            ..Self::new(Format::Otlp, sink)
        }
    }

    /// Begins a page that stays in memory.
    pub fn in_memory(format: Format) -> Self {
        Self {
            format,
            ..Self::default()
        }
    }

    /// Begins a metric. Its samples follow. A metric without samples is left out.
    pub fn family(&mut self, name: &str, help: &str, kind: Kind) {
        self.end_family();
        let family = &mut self.family;
        name.clone_into(&mut family.name);
        help.clone_into(&mut family.help);
        family.kind = kind;
        family.is_announced = false;
    }

    /// Writes a sample of the current metric, which is a counter or a gauge.
    pub fn sample(&mut self, labels: &[(&str, &str)], value: f64) {
        self.labelled(labels, |page, labels| {
            page.number(labels, Number::Float(value));
        });
    }

    /// Writes a sample of the current metric, which is a counter.
    pub fn count(&mut self, labels: &[(&str, &str)], value: u64) {
        self.labelled(labels, |page, labels| {
            page.number(labels, Number::Count(value));
        });
    }

    /// Writes a sum and a count of the current metric, which is a summary.
    pub fn summary(&mut self, labels: &[(&str, &str)], sum: f64, count: u64) {
        self.labelled(labels, |page, labels| {
            match page.format {
                Format::Protobuf => protobuf::summary(page, labels, sum, count),
                Format::Otlp => otlp::summary(page, labels, sum, count),
                Format::Text | Format::OpenMetrics => text::summary(page, labels, sum, count),
            }
            page.flush_when_full();
        });
    }

    /// Writes a histogram of the current metric that is counted elsewhere. `cells` has the number of values in each bucket,
    /// and one more for those above the last bound. With bounds that are not ascending, nothing is written.
    pub fn buckets(&mut self, labels: &[(&str, &str)], bounds: &[f64], cells: &[u64], sum: f64) {
        let Ok(buckets) = Buckets::new(bounds, None, false) else {
            return;
        };
        let observed = Observed {
            buckets: &buckets,
            cells,
            sum,
            exemplars: &Exemplars::default(),
        };
        self.labelled(labels, |page, labels| page.histogram(labels, &observed));
    }

    fn labelled(&mut self, labels: &[(&str, &str)], write: impl FnOnce(&mut Self, &str)) {
        let mut text = std::mem::take(&mut self.labels);
        text.clear();
        for (name, value) in labels {
            labels::push(&mut text, name, value);
        }
        write(self, &text);
        self.labels = text;
    }

    /// Writes a sample whose labels are a text.
    pub(super) fn number(&mut self, labels: &str, value: Number) {
        match self.format {
            Format::Protobuf => protobuf::number(self, labels, value),
            Format::Otlp => otlp::number(self, labels, value),
            Format::Text | Format::OpenMetrics => text::number(self, labels, value),
        }
        self.flush_when_full();
    }

    pub(super) fn histogram(&mut self, labels: &str, observed: &Observed<'_>) {
        match self.format {
            Format::Protobuf => protobuf::histogram(self, labels, observed),
            Format::Otlp => otlp::histogram(self, labels, observed),
            Format::Text | Format::OpenMetrics => text::histogram(self, labels, observed),
        }
        self.flush_when_full();
    }

    fn end_family(&mut self) {
        match self.format {
            Format::Protobuf => protobuf::end_family(self),
            Format::Otlp => otlp::end_family(self),
            Format::Text | Format::OpenMetrics => {}
        }
    }

    /// Ends the page and writes its last piece. Returns the first error of the sink.
    pub fn finish(mut self) -> io::Result<()> {
        self.end();
        self.flush();
        let flushed = self.sink.as_mut().map_or(Ok(()), |sink| sink.flush());
        self.failure.map_or(flushed, Err)
    }

    /// Ends a page in memory and returns it.
    pub fn into_bytes(mut self) -> Vec<u8> {
        self.end();
        self.buffer
    }

    /// Ends a page in memory and returns its text. A page in protobuf is no text, so the result is empty.
    pub fn into_text(self) -> String {
        String::from_utf8(self.into_bytes()).unwrap_or_default()
    }

    fn end(&mut self) {
        self.end_family();
        if self.format == Format::OpenMetrics {
            self.buffer.extend_from_slice(b"# EOF\n");
        }
    }

    fn flush_when_full(&mut self) {
        let largest = match self.format {
            Format::Otlp => LARGEST_OF_OTLP,
            _ => LARGEST_FAMILY,
        };
        if self.family.series.len() >= largest {
            self.end_family();
        }
        if self.buffer.len() >= PIECE {
            self.flush();
        }
    }

    fn flush(&mut self) {
        let Some(sink) = &mut self.sink else {
            return;
        };
        if self.failure.is_none()
            && let Err(error) = sink.write_all(&self.buffer)
        {
            self.failure = Some(error);
        }
        self.buffer.clear();
    }
}
