//! The buckets of a histogram.
//!
//! A histogram is shown with its classic buckets, which have bounds of our choice, and as a native histogram of
//! Prometheus, whose bounds are powers of a factor. Both are counted by one increment: the cells of a series lie between
//! the bounds of both kinds, so that each cell belongs to one classic and to one native bucket.

use super::MetricError;

/// Maximum number of classic buckets of a histogram.
const MAX_BUCKETS: usize = 256;

/// Native buckets per doubling, as a power of two. Four per doubling put a value into a bucket that is 19 % wide.
const SCHEMA: i32 = 2;
const PER_DOUBLING: i32 = 1 << SCHEMA;

/// Binary exponents of the smallest and the largest native bound of times in seconds: 4 µs and 1024 s.
pub(super) const SECONDS: (i32, i32) = (-18, 10);
/// The same for times in whole milliseconds: the values 0 and 1 are apart, and the largest bound is 17 minutes.
pub(super) const MILLISECONDS: (i32, i32) = (-1, 20);

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Buckets {
    /// Upper bounds of the classic buckets. One without a bound follows them.
    pub(super) bounds: Box<[f64]>,
    /// The bounds as the text format writes them.
    pub(super) texts: Box<[Box<str>]>,
    /// Upper bounds of the cells. One without a bound follows them.
    edges: Box<[f64]>,
    /// Number of cells up to each classic bound.
    ends: Box<[usize]>,
    pub(super) native: Option<Native>,
    /// Whether the values are whole numbers. Their sum is kept as one too, and as in Kong, the buckets below the smallest
    /// value are left out.
    pub(super) whole: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Native {
    /// Values up to this are in the zero bucket.
    pub(super) zero_threshold: f64,
    /// The native bucket of each cell. `None` for the cells of the zero bucket.
    indexes: Box<[Option<i32>]>,
}

/// A run of native buckets that are next to each other.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Span {
    /// Index of its first bucket.
    pub(super) start: i32,
    pub(super) counts: Vec<u64>,
}

impl Buckets {
    /// `native` are the exponents of the smallest and the largest native bound.
    pub(super) fn new(
        bounds: &[f64],
        native: Option<(i32, i32)>,
        whole: bool,
    ) -> Result<Self, MetricError> {
        let ascending = bounds.windows(2).all(|pair| pair[0] < pair[1]);
        let finite = bounds.iter().all(|bound| bound.is_finite());
        if !ascending || !finite || bounds.len() > MAX_BUCKETS {
            return Err(MetricError::Bounds);
        }
        let mut edges = bounds.to_vec();
        if let Some((low, high)) = native {
            edges.extend((low * PER_DOUBLING..=high * PER_DOUBLING).map(native_bound));
            edges.sort_by(f64::total_cmp);
            edges.dedup();
        }
        let end = |bound: &f64| edges.partition_point(|edge| edge <= bound);
        let native = native.map(|(low, _)| Native::new(&edges, low));
        Ok(Self {
            bounds: bounds.into(),
            texts: bounds
                .iter()
                .map(|bound| bound.to_string().into())
                .collect(),
            ends: bounds.iter().map(end).collect(),
            edges: edges.into(),
            native,
            whole,
        })
    }

    /// Number of cells of a series, without the one for the sum of the values.
    pub(super) fn cells(&self) -> usize {
        self.edges.len() + 1
    }

    /// Returns the cell of a value.
    #[inline]
    pub(super) fn cell(&self, value: f64) -> usize {
        self.edges.partition_point(|edge| *edge < value)
    }

    /// Returns the classic bucket of a value.
    pub(super) fn bucket(&self, value: f64) -> usize {
        self.bounds.partition_point(|bound| *bound < value)
    }

    /// Returns the number of values up to each classic bound, and their total number last.
    pub(super) fn cumulative(&self, cells: &[u64]) -> impl Iterator<Item = u64> {
        let ends = self.ends.iter().copied().chain([cells.len()]);
        let (mut count, mut from) = (0_u64, 0);
        ends.map(move |end| {
            let own = cells.get(from..end).unwrap_or_default();
            count += own.iter().sum::<u64>();
            from = end;
            count
        })
    }
}

impl Native {
    fn new(edges: &[f64], low: i32) -> Self {
        let zero_threshold = native_bound(low * PER_DOUBLING);
        // What is above the largest bound belongs to further buckets; it is shown in the first of them.
        let above = edges.last().map(|last| native_index(*last) + 1);
        let of_edge = |edge: &f64| (*edge > zero_threshold).then(|| native_index(*edge));
        Self {
            zero_threshold,
            indexes: edges.iter().map(of_edge).chain([above]).collect(),
        }
    }

