//! A metric with its series, and what holders of a series can do with it.

use super::cells::{Cells, Pool};
use super::text::{Kind, Page};
use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Label value of the series that counts what exceeds the maximum number of series.
const OTHER: &str = "other";

/// What a metric is registered with.
pub(super) struct Definition {
    pub(super) name: Box<str>,
    pub(super) help: Box<str>,
    pub(super) kind: Kind,
    pub(super) labels: Box<[Box<str>]>,
    /// Upper bounds of the buckets of a histogram.
    pub(super) bounds: Box<[f64]>,
}

/// The series of a metric.
pub(super) struct Table {
    pub(super) definition: Definition,
    pool: Arc<Pool>,
    max_series: usize,
    series: Mutex<HashMap<Labels, Arc<Series>>>,
    /// Whether the log says that the maximum number of series is reached.
    reported: AtomicBool,
}

type Labels = Arc<[Box<str>]>;

struct Series {
    labels: Labels,
    bounds: Box<[f64]>,
    cells: Cells,
}

/// A registered metric. `S` is the kind of its series.
pub struct Family<S> {
    table: Arc<Table>,
    of: PhantomData<fn() -> S>,
}

/// A series that only grows.
#[derive(Clone)]
pub struct Counter(Arc<Series>);

/// A series that is set to a value.
#[derive(Clone)]
pub struct Gauge(Arc<Series>);

/// A series that workers increment and decrement.
#[derive(Clone)]
pub struct Level(Arc<Series>);

/// A series that counts values by size.
#[derive(Clone)]
pub struct Histogram(Arc<Series>);

/// A handle of a series.
trait Handle {
    fn new(series: Arc<Series>) -> Self;
}

macro_rules! handles {
    ($($handle:ident),*) => {
        $(
            impl Handle for $handle {
                fn new(series: Arc<Series>) -> Self {
                    Self(series)
                }
            }

            impl Family<$handle> {
                /// Returns the series of these label values, in the order of the label names. Missing values are empty,
                /// and further ones are ignored. It takes a lock and allocates, so keep the series.
                pub fn with(&self, labels: &[&str]) -> $handle {
                    self.find(labels)
                }
            }
        )*
    };
}

handles!(Counter, Gauge, Level, Histogram);

impl<S> Family<S> {
    pub(super) fn new(table: Arc<Table>) -> Self {
        Self {
            table,
            of: PhantomData,
        }
    }

    fn find(&self, labels: &[&str]) -> S
    where
        S: Handle,
    {
        S::new(self.table.find(labels))
    }

    /// Removes the series of these label values. A later series with the same values starts at zero.
    pub fn remove(&self, labels: &[&str]) {
        let labels = self.table.labels(labels);
        let removed = self.table.series().remove(&labels);
        // The cells go back to the pool without the lock.
        drop(removed);
    }

    /// Removes all series whose label values meet a condition, for example those of a deleted route.
    pub fn remove_if(&self, condition: impl Fn(&[Box<str>]) -> bool) {
        let mut series = self.table.series();
        let removed: Vec<_> = series.extract_if(|labels, _| condition(labels)).collect();
        drop(series);
        drop(removed);
    }

