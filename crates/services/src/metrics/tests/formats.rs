//! The formats, read back by readers that share no code with the writers.

use super::with_max_series;
use crate::metrics::{Format, Kind, Metrics, Noted, Page};
use crate::workers::this_worker;
use prost::Message;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The messages of `io/prometheus/client/metrics.proto`, as far as they are used.
mod proto {
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct MetricFamily {
        #[prost(string, tag = "1")]
        pub name: String,
        #[prost(string, tag = "2")]
        pub help: String,
        #[prost(int32, tag = "3")]
        pub kind: i32,
        #[prost(message, repeated, tag = "4")]
        pub metric: Vec<Metric>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Metric {
        #[prost(message, repeated, tag = "1")]
        pub label: Vec<LabelPair>,
        #[prost(message, optional, tag = "2")]
        pub gauge: Option<Value>,
        #[prost(message, optional, tag = "3")]
        pub counter: Option<Value>,
        #[prost(message, optional, tag = "4")]
        pub summary: Option<Summary>,
        #[prost(message, optional, tag = "7")]
        pub histogram: Option<Histogram>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct LabelPair {
        #[prost(string, tag = "1")]
        pub name: String,
        #[prost(string, tag = "2")]
        pub value: String,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Value {
        #[prost(double, tag = "1")]
        pub value: f64,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Summary {
        #[prost(uint64, tag = "1")]
        pub sample_count: u64,
        #[prost(double, tag = "2")]
        pub sample_sum: f64,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Histogram {
        #[prost(uint64, tag = "1")]
        pub sample_count: u64,
        #[prost(double, tag = "2")]
        pub sample_sum: f64,
        #[prost(message, repeated, tag = "3")]
        pub bucket: Vec<Bucket>,
        #[prost(sint32, tag = "5")]
        pub schema: i32,
        #[prost(double, tag = "6")]
        pub zero_threshold: f64,
        #[prost(uint64, tag = "7")]
        pub zero_count: u64,
        #[prost(message, repeated, tag = "12")]
        pub positive_span: Vec<BucketSpan>,
        #[prost(sint64, repeated, tag = "13")]
        pub positive_delta: Vec<i64>,
        #[prost(message, repeated, tag = "16")]
        pub exemplars: Vec<Exemplar>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Bucket {
        #[prost(uint64, tag = "1")]
        pub cumulative_count: u64,
        #[prost(double, tag = "2")]
        pub upper_bound: f64,
        #[prost(message, optional, tag = "3")]
        pub exemplar: Option<Exemplar>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct BucketSpan {
        #[prost(sint32, tag = "1")]
        pub offset: i32,
        #[prost(uint32, tag = "2")]
        pub length: u32,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Exemplar {
        #[prost(message, repeated, tag = "1")]
        pub label: Vec<LabelPair>,
        #[prost(double, tag = "2")]
        pub value: f64,
        #[prost(message, optional, tag = "3")]
        pub timestamp: Option<Timestamp>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Timestamp {
        #[prost(int64, tag = "1")]
        pub seconds: i64,
        #[prost(int32, tag = "2")]
        pub nanos: i32,
    }
}

fn written(metrics: &Metrics, format: Format) -> Vec<u8> {
    let mut page = Page::in_memory(format);
    metrics.write(&mut page);
    page.into_bytes()
}

fn families(mut bytes: &[u8]) -> Vec<proto::MetricFamily> {
    let mut families = Vec::new();
    while !bytes.is_empty() {
        families.push(proto::MetricFamily::decode_length_delimited(&mut bytes).unwrap());
    }
    families
}

pub(super) const TRACE: [u8; 16] =
    *b"\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f";
pub(super) const TRACE_ID: &str = "000102030405060708090a0b0c0d0e0f";

/// A counter, a gauge, and a histogram of milliseconds with one exemplar.
pub(super) fn some() -> Metrics {
    let metrics = with_max_series(1000);
    let counter = metrics.counter("kong_bandwidth_bytes", "Bytes \"all\".", &["route"]);
    counter.unwrap().with(&["a\"b\\c\nd,e"]).add(0, 5);
    let gauge = metrics.gauge("open", "Open.", &[]).unwrap();
    gauge.with(&[]).set(0.5);
    let bounds = [25.0, 50.0, 100.0];
    let latencies = metrics.millisecond_histogram("latency_ms", "L.", &["route"], &bounds);
    let latencies = latencies.unwrap();
    let latency = latencies.with(&["a"]);
    latency.observe(0, 0);
    latency.observe(0, 30);
    latency.observe(0, 7000);
    let (groups, [placement]) = metrics.groups(0, [&latencies]);
    let group = groups.make();
    assert!(latencies.attach(&["a"], &group, &placement));
    group.cells(this_worker()).observe(&placement, 31);
    group.note_trace(
        &placement,
        &Noted::default(),
        31,
        TRACE,
        Duration::from_millis(1_500),
    );
    metrics
}

#[test]
fn protobuf_is_read_back() {
    let families = families(&written(&some(), Format::Protobuf));
    let names: Vec<(&str, i32)> = families.iter().map(|one| (&*one.name, one.kind)).collect();
    assert_eq!(
        names,
        [("kong_bandwidth_bytes", 0), ("latency_ms", 4), ("open", 1)]
    );
    let [bandwidth, latency, open] = &families[..] else {
        panic!("{families:?}");
    };
    assert_eq!(bandwidth.help, "Bytes \"all\".");
    let counter = &bandwidth.metric[0];
    assert_eq!(counter.counter.as_ref().unwrap().value, 5.0);
    assert_eq!(counter.label[0].name, "route");
    assert_eq!(counter.label[0].value, "a\"b\\c\nd,e");
    assert_eq!(open.metric[0].gauge.as_ref().unwrap().value, 0.5);

    let histogram = latency.metric[0].histogram.as_ref().unwrap();
    assert_eq!((histogram.sample_count, histogram.sample_sum), (4, 7061.0));
    let buckets = histogram.bucket.iter();
    let buckets: Vec<_> = buckets
        .map(|one| (one.upper_bound, one.cumulative_count))
        .collect();
    assert_eq!(
        buckets,
        [(25.0, 1), (50.0, 3), (100.0, 3), (f64::INFINITY, 4)]
    );
    let exemplar = histogram.bucket[1].exemplar.as_ref().unwrap();
    assert_eq!(
        (exemplar.value, &*exemplar.label[0].value),
        (31.0, TRACE_ID)
    );
    let at = exemplar.timestamp.as_ref().unwrap();
    assert_eq!((at.seconds, at.nanos), (1, 500_000_000));
    assert_eq!(histogram.exemplars.len(), 1);

    // The native buckets: 30 and 31 are up to 2^(20/4) = 32, 7000 is up to 2^(52/4) = 8192.
    assert_eq!((histogram.schema, histogram.zero_count), (2, 1));
    let spans = histogram.positive_span.iter();
    let spans: Vec<_> = spans.map(|span| (span.offset, span.length)).collect();
    assert_eq!(spans, [(20, 1), (31, 1)]);
    assert_eq!(histogram.positive_delta, [2, -1]);
}

#[test]
fn a_large_metric_is_split_in_protobuf_and_no_series_is_lost() {
    let metrics = Metrics::new(1);
    let family = metrics.counter("c", "C.", &["label"]).unwrap();
    let long = "x".repeat(1000);
    for number in 0..9_000_u64 {
        family.with(&[&format!("{number}{long}")]).add(0, number);
    }
    let families = families(&written(&metrics, Format::Protobuf));
    assert_eq!(families.len(), 3);
    let series = families.iter().flat_map(|family| &family.metric);
    let sum: f64 = series.map(|one| one.counter.as_ref().unwrap().value).sum();
    assert_eq!(sum, (0..9_000).sum::<u64>() as f64);
}

#[test]
fn openmetrics_names_counters_and_has_exemplars_and_an_end() {
    let text = String::from_utf8(written(&some(), Format::OpenMetrics)).unwrap();
    let expected = format!(
        "\
# HELP kong_bandwidth_bytes Bytes \\\"all\\\".
# TYPE kong_bandwidth_bytes counter
kong_bandwidth_bytes_total{{route=\"a\\\"b\\\\c\\nd,e\"}} 5
# HELP latency_ms L.
# TYPE latency_ms histogram
latency_ms_bucket{{route=\"a\",le=\"25.0\"}} 1
latency_ms_bucket{{route=\"a\",le=\"50.0\"}} 3 # {{trace_id=\"{TRACE_ID}\"}} 31 1.500
latency_ms_bucket{{route=\"a\",le=\"100.0\"}} 3
latency_ms_bucket{{route=\"a\",le=\"+Inf\"}} 4
latency_ms_count{{route=\"a\"}} 4
latency_ms_sum{{route=\"a\"}} 7061
# HELP open Open.
# TYPE open gauge
open 0.5
# EOF
"
    );
    assert_eq!(text, expected);
    let metrics = Metrics::new(1);
    let counter = metrics.counter("requests_total", "R.", &[]).unwrap();
    counter.with(&[]).add(0, 1);
    let text = String::from_utf8(written(&metrics, Format::OpenMetrics)).unwrap();
    assert!(
        text.contains("# TYPE requests counter\nrequests_total 1\n"),
        "{text}"
    );
}

#[test]
fn buckets_below_the_smallest_value_are_left_out_for_milliseconds() {
    let metrics = Metrics::new(1);
    let bounds = [25.0, 50.0, 100.0];
    let latency = metrics.millisecond_histogram("latency_ms", "L.", &[], &bounds);
    latency.unwrap().with(&[]).observe(0, 60);
    let expected = "\
# HELP latency_ms L.
# TYPE latency_ms histogram
latency_ms_bucket{le=\"100\"} 1
latency_ms_bucket{le=\"+Inf\"} 1
latency_ms_count 1
latency_ms_sum 60
";
    assert_eq!(metrics.render(), expected);
    // Without the setting there is no native histogram, which would take memory.
    let families = families(&written(&metrics, Format::Protobuf));
    let histogram = families[0].metric[0].histogram.clone().unwrap();
    assert_eq!(
        (histogram.zero_threshold, histogram.positive_span.len()),
        (0.0, 0)
    );
}

#[test]
fn a_summary_is_written_in_each_format() {
    let page = |format| {
        let mut page = Page::in_memory(format);
        page.family("seconds", "S.", Kind::Summary);
        page.summary(&[("part", "a")], 1.25, 3);
        page.into_bytes()
    };
    let text = String::from_utf8(page(Format::Text)).unwrap();
    assert!(text.ends_with("seconds_sum{part=\"a\"} 1.25\nseconds_count{part=\"a\"} 3\n"));
    let families = families(&page(Format::Protobuf));
    let summary = families[0].metric[0].summary.clone().unwrap();
    assert_eq!(
        (families[0].kind, summary.sample_sum, summary.sample_count),
        (2, 1.25, 3)
    );
}

/// A sink that notes the largest piece, and fails after some pieces.
#[derive(Clone)]
struct Pieces {
    sizes: Arc<Mutex<Vec<usize>>>,
    most: usize,
}

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut sizes = self.sizes.lock().unwrap();
        if sizes.len() == self.most {
            return Err(io::ErrorKind::StorageFull.into());
        }
        sizes.push(bytes.len());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_page_is_written_in_pieces_and_stops_at_an_error() {
    let metrics = Metrics::new(1);
    let family = metrics.counter("c", "C.", &["label"]).unwrap();
    for number in 0..20_000 {
        family.with(&[&number.to_string()]).add(0, 1);
    }
    let written = |most| {
        let pieces = Pieces {
            sizes: Arc::default(),
            most,
        };
        let mut page = Page::new(Format::Text, Box::new(pieces.clone()));
        metrics.write(&mut page);
        let result = page.finish().map_err(|error| error.kind());
        let sizes = pieces.sizes.lock().unwrap().clone();
        (result, sizes)
    };
    let (result, sizes) = written(usize::MAX);
    assert_eq!(result, Ok(()));
    assert_eq!(sizes.iter().sum::<usize>(), metrics.render().len());
    assert!(sizes.iter().all(|size| *size < 66_000), "{sizes:?}");
    let (result, sizes) = written(2);
    assert_eq!((result, sizes.len()), (Err(io::ErrorKind::StorageFull), 2));
}
