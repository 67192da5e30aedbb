//! A metric with its series, and what holders of a series can do with it.

use super::buckets::Buckets;
use super::cells::{Pool, View};
use super::labels::{self, Labels};
use super::page::{Kind, Number, Observed, Page};
use super::series::Series;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Label value of the series that counts what exceeds the maximum number of series.
pub const OTHER: &str = "other";

/// Number of series that are read under one lock, so that a scrape never keeps a worker waiting for long.
const AT_ONCE: usize = 128;

/// What a metric is registered with.
pub(super) struct Definition {
    pub(super) name: Box<str>,
    pub(super) help: Box<str>,
    pub(super) kind: Kind,
    pub(super) labels: Box<[Box<str>]>,
    /// The buckets of a histogram.
    pub(super) buckets: Option<Arc<Buckets>>,
}

/// The series of a metric, by their labels as a text.
pub(super) struct Table {
    pub(super) definition: Definition,
    pool: Arc<Pool>,
    max_series: usize,
    series: Mutex<BTreeMap<Arc<str>, Arc<Series>>>,
    /// Number of series.
    count: AtomicUsize,
    /// Whether the metric is left out of the page.
    is_hidden: AtomicBool,
    /// Whether the log says that the maximum number of series is reached.
    reported: AtomicBool,
}

/// A registered metric. `S` is the kind of its series.
pub struct Family<S> {
    table: Arc<Table>,
    of: PhantomData<fn() -> S>,
}

/// A series that only grows.
#[derive(Clone)]
pub struct Counter(Held);

/// A series that is set to a value.
#[derive(Clone)]
pub struct Gauge(Held);

/// A series that workers increment and decrement.
#[derive(Clone)]
pub struct Level(Held);

/// A series that counts values by size.
#[derive(Clone)]
pub struct Histogram(Held);

/// A series that counts whole numbers by size.
#[derive(Clone)]
pub struct Milliseconds(Held);

/// A series with the cells that its handles increment.
#[derive(Clone)]
struct Held {
    series: Arc<Series>,
    cells: View,
}

macro_rules! handles {
    ($($handle:ident),*) => {
        $(
            impl Family<$handle> {
                /// Returns the series of these label values, in the order of the label names. Missing values are empty,
                /// and further ones are ignored. It takes a lock and allocates, so keep the series.
                pub fn with(&self, labels: &[&str]) -> $handle {
                    let series = self.find(labels);
                    let cells = series.own_cells(&self.table.pool);
                    $handle(Held { series, cells })
                }
            }
        )*
    };
}

handles!(Counter, Gauge, Level, Histogram, Milliseconds);

impl<S> Family<S> {
    pub(super) fn new(table: Arc<Table>) -> Self {
        Self {
            table,
            of: PhantomData,
        }
    }

    pub(super) fn find(&self, labels: &[&str]) -> Arc<Series> {
        self.table.find(labels)
    }

    /// Removes the series of these label values. A later series with the same values starts at zero.
    pub fn remove(&self, labels: &[&str]) {
        let labels = self.table.labels(labels);
        let mut series = self.table.series();
        let removed = series.remove(labels.as_str());
        self.table.count.store(series.len(), Ordering::Relaxed);
        drop(series);
        // The cells go back to the pool without the lock.
        drop(removed);
    }

