//! Counters, gauges and histograms with labels, for the formats of Prometheus and for OTLP.
//!
//! The contract:
//!
//! - A plugin registers a metric once and finds the series of its labels once. It keeps the series and increments it
//!   without a look-up, a lock or an allocation.
//! - What one event increments in several series belongs into a [`Group`]: its cells are next to each other.
//! - Each worker increments cells of its own, in cache lines that no other worker writes. A worker names itself by its
//!   number. Every other thread uses [`NO_WORKER`], and shares one more set of cells. A wrong number costs time, but counts
//!   correctly.
//! - A scrape reads the cells without stopping anyone, so the values of one scrape are of slightly different times.
//! - Each metric has a maximum number of series. Label values beyond it are counted in one series whose label values are
//!   all `other`, so that clients cannot fill the memory with new label values.
//! - A removed series disappears from scrapes. Whoever still holds it can increment it without effect.
//!
//! A set of series costs 8 bytes per series, cell and worker: series share cache lines, workers do not.

mod buckets;
mod cells;
mod exemplar;
mod family;
mod group;
mod labels;
mod otlp;
mod page;
mod protobuf;
mod series;
#[cfg(test)]
mod tests;
mod text;

pub use exemplar::{Noted, TraceId};
pub use family::{Counter, Family, Gauge, Histogram, Level, Milliseconds, OTHER};
pub use group::{Group, GroupCells, Groups, Placement};
pub use page::{Format, Kind, Page};

use buckets::Buckets;
use family::{Definition, Table};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::SystemTime;

/// Number of a thread that is no worker of the data plane.
pub const NO_WORKER: usize = usize::MAX;
/// Default maximum number of series of a metric (`metrics_max_series`).
pub const MAX_SERIES: usize = 100_000;
/// A histogram may have this part of the maximum number of series, because each of its series has about 20 samples.
const HISTOGRAM_PART: usize = 5;

/// Registry of the node's metrics. Clones share it.
#[derive(Clone)]
pub struct Metrics(Arc<Inner>);

struct Inner {
    settings: Settings,
    /// When counting began.
    since: SystemTime,
    registry: Mutex<Registry>,
}

/// Priority of a thread that renders metrics: it gets a tenth of the time of a worker that wants the same CPU.
const NICE: i32 = 10;

/// Lowers the priority of the calling thread, which renders metrics, so that it delays no request.
pub fn lower_priority() {
    // Without the right to do so it has the priority of the workers.
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICE);
}

/// What the settings say about metrics.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Number of workers.
    pub workers: usize,
    /// Maximum number of series of a metric.
    pub max_series: usize,
    /// Whether histograms with many series are native histograms too, in protobuf. They take about five times the memory
    /// then.
    pub native: bool,
}

#[derive(Default)]
struct Registry {
    tables: BTreeMap<Box<str>, Arc<Table>>,
    sources: Vec<Weak<dyn Source>>,
}

/// Values that are kept elsewhere and read at each scrape. Its metrics must have names of their own.
pub trait Source: Send + Sync {
    fn collect(&self, page: &mut Page);
}

/// Why a metric cannot be registered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MetricError {
    #[error("\"{0}\" is not a valid name of a metric")]
    Name(Box<str>),
    #[error("\"{0}\" is not a valid name of a label, or occurs twice")]
    Label(Box<str>),
    #[error("the bounds of a histogram must be at most 256 finite numbers in ascending order")]
    Bounds,
    #[error("the metric {0} is already registered with another type, other labels or other bounds")]
    Conflict(Box<str>),
}

impl Metrics {
    /// Makes a registry for this number of workers, with the default settings.
    pub fn new(workers: usize) -> Self {
        Self::with(Settings {
            workers,
            max_series: MAX_SERIES,
            native: false,
        })
    }

    pub fn with(settings: Settings) -> Self {
        Self(Arc::new(Inner {
            settings,
            since: SystemTime::now(),
            registry: Mutex::default(),
        }))
    }

    /// Registers a metric that only grows. If it is registered already, returns the existing one; this holds for all
    /// kinds of metrics.
    pub fn counter(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
    ) -> Result<Family<Counter>, MetricError> {
        self.register(
            Kind::Counter,
            (name, help),
            labels,
            None,
            self.0.settings.workers,
        )
    }

    /// Registers a metric that is set to a value. Its series have one cell that all threads share.
    pub fn gauge(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
    ) -> Result<Family<Gauge>, MetricError> {
        self.register(Kind::Gauge, (name, help), labels, None, 0)
    }

    /// Registers a metric that workers increment and decrement, such as a number of connections.
    pub fn level(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
    ) -> Result<Family<Level>, MetricError> {
        self.register(
            Kind::Level,
            (name, help),
            labels,
            None,
            self.0.settings.workers,
        )
    }

