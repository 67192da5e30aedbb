//! Groups: several series whose cells are side by side.

use super::*;
use crate::workers::{Workers, this_worker};
use std::sync::mpsc;
use tokio::runtime::Builder;

const BOUNDS: [f64; 3] = [1.0, 50.0, 1000.0];
const OTHER_BOUNDS: [f64; 2] = [25.0, 60.0];

/// A counter and two histograms.
struct Families {
    metrics: Metrics,
    counter: Family<Counter>,
    first: Family<Milliseconds>,
    second: Family<Milliseconds>,
}

fn families(metrics: Metrics) -> Families {
    let histogram = |name, bounds: &[f64]| {
        let family = metrics.millisecond_histogram(name, "", &["route"], bounds);
        family.unwrap()
    };
    Families {
        counter: metrics.counter("c", "", &["route"]).unwrap(),
        first: histogram("first", &BOUNDS),
        second: histogram("second", &OTHER_BOUNDS),
        metrics,
    }
}

impl Families {
    fn groups(&self) -> (Groups, [Arc<Placement>; 2]) {
        self.metrics.groups(2, [&self.first, &self.second])
    }
}

#[test]
fn a_group_counts_as_series_with_cells_of_their_own_do() {
    for native in [false, true] {
        let metrics = || {
            let settings = Settings {
                workers: 1,
                max_series: 100,
                native,
            };
            families(Metrics::with(settings))
        };
        let (apart, together) = (metrics(), metrics());
        let (groups, [first, second]) = together.groups();
        let group = groups.make();
        assert!(together.counter.attach(&["a"], &group, 0));
        assert!(together.counter.attach(&["b"], &group, 1));
        assert!(together.first.attach(&["a"], &group, &first));
        assert!(together.second.attach(&["a"], &group, &second));
        let cells = group.cells(this_worker());
        let large = [255, 256, 999, 1000, 1001, 70_000, u64::from(u32::MAX)];
        for value in (0..200).chain(large) {
            cells.add(0, value);
            cells.add(1, 1);
            cells.observe(&first, value);
            cells.observe(&second, 2 * value);
            apart.counter.with(&["a"]).add(0, value);
            apart.counter.with(&["b"]).add(0, 1);
            apart.first.with(&["a"]).observe(0, value);
            apart.second.with(&["a"]).observe(0, 2 * value);
        }
        for format in [Format::Text, Format::Protobuf] {
            let page = |families: &Families| {
                let mut page = Page::in_memory(format);
                families.metrics.write(&mut page);
                page.into_bytes()
            };
            assert_eq!(page(&apart), page(&together), "{format:?}");
        }
    }
}

#[test]
fn a_series_is_the_sum_of_its_groups_also_of_those_that_are_gone() {
    let families = families(Metrics::new(1));
    let (groups, [first, _]) = families.groups();
    let (one, two) = (groups.make(), groups.make());
    one.cells(this_worker()).add(0, 1);
    for group in [&one, &two] {
        for _ in 0..2 {
            // A second time it changes nothing.
            assert!(families.counter.attach(&["a"], group, 0));
            assert!(families.first.attach(&["a"], group, &first));
        }
    }
    one.cells(this_worker()).observe(&first, 7);
    two.cells(this_worker()).add(0, 10);
    families.counter.with(&["a"]).add(0, 100);
    let (counter, histogram) = (families.counter.with(&["a"]), families.first.with(&["a"]));
    assert_eq!(
        counter.value(),
        111,
        "what came before it was attached, too"
    );
    drop(one);
    assert_eq!((counter.value(), histogram.count()), (111, 1));
    assert!(
        families
            .metrics
            .render()
            .contains("first_sum{route=\"a\"} 7\n")
    );
    two.cells(this_worker()).add(0, 1000);
    drop(two);
    assert_eq!(counter.value(), 1111);
    let next = groups.make();
    assert!(families.counter.attach(&["a"], &next, 0));
    assert_eq!(counter.value(), 1111, "its cells begin at zero");
}

#[test]
fn series_of_a_group_are_kept_as_long_as_the_group() {
    let families = families(Metrics::new(1));
    let (groups, [first, _]) = families.groups();
    let group = groups.make();
    assert!(families.counter.attach(&["a"], &group, 0));
    assert!(families.first.attach(&["a"], &group, &first));
    let remove = || {
        families.counter.remove_unheld();
        families.first.remove_unheld();
        (families.counter.len(), families.first.len())
    };
    assert_eq!(remove(), (1, 1));
    drop(group);
    assert_eq!(remove(), (0, 0));
}

#[test]
fn groups_beyond_the_maximum_are_counted_as_other() {
    let families = families(with_max_series(3));
    let (groups, _) = families.groups();
    let mut all = Vec::new();
    for number in 0..1000 {
        let group = groups.make();
        group.cells(this_worker()).add(0, 1);
        assert!(families.counter.attach(&[&number.to_string()], &group, 0));
        all.push(group);
    }
    assert_eq!(families.counter.len(), 4);
    let other = families.counter.with(&[OTHER]);
    assert_eq!(other.value(), 997);
    all.drain(100..500);
    assert_eq!(other.value(), 997);
    for group in &all {
        group.cells(this_worker()).add(0, 1);
    }
    assert_eq!(other.value(), 997 + 597);
}

/// Workers write their cells without locked instructions, and other threads share one set of cells.
#[test]
fn workers_and_other_threads_that_count_at_once_lose_nothing() {
    const TIMES: u64 = 10_000;
    let families = families(Metrics::new(WORKERS));
    let (groups, [first, _]) = families.groups();
    let group = groups.make();
    assert!(families.counter.attach(&["a"], &group, 0));
    assert!(families.first.attach(&["a"], &group, &first));
    let workers = Workers::default();
    thread::scope(|scope| {
        let (ready, begin) = mpsc::channel();
        // Half of the threads are workers. One of those has a number that there are no cells for.
        for number in 0..2 * WORKERS {
            let (workers, group, first, ready) = (&workers, &group, &first, ready.clone());
            scope.spawn(move || {
                let runtime = Builder::new_current_thread().build().unwrap();
                let number = (number <= WORKERS).then_some(number);
                let handle = runtime.handle().clone();
                let _registration = number.map(|number| workers.register(number, handle));
                ready.send(()).unwrap();
                for _ in 0..TIMES {
                    let cells = group.cells(this_worker());
                    cells.add(0, 3);
                    cells.observe(first, 5);
                }
            });
        }
        drop(ready);
        assert_eq!(begin.iter().count(), 2 * WORKERS);
        for _ in 0..100 {
            families.metrics.render();
        }
    });
    let total = 2 * WORKERS as u64 * TIMES;
    assert_eq!(families.counter.with(&["a"]).value(), 3 * total);
    let sum = format!("first_sum{{route=\"a\"}} {}\n", 5 * total);
    assert!(families.metrics.render().contains(&sum));
}
