mod formats;
mod groups;
mod otlp;

use super::*;
use std::thread;

const WORKERS: usize = 4;

fn with_max_series(max_series: usize) -> Metrics {
    Metrics::with(Settings {
        workers: 1,
        max_series,
        native: true,
    })
}

#[test]
fn a_page_has_help_type_and_samples_in_order() {
    let metrics = Metrics::new(2);
    let requests = metrics
        .counter("requests_total", "Requests.", &["code", "route"])
        .unwrap();
    requests.with(&["200", "b"]).add(0, 1);
    requests.with(&["200", "a"]).add(1, 2);
    requests.with(&["200", "a"]).add(NO_WORKER, 3);
    metrics
        .gauge("loaded", "Whether\nloaded \\ or not.", &[])
        .unwrap()
        .with(&[])
        .set(0.5);
    let level = metrics.level("open", "Open.", &[]).unwrap().with(&[]);
    level.add(0, 2);
    level.add(1, -3);
    let expected = "\
# HELP loaded Whether\\nloaded \\\\ or not.
# TYPE loaded gauge
loaded 0.5
# HELP open Open.
# TYPE open gauge
open -1
# HELP requests_total Requests.
# TYPE requests_total counter
requests_total{code=\"200\",route=\"a\"} 5
requests_total{code=\"200\",route=\"b\"} 1
";
    assert_eq!(metrics.render(), expected);
}

#[test]
fn a_histogram_has_cumulative_buckets_sum_and_count() {
    let metrics = Metrics::new(2);
    let latency = metrics
        .histogram("latency", "L.", &["route"], &[1.0, 2.5])
        .unwrap();
    let series = latency.with(&["a"]);
    for (worker, value) in [(0, 0.5), (1, 1.0), (0, 2.0), (7, 100.0), (0, f64::NAN)] {
        series.observe(worker, value);
    }
    assert_eq!((series.count(), series.sum()), (4, 103.5));
    let expected = "\
# HELP latency L.
# TYPE latency histogram
latency_bucket{route=\"a\",le=\"1\"} 2
latency_bucket{route=\"a\",le=\"2.5\"} 3
latency_bucket{route=\"a\",le=\"+Inf\"} 4
latency_count{route=\"a\"} 4
latency_sum{route=\"a\"} 103.5
";
    assert_eq!(metrics.render(), expected);
}

#[test]
fn label_values_are_escaped() {
    let metrics = Metrics::new(1);
    let family = metrics.counter("c", "C.", &["l"]).unwrap();
    family.with(&["a\"b\\c\nd}ü"]).add(0, 1);
    assert!(metrics.render().contains("c{l=\"a\\\"b\\\\c\\nd}ü\"} 1\n"));
}

#[test]
fn special_numbers_are_written_as_prometheus_reads_them() {
    let metrics = Metrics::new(1);
    let gauges = metrics.gauge("g", "G.", &["l"]).unwrap();
    for (label, value) in [
        ("a", f64::INFINITY),
        ("b", f64::NEG_INFINITY),
        ("c", f64::NAN),
        ("d", 1e21),
    ] {
        gauges.with(&[label]).set(value);
    }
    let text = metrics.render();
    let values: Vec<&str> = text
        .lines()
        .filter_map(|line| line.split_once("} "))
        .map(|(_, value)| value)
        .collect();
    assert_eq!(values, ["+Inf", "-Inf", "NaN", "1000000000000000000000"]);
}

#[test]
fn threads_that_count_at_once_lose_nothing() {
    let metrics = Metrics::new(WORKERS);
    let counter = metrics.counter("c", "C.", &[]).unwrap().with(&[]);
    let histogram = metrics.histogram("h", "H.", &[], &[1.0]).unwrap().with(&[]);
    thread::scope(|scope| {
        // More threads than workers: the others share the last cells.
        for worker in 0..2 * WORKERS {
            let (counter, histogram) = (counter.clone(), histogram.clone());
            scope.spawn(move || {
                for _ in 0..10_000 {
                    counter.add(worker, 1);
                    histogram.observe(worker, 0.5);
                }
            });
        }
        for _ in 0..100 {
            metrics.render();
        }
    });
    let total = 2 * WORKERS as u64 * 10_000;
    assert_eq!(counter.value(), total);
    assert_eq!(
        (histogram.count(), histogram.sum()),
        (total, total as f64 / 2.0)
    );
}

#[test]
fn series_beyond_the_maximum_are_counted_as_other() {
    let metrics = with_max_series(3);
    let family = metrics.counter("c", "C.", &["a", "b"]).unwrap();
    for number in 0..10_000 {
        family.with(&[&number.to_string(), "x"]).add(0, 1);
    }
    assert_eq!(family.len(), 4);
    assert_eq!(family.with(&["other", "other"]).value(), 9997);
    assert!(
        metrics
            .render()
            .contains("c{a=\"other\",b=\"other\"} 9997\n")
    );
    family.remove(&["0", "x"]);
    family.remove(&["1", "x"]);
    family.with(&["new", "x"]).add(0, 1);
    assert_eq!(family.with(&["new", "x"]).value(), 1, "there is room again");
}

#[test]
fn a_removed_series_disappears_and_starts_again_at_zero() {
    let metrics = Metrics::new(1);
    let family = metrics.counter("c", "C.", &["route"]).unwrap();
    let (held, kept) = (family.with(&["gone"]), family.with(&["kept"]));
    held.add(0, 5);
    kept.add(0, 1);
    family.remove(&["gone"]);
    assert!(!metrics.render().contains("gone"));
    let again = family.with(&["gone"]);
    held.add(0, 100);
    assert_eq!(again.value(), 0, "the former holder counts for itself");
    family.remove_if(|labels| labels[0] != "kept");
    assert_eq!(family.len(), 1);
    assert_eq!(family.with(&["kept"]).value(), 1);
}

#[test]
fn removed_series_free_their_memory_for_new_ones() {
    let metrics = Metrics::new(1);
    let family = metrics.counter("c", "C.", &["route"]).unwrap();
    for round in 0..10_000 {
        let name = round.to_string();
        let series = family.with(&[&name]);
        assert_eq!(series.value(), 0);
        series.add(0, 1);
        family.remove(&[&name]);
    }
    assert!(family.is_empty());
}

#[test]
fn the_same_metric_can_be_registered_again_but_not_another_under_its_name() {
    let metrics = Metrics::new(1);
    let first = metrics.counter("c", "C.", &["l"]).unwrap();
    let second = metrics.counter("c", "C.", &["l"]).unwrap();
    first.with(&["a"]).add(0, 1);
    assert_eq!(second.with(&["a"]).value(), 1);
    let conflict = MetricError::Conflict("c".into());
    assert_eq!(
        metrics.gauge("c", "C.", &["l"]).err(),
        Some(conflict.clone())
    );
    assert_eq!(metrics.counter("c", "C.", &[]).err(), Some(conflict));
}

#[test]
fn wrong_names_and_bounds_are_refused() {
    let metrics = Metrics::new(1);
    for name in ["", "1a", "a-b", "ä"] {
        let error = metrics.counter(name, "", &[]).err();
        assert_eq!(error, Some(MetricError::Name(name.into())));
    }
    for labels in [["a", "a"], ["a", "__b"], ["a", "b:c"], ["a", ""]] {
        let error = metrics.counter("c", "", &labels).err();
        assert_eq!(error, Some(MetricError::Label(labels[1].into())));
    }
    for bounds in [&[2.0, 1.0][..], &[1.0, 1.0], &[f64::NAN], &[f64::INFINITY]] {
        let error = metrics.histogram("h", "", &[], bounds).err();
        assert_eq!(error, Some(MetricError::Bounds));
    }
    metrics.histogram("h", "", &["le"], &[]).err().unwrap();
    metrics.counter("a:b_1", "", &["le"]).unwrap();
}

#[test]
fn missing_label_values_are_empty_and_further_ones_are_ignored() {
    let metrics = Metrics::new(1);
    let family = metrics.counter("c", "C.", &["a", "b"]).unwrap();
    family.with(&["x"]).add(0, 1);
    family.with(&["x", "", "z"]).add(0, 1);
    assert!(metrics.render().contains("c{a=\"x\",b=\"\"} 2\n"));
}

struct Constant;

impl Source for Constant {
    fn collect(&self, page: &mut Page) {
        page.family("constant", "C.", Kind::Gauge);
        page.sample(&[("a", "b")], 1.0);
    }
}

#[test]
fn a_source_is_read_until_it_is_dropped() {
    let metrics = Metrics::new(1);
    let source = Arc::new(Constant);
    let weak: Weak<Constant> = Arc::downgrade(&source);
    metrics.add_source(weak);
    assert!(metrics.render().ends_with("constant{a=\"b\"} 1\n"));
    drop(source);
    assert_eq!(metrics.render(), "");
}

#[test]
fn series_that_nobody_holds_are_removed_but_not_the_one_for_others() {
    let metrics = with_max_series(40);
    let family = metrics.counter("c", "C.", &["consumer"]).unwrap();
    let held = family.with(&["held"]);
    for number in 0..100 {
        family.with(&[&number.to_string()]).add(0, 1);
    }
    assert!(family.is_nearly_full());
    family.remove_unheld();
    assert_eq!(family.len(), 2);
    assert!(!family.is_nearly_full());
    assert_eq!(family.with(&["other"]).value(), 61);
    held.add(0, 1);
    assert_eq!(family.with(&["held"]).value(), 1);
}

#[test]
fn a_histogram_may_have_a_fifth_of_the_series() {
    let metrics = with_max_series(50);
    let family = metrics
        .millisecond_histogram("h", "H.", &["route"], &[1.0])
        .unwrap();
    for number in 0..50 {
        family.with(&[&number.to_string()]).observe(0, 1);
    }
    assert_eq!(family.len(), 11);
    assert_eq!(family.with(&["other"]).count(), 40);
}

#[test]
fn a_metric_without_series_is_left_out() {
    let metrics = Metrics::new(1);
    metrics.counter("c", "C.", &["route"]).unwrap();
    assert_eq!(metrics.render(), "");
}