    /// Registers a histogram of times in seconds. `bounds` are the upper bounds of its buckets; a bucket without a bound is
    /// added.
    pub fn histogram(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
        bounds: &[f64],
    ) -> Result<Family<Histogram>, MetricError> {
        let buckets = Buckets::new(bounds, Some(buckets::SECONDS), false)?;
        self.register_histogram((name, help), labels, buckets)
    }

    /// Registers a histogram of times in whole milliseconds, which may have very many series. As in Kong, the buckets below
    /// the smallest value are left out.
    pub fn millisecond_histogram(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
        bounds: &[f64],
    ) -> Result<Family<Milliseconds>, MetricError> {
        let native = self.0.settings.native.then_some(buckets::MILLISECONDS);
        let buckets = Buckets::new(bounds, native, true)?;
        self.register_histogram((name, help), labels, buckets)
    }

    fn register_histogram<S>(
        &self,
        name: (&str, &str),
        labels: &[&str],
        buckets: Buckets,
    ) -> Result<Family<S>, MetricError> {
        let shards = self.0.settings.workers;
        self.register(Kind::Histogram, name, labels, Some(buckets), shards)
    }

    /// Lays out groups that have cells for this number of counters, from position 0 on, and for these histograms. Returns
    /// where the histograms are in a group.
    pub fn groups<const N: usize>(
        &self,
        counters: usize,
        histograms: [&Family<Milliseconds>; N],
    ) -> (Groups, [Arc<Placement>; N]) {
        let buckets = histograms.map(Family::buckets);
        Groups::new(self.0.settings.workers, counters, buckets)
    }

    /// Adds values that are read at each scrape, until the source is dropped.
    pub fn add_source(&self, source: Weak<dyn Source>) {
        let mut registry = self.registry();
        registry.sources.retain(|known| known.strong_count() > 0);
        registry.sources.push(source);
    }

    /// Returns the time since when counters have counted.
    pub fn since(&self) -> SystemTime {
        self.0.since
    }

    /// Returns all metrics in the text format, version 0.0.4, sorted by name; those of sources come last.
    pub fn render(&self) -> String {
        let mut page = Page::in_memory(Format::Text);
        self.write(&mut page);
        page.into_text()
    }

    /// Writes all metrics to a page.
    pub fn write(&self, page: &mut Page) {
        let registry = self.registry();
        let tables: Vec<Arc<Table>> = registry.tables.values().cloned().collect();
        let sources: Vec<_> = registry.sources.iter().filter_map(Weak::upgrade).collect();
        drop(registry);
        for table in tables {
            table.write(page);
        }
        for source in sources {
            source.collect(page);
        }
    }

    fn register<S>(
        &self,
        kind: Kind,
        (name, help): (&str, &str),
        labels: &[&str],
        buckets: Option<Buckets>,
        workers: usize,
    ) -> Result<Family<S>, MetricError> {
        check_names(kind, name, labels)?;
        let definition = Definition {
            name: name.into(),
            help: help.into(),
            kind,
            labels: labels.iter().map(|label| (*label).into()).collect(),
            buckets: buckets.map(Arc::new),
        };
        let mut registry = self.registry();
        if let Some(table) = registry.tables.get(name) {
            return if table.definition.is_same(&definition) {
                Ok(Family::new(table.clone()))
            } else {
                Err(MetricError::Conflict(name.into()))
            };
        }
        let max_series = match kind {
            Kind::Histogram => self.0.settings.max_series / HISTOGRAM_PART,
            _ => self.0.settings.max_series,
        };
        let table = Arc::new(Table::new(definition, workers, max_series.max(1)));
        registry.tables.insert(name.into(), table.clone());
        Ok(Family::new(table))
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        let registry = self.0.registry.lock();
        registry.unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let registered = self.registry().tables.len();
        formatter
            .debug_struct("Metrics")
            .field("registered", &registered)
            .finish()
    }
}

fn check_names(kind: Kind, name: &str, labels: &[&str]) -> Result<(), MetricError> {
    if !is_name(name, b":") {
        return Err(MetricError::Name(name.into()));
    }
    for (position, label) in labels.iter().enumerate() {
        // The text format uses `le` itself, and names with two underscores are for the use of Prometheus.
        let reserved = label.starts_with("__") || (kind == Kind::Histogram && *label == "le");
        if reserved || !is_name(label, b"") || labels[..position].contains(label) {
            return Err(MetricError::Label((*label).into()));
        }
    }
    Ok(())
}

/// Whether a text is a name of the format: letters, digits, underscores and `further` bytes, not beginning with a digit.
fn is_name(text: &str, further: &[u8]) -> bool {
    let starts = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_' || further.contains(&byte);
    let mut bytes = text.bytes();
    bytes.next().is_some_and(starts) && bytes.all(|byte| starts(byte) || byte.is_ascii_digit())
}