    /// Removes all series whose label values meet a condition, for example those of a deleted route.
    pub fn remove_if(&self, condition: impl Fn(&[Cow<'_, str>]) -> bool) {
        self.table.remove_if(|series| {
            let values: Vec<Cow<'_, str>> =
                Labels(&series.labels).map(|(_, value)| value).collect();
            condition(&values)
        });
    }

    /// Removes the series that nobody holds, except for the one that counts what exceeds the maximum number.
    pub fn remove_unheld(&self) {
        let other = self.table.other();
        // Who finds the series does so under the lock, so nobody can take it in the meantime.
        self.table
            .remove_if(|series| Arc::strong_count(series) == 1 && *series.labels != *other);
    }

    /// Whether the metric has so many series that only a quarter of the maximum is left. What clients can multiply, such as
    /// consumers, must not take the last ones.
    pub fn is_nearly_full(&self) -> bool {
        let Table {
            count, max_series, ..
        } = &*self.table;
        count.load(Ordering::Relaxed) >= max_series - max_series / 4
    }

    /// Shows the metric, or leaves it out of the page. It counts in both cases.
    pub fn show(&self, shows: bool) {
        self.table.is_hidden.store(!shows, Ordering::Relaxed);
    }

    /// Returns the number of series.
    pub fn len(&self) -> usize {
        self.table.count.load(Ordering::Relaxed)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Family<Level> {
    /// Returns the sum over all series.
    pub fn total(&self) -> i64 {
        let series = self.table.series();
        let values = series.values().map(|series| series.value() as i64);
        values.fold(0, i64::wrapping_add)
    }
}

impl<S> Clone for Family<S> {
    fn clone(&self) -> Self {
        Self::new(self.table.clone())
    }
}

impl Family<Milliseconds> {
    pub(super) fn buckets(&self) -> Arc<Buckets> {
        let buckets = self.table.definition.buckets.clone();
        buckets.expect("a histogram has buckets")
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
        self.0.series.value()
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
        f64::from_bits(self.0.series.value())
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
        self.0.series.value() as i64
    }
}

impl Histogram {
    /// Counts a value. What is not a number is ignored.
    #[inline]
    pub fn observe(&self, worker: usize, value: f64) {
        let Some(buckets) = &self.0.series.buckets else {
            return;
        };
        if value.is_nan() {
            return;
        }
        let cells = &self.0.cells;
        let cell = cells.cell(worker, buckets.cell(value));
        cell.fetch_add(1, Ordering::Relaxed);
        add_float(cells, worker, buckets.cells(), value);
    }

    /// Returns the number of values over all workers.
    pub fn count(&self) -> u64 {
        self.0.count()
    }

    /// Returns the sum of the values over all workers.
    pub fn sum(&self) -> f64 {
        self.0.series.read(&mut Vec::new())
    }
}

impl Milliseconds {
    #[inline]
    pub fn observe(&self, worker: usize, value: u64) {
        let Some(buckets) = &self.0.series.buckets else {
            return;
        };
        let cells = &self.0.cells;
        let bucket = cells.cell(worker, buckets.cell(value as f64));
        bucket.fetch_add(1, Ordering::Relaxed);
        let sum = cells.cell(worker, buckets.cells());
        sum.fetch_add(value, Ordering::Relaxed);
    }

    /// Returns the number of values over all workers.
    pub fn count(&self) -> u64 {
        self.0.count()
    }
}

impl Held {
    /// Returns the number of values of a histogram.
    fn count(&self) -> u64 {
        let mut cells = Vec::new();
        self.series.read(&mut cells);
        cells.iter().sum()
    }
}

fn add_float(cells: &View, worker: usize, cell: usize, by: f64) {
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

impl Definition {
    /// Whether both describe the same metric. The help may differ.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.kind == other.kind && self.labels == other.labels && self.buckets == other.buckets
    }

    /// Number of cells of a series, per worker.
    fn width(&self) -> usize {
        // A histogram has one more for the sum of the values.
        self.buckets
            .as_ref()
            .map_or(1, |buckets| buckets.cells() + 1)
    }
}

impl Table {
    pub(super) fn new(definition: Definition, workers: usize, max_series: usize) -> Self {
        Self {
            pool: Pool::new(workers, definition.width()),
            definition,
            max_series,
            series: Mutex::default(),
            count: AtomicUsize::new(0),
            is_hidden: AtomicBool::new(false),
            reported: AtomicBool::new(false),
        }
    }

    fn find(&self, labels: &[&str]) -> Arc<Series> {
        let mut labels = self.labels(labels);
        let mut series = self.series();
        if let Some(known) = series.get(labels.as_str()) {
            return known.clone();
        }
        if series.len() >= self.max_series {
            if !self.reported.swap(true, Ordering::Relaxed) {
                let (name, limit) = (&self.definition.name, self.max_series);
                tracing::warn!(
                    "the metric {name} has {limit} series: further ones are counted as \"{OTHER}\""
                );
            }
            labels = self.other();
            if let Some(known) = series.get(labels.as_str()) {
                return known.clone();
            }
        }
        let labels: Arc<str> = labels.into();
        let buckets = self.definition.buckets.clone();
        let made = Arc::new(Series::new(labels.clone(), buckets));
        series.insert(labels, made.clone());
        self.count.store(series.len(), Ordering::Relaxed);
        made
    }

    /// Returns the labels with these values as a text.
    fn labels(&self, values: &[&str]) -> String {
        let mut text = String::with_capacity(128);
        for (position, name) in self.definition.labels.iter().enumerate() {
            let value = values.get(position).copied().unwrap_or_default();
            labels::push(&mut text, name, value);
        }
        text
    }

    /// Returns the labels of the series for what exceeds the maximum number.
    fn other(&self) -> String {
        let values: Vec<&str> = self.definition.labels.iter().map(|_| OTHER).collect();
        self.labels(&values)
    }

    /// Removes the series that meet a condition.
    fn remove_if(&self, condition: impl Fn(&Arc<Series>) -> bool) {
        let mut after = None;
        loop {
            let mut series = self.series();
            let some = series.range::<str, _>(range(&after)).take(AT_ONCE);
            let some: Vec<(Arc<str>, bool)> = some
                .map(|(labels, series)| (labels.clone(), condition(series)))
                .collect();
            let removed = some.iter().filter(|(_, is_removed)| *is_removed);
            let removed: Vec<_> = removed
                .filter_map(|(labels, _)| series.remove(labels))
                .collect();
            self.count.store(series.len(), Ordering::Relaxed);
            drop(series);
            drop(removed);
            match some.into_iter().next_back() {
                Some((last, _)) => after = Some(last),
                None => return,
            }
        }
    }

    pub(super) fn write(&self, page: &mut Page) {
        if self.is_hidden.load(Ordering::Relaxed) {
            return;
        }
        let Definition {
            name, help, kind, ..
        } = &self.definition;
        page.family(name, help, *kind);
        let (mut after, mut cells) = (None, Vec::new());
        let mut some: Vec<Arc<Series>> = Vec::with_capacity(AT_ONCE);
        loop {
            let series = self.series();
            let next = series.range::<str, _>(range(&after)).take(AT_ONCE);
            some.extend(next.map(|(_, series)| series.clone()));
            drop(series);
            let Some(last) = some.last() else {
                return;
            };
            after = Some(last.labels.clone());
            for one in some.drain(..) {
                self.write_series(page, &one, &mut cells);
            }
        }
    }

    fn write_series(&self, page: &mut Page, series: &Series, cells: &mut Vec<u64>) {
        let labels = &*series.labels;
        let sum = series.read(cells);
        if let Some(buckets) = &series.buckets {
            let observed = Observed {
                buckets,
                cells,
                sum,
                exemplars: &series.exemplars,
            };
            return page.histogram(labels, &observed);
        }
        let value = cells.first().copied().unwrap_or_default();
        page.number(
            labels,
            match self.definition.kind {
                Kind::Gauge => Number::Float(f64::from_bits(value)),
                Kind::Level => Number::Level(value as i64),
                _ => Number::Count(value),
            },
        );
    }

    fn series(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Arc<Series>>> {
        self.series.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The labels after these, or all.
fn range(after: &Option<Arc<str>>) -> (Bound<&str>, Bound<&str>) {
    let start = after.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
    (start, Bound::Unbounded)
}