    pub(super) fn schema() -> i32 {
        SCHEMA
    }

    /// Returns the number of values in the zero bucket, and the runs of buckets that have values.
    pub(super) fn read(&self, cells: &[u64]) -> (u64, Vec<Span>) {
        let mut zeros = 0;
        let mut spans: Vec<Span> = Vec::new();
        for (index, count) in self.indexes.iter().zip(cells.iter().copied()) {
            let Some(index) = *index else {
                zeros += count;
                continue;
            };
            if count == 0 {
                continue;
            }
            let last = spans.last_mut().map(|span| {
                let after = index - span.start - span.counts.len() as i32;
                (after, span)
            });
            match last {
                Some((-1, Span { counts, .. })) => {
                    if let Some(last) = counts.last_mut() {
                        *last += count;
                    }
                }
                Some((0, Span { counts, .. })) => counts.push(count),
                _ => spans.push(Span {
                    start: index,
                    counts: vec![count],
                }),
            }
        }
        (zeros, spans)
    }
}

/// The upper bound of a native bucket.
fn native_bound(index: i32) -> f64 {
    let (doublings, part) = (
        index.div_euclid(PER_DOUBLING),
        index.rem_euclid(PER_DOUBLING),
    );
    // The whole doublings are exact this way.
    let factor = (f64::from(part) / f64::from(PER_DOUBLING)).exp2();
    factor * f64::from(doublings).exp2()
}

/// The native bucket with the smallest bound that is not below this one.
fn native_index(edge: f64) -> i32 {
    let near = (edge.log2() * f64::from(PER_DOUBLING)).round() as i32;
    let reaches = |index: &i32| native_bound(*index) >= edge;
    (near - 1..=near + 1).find(reaches).unwrap_or(near + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn milliseconds() -> Buckets {
        Buckets::new(&[1.0, 2.0, 25.0, 1000.0], Some(MILLISECONDS), true).unwrap()
    }

    #[test]
    fn cells_between_the_bounds_of_both_kinds_are_read_as_either() {
        let buckets = milliseconds();
        let mut cells = vec![0; buckets.cells()];
        for value in [0.0, 1.0, 2.0, 24.0, 26.0, 5e9] {
            cells[buckets.cell(value)] += 1;
        }
        let cumulative: Vec<u64> = buckets.cumulative(&cells).collect();
        assert_eq!(cumulative, [2, 3, 4, 5, 6]);
        let native = buckets.native.as_ref().unwrap();
        let (zeros, spans) = native.read(&cells);
        assert_eq!((native.zero_threshold, zeros), (0.5, 1));
        let starts: Vec<(i32, usize)> = spans
            .iter()
            .map(|span| (span.start, span.counts.len()))
            .collect();
        // 24 and 26 are in the buckets up to 2^4.75 = 26.9, 5e9 in the one after 2^20.
        assert_eq!(starts, [(0, 1), (4, 1), (19, 1), (81, 1)]);
        assert_eq!(spans[2].counts, [2]);
    }

    proptest! {
        #[test]
        fn every_value_is_in_one_classic_and_in_one_native_bucket(values in prop::collection::vec(0.0..1e6_f64, 0..50)) {
            let buckets = milliseconds();
            let mut cells = vec![0; buckets.cells()];
            for value in &values {
                cells[buckets.cell(*value)] += 1;
            }
            for (bound, count) in buckets.bounds.iter().zip(buckets.cumulative(&cells)) {
                let expected = values.iter().filter(|value| *value <= bound).count();
                prop_assert_eq!(count, expected as u64);
            }
            let native = buckets.native.as_ref().unwrap();
            let (zeros, spans) = native.read(&cells);
            let below = values.iter().filter(|value| **value <= native.zero_threshold).count();
            prop_assert_eq!(zeros, below as u64);
            for span in &spans {
                for (index, count) in (span.start..).zip(&span.counts) {
                    let (low, high) = (native_bound(index - 1), native_bound(index));
                    let inside = values.iter().filter(|value| **value > low && **value <= high).count();
                    prop_assert_eq!(*count, inside as u64, "bucket {}", index);
                }
            }
            let in_spans: u64 = spans.iter().flat_map(|span| &span.counts).sum();
            prop_assert_eq!(zeros + in_spans, values.len() as u64);
        }
    }
}
