//! What the data plane calls for each request allocates nothing.

use services::Background;
use services::metrics::Metrics;
use services::queue::{QueueParams, Queues, Sender};
use services::workers::this_worker;
use std::alloc::System;
use std::sync::Arc;
use testkit::memory::{Counting, Counts};

#[global_allocator]
static ALLOCATOR: Counting<System> = Counting(System);

fn allocations_of(work: impl FnOnce()) -> u64 {
    let before = Counts::of_this_thread();
    work();
    Counts::since(before).allocations
}

#[test]
fn a_push_allocates_nothing_but_the_growth_of_the_buffer() {
    let queues = Queues::new(Background::start().unwrap());
    let stall = Sender::new(|_: Arc<Vec<String>>| std::future::pending());
    let params = QueueParams {
        max_entries: 1000,
        ..QueueParams::default()
    };
    let queue = queues.get("http-log", "log", params, stall);
    let entries = |count| -> Vec<String> { (0..count).map(|n| format!("{n}")).collect() };
    for entry in entries(700) {
        queue.push(entry, 1);
    }
    let more = entries(50);
    let allocations = allocations_of(|| more.into_iter().for_each(|entry| queue.push(entry, 1)));
    assert_eq!(allocations, 0);
    for entry in entries(1000) {
        queue.push(entry, 1);
    }
    let more = entries(1000);
    let overflowing = allocations_of(|| more.into_iter().for_each(|entry| queue.push(entry, 1)));
    assert_eq!(overflowing, 0);
}

#[test]
fn a_push_of_a_text_allocates_nothing_but_chunks() {
    let queues = Queues::new(Background::start().unwrap());
    let stall = Sender::of_texts(|_| std::future::pending());
    let queue = queues.get("http-log", "texts", QueueParams::default(), stall);
    let text = [b'x'; 1000];
    for _ in 0..600 {
        queue.push_text(b',', &text);
    }
    let allocations = allocations_of(|| (0..130).for_each(|_| queue.push_text(b',', &text)));
    // A chunk has 65 such texts, and one allocation more for its count of references.
    assert!(allocations <= 6, "{allocations}");
}

#[test]
fn counting_allocates_nothing() {
    let metrics = Metrics::new(2);
    let counter = metrics.counter("c", "", &["l"]).unwrap().with(&["a"]);
    let level = metrics.level("l", "", &[]).unwrap().with(&[]);
    let gauge = metrics.gauge("g", "", &[]).unwrap().with(&[]);
    let histogram = metrics.histogram("h", "", &[], &[1.0]).unwrap().with(&[]);
    let milliseconds = metrics.millisecond_histogram("m", "", &[], &[1.0]).unwrap();
    let (groups, [placement]) = metrics.groups(1, [&milliseconds]);
    let group = groups.make();
    assert!(milliseconds.attach(&[], &group, &placement));
    let allocations = allocations_of(|| {
        for number in 0..100 {
            let cells = group.cells(this_worker());
            cells.add(0, 1);
            cells.observe(&placement, 300);
            counter.add(0, 1);
            level.add(1, -1);
            gauge.set(1.5);
            histogram.observe(0, f64::from(number));
        }
    });
    assert_eq!(allocations, 0);
}
