//! Tests of OTLP's form of metrics. An entry of `ScopeMetrics.metrics` alone is a `ScopeMetrics`.

use super::super::{Format, Kind, Metrics, NO_WORKER, Page};
use super::formats::{TRACE, some};
use prost::Message;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};
use testkit::otlp::{Data, Metric, Number, OfScope, Value, attributes};

const HOUR: Duration = Duration::from_secs(3600);

/// Keeps the pieces of a page.
#[derive(Clone, Default)]
struct Pieces(Arc<Mutex<Vec<Vec<u8>>>>);

impl Write for Pieces {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().push(piece.to_vec());
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn written(write: impl FnOnce(&mut Page)) -> Vec<Vec<u8>> {
    let pieces = Pieces::default();
    let since = SystemTime::now() - HOUR;
    let mut page = Page::for_otlp(since, Box::new(pieces.clone()));
    write(&mut page);
    page.finish().unwrap();
    std::mem::take(&mut *pieces.0.lock().unwrap())
}

fn read(pieces: &[Vec<u8>]) -> Vec<Metric> {
    let pieces = pieces.iter().map(|piece| {
        let piece = OfScope::<Metric>::decode(&**piece);
        piece.expect("a piece has whole metrics").items
    });
    pieces.flatten().collect()
}

fn registered() -> Metrics {
    let metrics = Metrics::new(2);
    let counter = metrics.counter("a_total", "As.", &["code", "route"]);
    let counter = counter.unwrap();
    counter.with(&["200", "a \"b\""]).add(0, 3);
    counter.with(&["200", "a \"b\""]).add(1, 4);
    counter.with(&["404", ""]).add(NO_WORKER, 1);
    let gauge = metrics.gauge("b_bytes", "Bs.", &[]).unwrap();
    gauge.with(&[]).set(1.5);
    let level = metrics.level("c", "Cs.", &[]).unwrap();
    level.with(&[]).add(0, -2);
    let histogram = metrics.histogram("d_seconds", "Ds.", &[], &[0.1, 1.0]);
    let histogram = histogram.unwrap().with(&[]);
    histogram.observe(0, 0.1);
    histogram.observe(1, 0.5);
    histogram.observe(1, 2.0);
    metrics
}

#[test]
fn counters_and_levels_are_sums_and_gauges_are_gauges() {
    let pieces = written(|page| registered().write(page));
    let read = read(&pieces);
    let [counter, gauge, level, _] = &read[..] else {
        panic!("{read:?}");
    };
    assert_eq!((&*counter.name, &*counter.description), ("a_total", "As."));
    let Some(Data::Sum(sum)) = &counter.data else {
        panic!("{counter:?}");
    };
    assert_eq!((sum.temporality, sum.is_monotonic), (2, true));
    let [first, second] = &sum.points[..] else {
        panic!("{sum:?}");
    };
    assert_eq!(first.value, Some(Number::Integer(7)));
    assert_eq!(second.value, Some(Number::Integer(1)));
    assert!(first.time >= first.start + HOUR.as_nanos() as u64);
    let labels = attributes(&first.attributes);
    assert_eq!(labels["code"], Value::Text("200".into()));
    assert_eq!(labels["route"], Value::Text("a \"b\"".into()));

    assert_eq!(gauge.unit, "By");
    let Some(Data::Gauge(of)) = &gauge.data else {
        panic!("{gauge:?}");
    };
    assert_eq!(of.points[0].value, Some(Number::Double(1.5)));
    assert_eq!(of.points[0].start, 0);

    let Some(Data::Sum(of)) = &level.data else {
        panic!("{level:?}");
    };
    assert_eq!((of.temporality, of.is_monotonic), (2, false));
    assert_eq!(of.points[0].value, Some(Number::Integer(-2)));
}

#[test]
fn histograms_count_each_value_in_one_bucket() {
    let pieces = written(|page| registered().write(page));
    let histogram = read(&pieces).remove(3);
    assert_eq!((&*histogram.name, &*histogram.unit), ("d_seconds", "s"));
    let Some(Data::Histogram(of)) = &histogram.data else {
        panic!("{histogram:?}");
    };
    assert_eq!(of.temporality, 2);
    let point = &of.points[0];
    assert_eq!((point.count, point.sum), (3, Some(2.6)));
    assert_eq!(point.bounds, [0.1, 1.0]);
    assert_eq!(point.bucket_counts, [1, 1, 1]);
}

#[test]
fn exemplars_have_their_trace() {
    let pieces = written(|page| some().write(page));
    let histogram = read(&pieces)
        .into_iter()
        .find(|one| one.name == "latency_ms");
    let Some(Data::Histogram(of)) = histogram.and_then(|histogram| histogram.data) else {
        panic!("there is no histogram");
    };
    let [exemplar] = &of.points[0].exemplars[..] else {
        panic!("{of:?}");
    };
    assert_eq!((exemplar.value, exemplar.time), (31.0, 1_500_000_000));
    assert_eq!(exemplar.trace_id, TRACE);
}

#[test]
fn summaries_have_a_sum_and_a_count() {
    let pieces = written(|page| {
        page.family("e_seconds", "Es.", Kind::Summary);
        page.summary(&[("stage", "sync")], 2.5, 3);
    });
    let summary = read(&pieces).remove(0);
    let Some(Data::Summary(of)) = &summary.data else {
        panic!("{summary:?}");
    };
    assert_eq!((of.points[0].count, of.points[0].sum), (3, 2.5));
}

#[test]
fn a_large_metric_is_split_into_pieces_that_can_be_sent_alone() {
    const SERIES: u32 = 20_000;
    let pieces = written(|page| {
        page.family("f_total", "Fs.", Kind::Counter);
        for number in 0..SERIES {
            page.count(&[("consumer", &format!("consumer-{number:060}"))], 1);
        }
        page.family("g", "Gs.", Kind::Gauge);
        page.count(&[], 1);
    });
    assert!(pieces.len() > 2, "{} pieces", pieces.len());
    assert!(pieces.iter().all(|piece| piece.len() < 1 << 20));
    let read = read(&pieces);
    assert_eq!(read.last().unwrap().name, "g");
    let points = read.iter().filter_map(|metric| match &metric.data {
        Some(Data::Sum(sum)) => Some(sum.points.len()),
        _ => None,
    });
    assert_eq!(points.sum::<usize>(), SERIES as usize);
}

#[test]
fn a_page_in_memory_has_all_metrics_too() {
    let mut page = Page::in_memory(Format::Otlp);
    registered().write(&mut page);
    let all = OfScope::<Metric>::decode(&*page.into_bytes()).unwrap();
    assert_eq!(all.items.len(), 4);
}