    /// Returns the number of series.
    pub fn len(&self) -> usize {
        self.table.series().len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<S> Clone for Family<S> {
    fn clone(&self) -> Self {
        Self::new(self.table.clone())
    }
}

impl Counter {
    #[inline]
    pub fn add(&self, worker: usize, count: u64) {
        let cell = self.0.cells.cell(worker, 0);
        cell.fetch_add(count, Ordering::Relaxed);
    }

    /// Returns the sum over all workers.
    pub fn value(&self) -> u64 {
        self.0.cells.sum(0)
    }
}

impl Gauge {
    pub fn set(&self, value: f64) {
        let cell = self.0.cells.cell(0, 0);
        cell.store(value.to_bits(), Ordering::Relaxed);
    }

    pub fn add(&self, by: f64) {
        add_float(&self.0.cells, 0, 0, by);
    }

    pub fn value(&self) -> f64 {
        f64::from_bits(self.0.cells.sum(0))
    }
}

impl Level {
    #[inline]
    pub fn add(&self, worker: usize, by: i64) {
        let cell = self.0.cells.cell(worker, 0);
        cell.fetch_add(by as u64, Ordering::Relaxed);
    }

    /// Returns the sum over all workers.
    pub fn value(&self) -> i64 {
        self.0.cells.sum(0) as i64
    }
}

impl Histogram {
    /// Counts a value. What is not a number is ignored.
    #[inline]
    pub fn observe(&self, worker: usize, value: f64) {
        if value.is_nan() {
            return;
        }
        let Series { bounds, cells, .. } = &*self.0;
        let bucket = bounds.partition_point(|bound| *bound < value);
        cells.cell(worker, bucket).fetch_add(1, Ordering::Relaxed);
        add_float(cells, worker, bounds.len() + 1, value);
    }

    /// Returns the number of values over all workers.
    pub fn count(&self) -> u64 {
        let buckets = 0..=self.0.bounds.len();
        buckets.map(|bucket| self.0.cells.sum(bucket)).sum()
    }

    /// Returns the sum of the values over all workers.
    pub fn sum(&self) -> f64 {
        self.0.sum_of_values()
    }
}

fn add_float(cells: &Cells, worker: usize, cell: usize, by: f64) {
    let cell = cells.cell(worker, cell);
    let mut bits = cell.load(Ordering::Relaxed);
    loop {
        let sum = (f64::from_bits(bits) + by).to_bits();
        match cell.compare_exchange_weak(bits, sum, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return,
            Err(changed) => bits = changed,
        }
    }
}

impl Series {
    fn sum_of_values(&self) -> f64 {
        let shards = self.cells.shards(self.bounds.len() + 1);
        shards.map(f64::from_bits).sum()
    }
}

impl Definition {
    /// Whether both describe the same metric. The help may differ.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.kind == other.kind && self.labels == other.labels && self.bounds == other.bounds
    }

    /// Number of cells of a series, per worker.
    fn width(&self) -> usize {
        match self.kind {
            Kind::Counter | Kind::Gauge | Kind::Level => 1,
            // The buckets, the one without a bound, and the sum of the values.
            Kind::Histogram => self.bounds.len() + 2,
        }
    }
}

impl Table {
    pub(super) fn new(definition: Definition, workers: usize, max_series: usize) -> Self {
        Self {
            pool: Pool::new(workers, definition.width()),
            definition,
            max_series,
            series: Mutex::default(),
            reported: AtomicBool::new(false),
        }
    }

    fn find(&self, labels: &[&str]) -> Arc<Series> {
        let mut labels = self.labels(labels);
        let mut series = self.series();
        if let Some(known) = series.get(&labels) {
            return known.clone();
        }
        if series.len() >= self.max_series {
            if !self.reported.swap(true, Ordering::Relaxed) {
                let (name, limit) = (&self.definition.name, self.max_series);
                tracing::warn!(
                    "the metric {name} has {limit} series: further ones are counted as \"{OTHER}\""
                );
            }
            labels = labels.iter().map(|_| OTHER.into()).collect();
        }
        let made = series.entry(labels.clone()).or_insert_with(|| {
            Arc::new(Series {
                labels,
                bounds: self.definition.bounds.clone(),
                cells: self.pool.take(),
            })
        });
        made.clone()
    }

    /// Returns one value per label name.
    fn labels(&self, values: &[&str]) -> Labels {
        let names = 0..self.definition.labels.len();
        names
            .map(|position| values.get(position).copied().unwrap_or_default().into())
            .collect()
    }

    pub(super) fn write(&self, page: &mut Page) {
        let mut series: Vec<Arc<Series>> = self.series().values().cloned().collect();
        series.sort_by(|one, other| one.labels.cmp(&other.labels));
        let Definition {
            name, help, kind, ..
        } = &self.definition;
        page.family(name, help, *kind);
        for one in series {
            self.write_series(page, &one);
        }
    }

    fn write_series(&self, page: &mut Page, series: &Series) {
        let names = self.definition.labels.iter();
        let labels: Vec<(&str, &str)> = names
            .zip(series.labels.iter())
            .map(|(name, value)| (&**name, &**value))
            .collect();
        let cells = &series.cells;
        match self.definition.kind {
            Kind::Counter => page.line("", &labels, None, cells.sum(0)),
            Kind::Level => page.line("", &labels, None, cells.sum(0) as i64),
            Kind::Gauge => page.sample(&labels, f64::from_bits(cells.sum(0))),
            Kind::Histogram => {
                let mut count = 0;
                for (bucket, bound) in series.bounds.iter().enumerate() {
                    count += cells.sum(bucket);
                    page.line("_bucket", &labels, Some(*bound), count);
                }
                count += cells.sum(series.bounds.len());
                page.line("_bucket", &labels, Some(f64::INFINITY), count);
                page.float("_sum", &labels, series.sum_of_values());
                page.line("_count", &labels, None, count);
            }
        }
    }

    fn series(&self) -> MutexGuard<'_, HashMap<Labels, Arc<Series>>> {
        self.series.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
