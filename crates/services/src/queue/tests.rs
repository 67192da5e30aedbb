mod ending;
mod texts;

use super::*;
use crate::metrics::Metrics;
use bytes::Bytes;
use std::collections::{HashSet, VecDeque};
use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use tokio::sync::Notify;
use tokio::task::yield_now;
use tokio::time::sleep;

const SECOND: Duration = Duration::from_secs(1);

/// What the sink does with a batch.
#[derive(Clone, Copy)]
enum Reply {
    Accept,
    Fail,
    /// Fails, and asks for a pause of two seconds.
    Pause,
    Panic,
    Stall,
    /// Accepts the batch after four seconds.
    Late,
}

/// A receiver of batches that records each attempt with its time.
#[derive(Default)]
struct Sink {
    /// Replies to the next attempts. After them, every batch is accepted.
    script: Mutex<VecDeque<Reply>>,
    attempts: Mutex<Vec<(Duration, Vec<u32>)>>,
    attempted: Notify,
}

impl Sink {
    fn new(script: impl IntoIterator<Item = Reply>) -> Arc<Self> {
        Arc::new(Self {
            script: Mutex::new(script.into_iter().collect()),
            ..Self::default()
        })
    }

    fn sender(self: &Arc<Self>, start: Instant) -> Sender<u32> {
        let sink = self.clone();
        Sender::new(move |batch| {
            let sink = sink.clone();
            async move {
                let attempt = (start.elapsed(), batch.to_vec());
                sink.attempts.lock().unwrap().push(attempt);
                sink.attempted.notify_one();
                let reply = sink.script.lock().unwrap().pop_front();
                match reply.unwrap_or(Reply::Accept) {
                    Reply::Accept => Ok(()),
                    Reply::Fail => Err(SendError::new("status 500")),
                    Reply::Pause => Err(SendError::new("status 503").after(2 * SECOND)),
                    Reply::Panic => panic!("on purpose"),
                    Reply::Stall => pending().await,
                    Reply::Late => {
                        sleep(4 * SECOND).await;
                        Ok(())
                    }
                }
            }
        })
    }

    fn attempts(&self) -> Vec<(u64, Vec<u32>)> {
        let attempts = self.attempts.lock().unwrap();
        attempts
            .iter()
            .map(|(at, batch)| (at.as_millis() as u64, batch.clone()))
            .collect()
    }

    fn received(&self) -> Vec<u32> {
        let attempts = self.attempts.lock().unwrap();
        attempts
            .iter()
            .flat_map(|(_, batch)| batch.clone())
            .collect()
    }
}

/// A node with queues on the current runtime, and a queue `log` of the plugin `http-log`.
struct Bench {
    queues: Queues,
    sink: Arc<Sink>,
    start: Instant,
}

impl Bench {
    fn new(script: impl IntoIterator<Item = Reply>) -> Self {
        Self {
            queues: Queues::new(Background::here()),
            sink: Sink::new(script),
            start: Instant::now(),
        }
    }

    fn queue(&self, params: QueueParams) -> Arc<Queue<u32>> {
        let sender = self.sink.sender(self.start);
        self.queues.get("http-log", "log", params, sender)
    }

    fn counts(&self) -> Counts {
        self.queues.counts()[0].counts
    }
}

fn push(queue: &Queue<u32>, entries: impl IntoIterator<Item = u32>) {
    for entry in entries {
        queue.push(entry, 1);
    }
}

fn batches_of(max_batch_size: usize) -> QueueParams {
    QueueParams {
        max_batch_size,
        ..QueueParams::default()
    }
}

fn at_most(max_entries: usize) -> QueueParams {
    QueueParams {
        max_entries,
        ..QueueParams::default()
    }
}

fn assert_complete(counts: Counts) {
    let known = counts.sent + counts.lost() + counts.waiting + counts.sending;
    assert_eq!(counts.pushed, known, "{counts:?}");
}

#[tokio::test(start_paused = true)]
async fn entries_are_sent_one_by_one_and_at_once_by_default() {
    let bench = Bench::new([]);
    let queue = bench.queue(QueueParams::default());
    push(&queue, [1, 2]);
    sleep(SECOND).await;
    push(&queue, [3]);
    sleep(SECOND).await;
    let expected = [(0, vec![1]), (0, vec![2]), (1000, vec![3])];
    assert_eq!(bench.sink.attempts(), expected);
    assert_eq!(queue.counts().sent, 3);
}

#[tokio::test(start_paused = true)]
async fn a_batch_goes_when_it_is_full() {
    let bench = Bench::new([]);
    let queue = bench.queue(batches_of(2));
    push(&queue, [1]);
    sleep(SECOND / 2).await;
    assert_eq!(bench.sink.attempts(), []);
    push(&queue, [2, 3, 4, 5]);
    sleep(SECOND / 4).await;
    assert_eq!(
        bench.sink.attempts(),
        [(500, vec![1, 2]), (500, vec![3, 4])]
    );
    assert_eq!(queue.counts().waiting, 1);
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_is_not_full_goes_after_the_coalescing_delay() {
    let bench = Bench::new([]);
    let queue = bench.queue(batches_of(10));
    push(&queue, [1]);
    sleep(SECOND / 2).await;
    push(&queue, [2]);
    sleep(SECOND).await;
    push(&queue, [3]);
    sleep(5 * SECOND).await;
    assert_eq!(bench.sink.attempts(), [(1000, vec![1, 2]), (2500, vec![3])]);
}

#[tokio::test(start_paused = true)]
async fn a_failed_batch_is_sent_again_with_growing_delays() {
    let bench = Bench::new([Reply::Fail, Reply::Fail, Reply::Panic, Reply::Fail]);
    let params = QueueParams {
        initial_retry_delay: SECOND,
        max_retry_delay: 3 * SECOND,
        ..batches_of(2)
    };
    let queue = bench.queue(params);
    push(&queue, [1, 2, 3, 4]);
    sleep(60 * SECOND).await;
    let times: Vec<u64> = bench.sink.attempts().iter().map(|(at, _)| *at).collect();
    assert_eq!(times, [0, 1000, 3000, 6000, 9000, 9000]);
    assert_eq!(bench.sink.attempts()[4].1, [1, 2]);
    assert_eq!(bench.sink.attempts()[5].1, [3, 4]);
    let counts = queue.counts();
    assert_eq!((counts.sent, counts.retried, counts.lost()), (4, 4, 0));
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_asks_for_a_pause_gets_it() {
    let bench = Bench::new([Reply::Pause, Reply::Fail]);
    let queue = bench.queue(batches_of(2));
    push(&queue, [1, 2]);
    sleep(60 * SECOND).await;
    let times: Vec<u64> = bench.sink.attempts().iter().map(|(at, _)| *at).collect();
    // The back-off has gone on meanwhile.
    assert_eq!(times, [0, 2000, 2020]);
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_given_up_after_the_maximum_retry_time() {
    let bench = Bench::new([Reply::Fail; 4]);
    let params = QueueParams {
        initial_retry_delay: SECOND,
        max_retry_time: Some(2 * SECOND),
        ..batches_of(2)
    };
    let queue = bench.queue(params);
    push(&queue, [1, 2]);
    sleep(10 * SECOND).await;
    // The third attempt fails 3 seconds after the first, which is over the limit.
    assert_eq!(bench.sink.attempts().len(), 3);
    let counts = queue.counts();
    assert_eq!((counts.given_up, counts.sent, counts.sending), (2, 0, 0));
    assert_complete(counts);
}

#[tokio::test(start_paused = true)]
async fn without_a_retry_time_a_batch_is_sent_once() {
    let bench = Bench::new([Reply::Fail]);
    let params = QueueParams {
        max_retry_time: None,
        ..QueueParams::default()
    };
    let queue = bench.queue(params);
    push(&queue, [1, 2]);
    sleep(10 * SECOND).await;
    assert_eq!(bench.sink.attempts(), [(0, vec![1]), (0, vec![2])]);
    assert_eq!((queue.counts().given_up, queue.counts().sent), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_drops_the_oldest_entries() {
    let bench = Bench::new([Reply::Stall]);
    let queue = bench.queue(at_most(3));
    push(&queue, [0]);
    bench.sink.attempted.notified().await;
    push(&queue, 1..=10);
    let counts = queue.counts();
    assert_eq!(
        (counts.dropped_entries, counts.waiting, counts.sending),
        (7, 3, 1)
    );
    assert_complete(counts);
    bench.queues.drain(Instant::now() + SECOND).await;
    assert_eq!(queue.counts().dropped_shutdown, 4);
}

#[tokio::test(start_paused = true)]
async fn the_newest_entries_survive_an_overflow() {
    let bench = Bench::new([Reply::Fail]);
    let params = QueueParams {
        initial_retry_delay: SECOND,
        ..at_most(3)
    };
    let queue = bench.queue(params);
    push(&queue, [0]);
    bench.sink.attempted.notified().await;
    push(&queue, 1..=10);
    sleep(5 * SECOND).await;
    assert_eq!(bench.sink.received(), [0, 0, 8, 9, 10]);
}

#[tokio::test(start_paused = true)]
async fn bytes_are_bounded_and_a_larger_entry_is_refused() {
    let bench = Bench::new([Reply::Fail]);
    let params = QueueParams {
        max_bytes: Some(10),
        initial_retry_delay: SECOND,
        ..QueueParams::default()
    };
    let queue = bench.queue(params);
    push(&queue, [0]);
    bench.sink.attempted.notified().await;
    for (entry, bytes) in [(1, 4), (2, 4), (3, 11), (4, 2), (5, 7), (6, usize::MAX)] {
        queue.push(entry, bytes);
    }
    let counts = queue.counts();
    assert_eq!((counts.refused, counts.dropped_bytes), (2, 2));
    assert_eq!((counts.waiting, counts.bytes), (2, 9));
    sleep(5 * SECOND).await;
    assert_eq!(bench.sink.received(), [0, 0, 4, 5]);
    assert_eq!(queue.counts().bytes, 0);
    assert_complete(queue.counts());
}

#[tokio::test(start_paused = true)]
async fn a_queue_without_a_limit_of_bytes_is_bounded_too() {
    let bench = Bench::new([Reply::Stall]);
    let queue = bench.queue(QueueParams::default());
    push(&queue, [0]);
    bench.sink.attempted.notified().await;
    for entry in 1..=5 {
        queue.push(entry, DEFAULT_MAX_BYTES / 4);
    }
    let counts = queue.counts();
    assert_eq!((counts.waiting, counts.dropped_bytes), (4, 1));
}

#[tokio::test(start_paused = true)]
async fn unlimited_concurrency_sends_each_entry_alone_and_keeps_the_limits() {
    let bench = Bench::new([Reply::Stall; 2 * MAX_SENDS]);
    let params = QueueParams {
        concurrency_limit: Concurrency::Unlimited,
        max_batch_size: 10,
        ..at_most(100)
    };
    let queue = bench.queue(params);
    for entry in 0..1000 {
        queue.push(entry, 1);
        yield_now().await;
    }
    let counts = queue.counts();
    assert_eq!((counts.sending, counts.waiting), (MAX_SENDS as u64, 100));
    assert_eq!(counts.dropped_entries, 1000 - 100 - MAX_SENDS as u64);
    assert!(
        bench
            .sink
            .attempts()
            .iter()
            .all(|(_, batch)| batch.len() == 1)
    );
    assert_eq!(bench.queues.drain(Instant::now() + SECOND).await, 356);
    assert_complete(queue.counts());
}

#[tokio::test(start_paused = true)]
async fn a_queue_uses_the_newest_parameters_and_sender() {
    let bench = Bench::new([]);
    let queue = bench.queue(batches_of(10));
    push(&queue, [1, 2]);
    yield_now().await;
    let newer = Sink::new([]);
    let sender = newer.sender(bench.start);
    let same = bench.queues.get("http-log", "log", batches_of(2), sender);
    assert!(Arc::ptr_eq(&queue, &same));
    sleep(SECOND / 10).await;
    assert_eq!(bench.sink.attempts(), []);
    assert_eq!(newer.attempts(), [(0, vec![1, 2])]);
}

#[tokio::test(start_paused = true)]
async fn queues_of_other_plugins_names_and_types_are_separate() {
    let bench = Bench::new([]);
    let params = QueueParams::default;
    let sender = || bench.sink.sender(bench.start);
    let one = bench.queues.get("a", "x", params(), sender());
    let others = [
        bench.queues.get("b", "x", params(), sender()),
        bench.queues.get("a", "y", params(), sender()),
    ];
    let texts = Sender::new(|_: Arc<Vec<String>>| async { Ok(()) });
    let typed = bench.queues.get("a", "x", params(), texts);
    assert!(others.iter().all(|other| !Arc::ptr_eq(other, &one)));
    typed.push("text".to_owned(), 4);
    push(&one, [1]);
    sleep(SECOND).await;
    assert_eq!((typed.counts().sent, one.counts().sent), (1, 1));
}

#[tokio::test]
async fn a_queue_whose_background_has_ended_keeps_nothing() {
    let background = Background::here();
    let queues = Queues::new(background.clone());
    let sink = Sink::new([Reply::Stall]);
    let sender = || sink.sender(Instant::now());
    let queue = queues.get("a", "x", QueueParams::default(), sender());
    push(&queue, [1, 2]);
    sink.attempted.notified().await;
    background.shut_down(Instant::now()).await;
    while queue.counts().lost() < 2 {
        yield_now().await;
    }
    push(&queue, [3]);
    assert_eq!(queue.counts().dropped_shutdown, 3);
    let later = queues.get("a", "y", QueueParams::default(), sender());
    push(&later, [4]);
    while later.counts().lost() < 1 {
        yield_now().await;
    }
}

#[test]
fn threads_that_push_at_once_lose_nothing() {
    let background = Background::start().unwrap();
    let queues = Queues::new(background.clone());
    let (sender, received) = mpsc::channel();
    let send = Sender::new(move |batch: Arc<Vec<u32>>| {
        let sent = sender.send(batch.to_vec());
        async move { sent.map_err(SendError::new) }
    });
    let params = QueueParams {
        max_entries: 1_000_000,
        ..batches_of(100)
    };
    let queue = queues.get("http-log", "log", params, send);
    thread::scope(|scope| {
        for thread in 0..8 {
            let queue = queue.clone();
            scope.spawn(move || push(&queue, (0..10_000).map(|entry| thread * 10_000 + entry)));
        }
    });
    let deadline = Instant::now() + 60 * SECOND;
    assert_eq!(background.wait_for(queues.drain(deadline)), 0);
    let mut entries: Vec<u32> = received.try_iter().flatten().collect();
    // The entries of one thread arrive in their order.
    for thread in 0..8 {
        let of_thread = entries.iter().filter(|entry| **entry / 10_000 == thread);
        assert!(of_thread.is_sorted());
    }
    entries.sort_unstable();
    assert_eq!(entries, (0..80_000).collect::<Vec<_>>());
    assert_eq!(queue.counts().sent, 80_000);
}

#[test]
fn memory_stays_bounded_while_threads_push_to_a_stalled_sink() {
    let background = Background::start().unwrap();
    let queues = Queues::new(background);
    let stall = Sender::new(|_: Arc<Vec<u32>>| pending());
    let queue = queues.get("http-log", "log", at_most(100), stall);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| push(&queue, 0..10_000));
        }
    });
    let counts = queue.counts();
    assert!(counts.waiting <= 100 && counts.sending <= 1, "{counts:?}");
    assert_complete(counts);
}

#[tokio::test(start_paused = true)]
async fn ended_queues_do_not_accumulate() {
    let bench = Bench::new([]);
    for number in 0..1000 {
        let sender = bench.sink.sender(bench.start);
        let name = number.to_string();
        let queue = bench.queues.get("a", &name, QueueParams::default(), sender);
        push(&queue, [number]);
        drop(queue);
        sleep(SECOND).await;
    }
    assert!(bench.queues.0.registry().queues.len() <= 2 * FIRST_SWEEP);
    assert_eq!(bench.sink.received().len(), 1000);
    let tasks = tokio::runtime::Handle::current()
        .metrics()
        .num_alive_tasks();
    assert_eq!(tasks, 0);
}

#[test]
fn names_are_shown_without_paths_and_queries() {
    for plain in [
        "http://log.test:POST",
        "http://log.test:80/:POST",
        "http://log.test:4318/v1/traces:spans:1f",
        "/var/log/what?",
        "log.test:514",
    ] {
        assert_eq!(super::shown(plain), plain);
    }
    let names = [
        "http://log.test/x?secret=one:POST",
        "http://log.test/x?secret=two:POST",
        "http://log.test/services/secret/B1:POST",
        "http://log.test/services/secret/B2:POST",
        "http://log.test/v1/traces?secret:spans",
        "http://log.test/v1/traces/secret:spans",
        "http://log.test?secret",
    ];
    let shown: HashSet<_> = names.into_iter().map(super::shown).collect();
    assert_eq!(shown.len(), names.len());
    for shown in shown {
        assert!(shown.starts_with("http://log.test/***:"), "{shown}");
        assert!(!shown.contains("secret"), "{shown}");
    }
}

#[tokio::test(start_paused = true)]
async fn counters_are_among_the_metrics_and_credentials_are_not() {
    let bench = Bench::new([Reply::Fail]);
    let metrics = Metrics::new(1);
    bench.queues.expose(&metrics);
    let params = QueueParams {
        max_bytes: Some(2),
        ..QueueParams::default()
    };
    let name = "http://me:secret@log.test/x?token=secret:POST";
    let sender = bench.sink.sender(bench.start);
    let queue = bench.queues.get("http-log", name, params, sender);
    queue.push(1, 1);
    queue.push(2, 3);
    sleep(SECOND).await;
    let text = metrics.render();
    // A hash keeps the names apart whose queries are hidden.
    let labels = "plugin=\"http-log\",queue=\"http://***@log.test/***:";
    let has = |name: &str, end: &str| {
        let start = format!("silverback_queue_{name}{{{labels}");
        let mut lines = text.lines();
        lines.any(|line| line.starts_with(&start) && line.ends_with(end))
    };
    for (name, end) in [
        ("pushed_total", "\"} 2"),
        ("sent_total", "\"} 1"),
        ("retries_total", "\"} 1"),
        ("dropped_total", "\",cause=\"too_large\"} 1"),
    ] {
        assert!(has(name, end), "{name}{text}");
    }
    assert!(has("waiting_entries", "\"} 0"), "{text}");
    assert!(!text.contains("secret"));
    assert!(!format!("{queue:?}").contains("secret"));
    drop((queue, bench));
    assert_eq!(
        metrics.render(),
        "",
        "the metrics do not keep the queues alive"
    );
}

#[tokio::test(start_paused = true)]
async fn a_plugin_keeps_the_counters_of_queues_that_have_ended() {
    let bench = Bench::new([]);
    let metrics = Metrics::new(1);
    bench.queues.expose(&metrics);
    let value = |name: &str, labels: &str| {
        let text = metrics.render();
        let start = format!("silverback_{name}{{{labels}}} ");
        let line = text.lines().find_map(|line| line.strip_prefix(&start));
        line.map(|value| value.parse::<u64>().unwrap())
    };
    let get = |name: &str| {
        let sender = bench.sink.sender(bench.start);
        (bench.queues).get("http-log", name, at_most(2), sender)
    };
    let of_plugin = "plugin=\"http-log\",cause=\"max_entries\"";
    // The queue ends after the first round. In the third round it still has two entries of the second.
    for (lost, ends) in [(3, true), (6, false), (11, true)] {
        let queue = get("one");
        push(&queue, 0..5);
        assert_eq!(
            value("plugin_queue_dropped_total", of_plugin),
            Some(lost),
            "while the queue is there"
        );
        drop(queue);
        if ends {
            sleep(SECOND).await;
        }
    }
    let of_queue = "plugin=\"http-log\",queue=\"one\"";
    assert_eq!(value("queue_sent_total", of_queue), None);
    push(&get("two"), 0..1);
    sleep(SECOND).await;
    let lost = value("plugin_queue_dropped_total", of_plugin);
    assert_eq!(lost, Some(11), "after all queues");
    assert_eq!(
        value("plugin_queue_pushed_total", "plugin=\"http-log\""),
        Some(16)
    );
    assert_eq!(
        Arc::strong_count(&bench.sink),
        1,
        "the senders of queues that have ended are dropped"
    );
}

#[tokio::test(start_paused = true)]
async fn extreme_parameters_do_not_panic() {
    let bench = Bench::new([Reply::Fail]);
    let params = QueueParams {
        max_batch_size: usize::MAX,
        max_coalescing_delay: Duration::MAX,
        max_entries: usize::MAX,
        max_bytes: Some(usize::MAX),
        initial_retry_delay: Duration::MAX,
        max_retry_time: Some(Duration::MAX),
        max_retry_delay: Duration::MAX,
        concurrency_limit: Concurrency::One,
    };
    let queue = bench.queue(params);
    queue.push(1, usize::MAX);
    queue.push(2, usize::MAX);
    queue.push(3, usize::MAX);
    assert_eq!(queue.counts().lost(), 0);
    sleep(SECOND).await;
    bench.queues.drain(Instant::now() + SECOND).await;
    assert_complete(bench.counts());
    let zero = QueueParams {
        max_batch_size: 0,
        max_coalescing_delay: Duration::ZERO,
        max_entries: 0,
        max_bytes: Some(0),
        initial_retry_delay: Duration::ZERO,
        max_retry_delay: Duration::ZERO,
        ..QueueParams::default()
    };
    let bench = Bench::new([Reply::Fail]);
    let queue = bench.queue(zero);
    queue.push(1, 0);
    queue.push(2, 1);
    sleep(SECOND).await;
    assert_eq!((queue.counts().sent, queue.counts().refused), (1, 1));
}
