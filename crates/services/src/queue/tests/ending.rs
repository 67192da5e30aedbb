//! Tests of queues that end: without holders, and in a drain.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_queue_without_holders_sends_what_it_holds_and_ends() {
    let bench = Bench::new([]);
    let queue = bench.queue(batches_of(10));
    push(&queue, [1, 2, 3]);
    drop(queue);
    sleep(SECOND / 100).await;
    assert_eq!(bench.sink.attempts(), [(0, vec![1, 2, 3])]);
    assert_eq!(bench.queues.counts(), [], "the task is gone");
    assert_eq!(Arc::strong_count(&bench.sink), 1, "and so is its sender");
    let again = bench.queue(batches_of(10));
    assert_eq!(again.counts(), Counts::default());
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_is_asked_for_while_it_still_sends_continues() {
    let bench = Bench::new([Reply::Fail]);
    let params = QueueParams {
        initial_retry_delay: SECOND,
        ..batches_of(2)
    };
    let queue = bench.queue(params.clone());
    push(&queue, [1, 2, 3]);
    bench.sink.attempted.notified().await;
    drop(queue);
    let queue = bench.queue(params.clone());
    push(&queue, [4]);
    sleep(5 * SECOND).await;
    assert_eq!(bench.sink.received(), [1, 2, 1, 2, 3, 4]);
    assert_eq!(queue.counts().pushed, 4, "the counters go on");
    push(&queue, [5]);
    let other = bench.queue(params);
    drop(queue);
    sleep(2 * SECOND).await;
    assert_eq!(
        other.counts().sent,
        5,
        "one handle is left, so the queue lives"
    );
}

#[tokio::test(start_paused = true)]
async fn a_drain_sends_incomplete_batches_at_once() {
    let bench = Bench::new([]);
    let queue = bench.queue(batches_of(100));
    push(&queue, 0..250);
    bench.sink.attempted.notified().await;
    let lost = bench.queues.drain(Instant::now() + 10 * SECOND).await;
    assert_eq!((lost, bench.start.elapsed()), (0, Duration::ZERO));
    assert_eq!(bench.sink.received(), (0..250).collect::<Vec<_>>());
    push(&queue, [250]);
    yield_now().await;
    yield_now().await;
    assert_eq!(
        queue.counts().sent,
        251,
        "the queue works until the deadline"
    );
}

#[tokio::test(start_paused = true)]
async fn a_drain_starts_waiting_retries_at_once_and_gives_up_a_receiver_that_accepts_nothing() {
    let bench = Bench::new([Reply::Fail; 9]);
    let params = QueueParams {
        initial_retry_delay: 3 * SECOND,
        max_retry_delay: 3 * SECOND,
        ..QueueParams::default()
    };
    let queue = bench.queue(params);
    push(&queue, [1, 2]);
    sleep(4 * SECOND).await;
    let lost = bench.queues.drain(Instant::now() + 30 * SECOND).await;
    assert_eq!(bench.start.elapsed(), 9 * SECOND);
    let times: Vec<u64> = bench.sink.attempts().iter().map(|(at, _)| *at).collect();
    assert_eq!(times, [0, 3000, 4000, 7000]);
    assert_eq!((lost, queue.counts().dropped_shutdown), (2, 2));
    push(&queue, [3]);
    assert_eq!(
        queue.counts().dropped_shutdown,
        3,
        "nothing is kept any more"
    );
    assert_complete(queue.counts());
}

#[tokio::test(start_paused = true)]
async fn a_slow_receiver_has_the_whole_time_of_a_drain() {
    let bench = Bench::new([Reply::Late; 5]);
    let queue = bench.queue(QueueParams::default());
    push(&queue, 0..5);
    let lost = bench.queues.drain(Instant::now() + 30 * SECOND).await;
    assert_eq!((lost, bench.start.elapsed()), (0, 20 * SECOND));
    assert_eq!(queue.counts().sent, 5);
}

#[tokio::test(start_paused = true)]
async fn a_queue_without_holders_tries_for_the_last_time_and_drops_the_rest() {
    let bench = Bench::new([Reply::Fail, Reply::Stall]);
    let params = QueueParams {
        initial_retry_delay: 30 * SECOND,
        ..QueueParams::default()
    };
    let queue = bench.queue(params);
    push(&queue, [1, 2, 3]);
    sleep(SECOND).await;
    drop(queue);
    sleep(9 * SECOND).await;
    assert_eq!(bench.sink.attempts(), [(0, vec![1]), (1000, vec![1])]);
    assert_eq!(bench.counts().waiting, 2);
    sleep(2 * SECOND).await;
    assert_eq!(Arc::strong_count(&bench.sink), 1, "the sender is gone");
    let (_, plugins) = bench.queues.0.all_counts();
    let counts = plugins["http-log"];
    assert_eq!((counts.dropped_unused, counts.waiting), (3, 0));
    assert_complete(counts);
}

#[tokio::test(start_paused = true)]
async fn a_queue_without_holders_sends_to_a_slow_receiver_for_a_minute() {
    let bench = Bench::new([Reply::Late; 99]);
    let queue = bench.queue(QueueParams::default());
    push(&queue, 0..99);
    drop(queue);
    sleep(59 * SECOND).await;
    let counts = bench.counts();
    assert_eq!((counts.sent, counts.dropped_unused), (14, 0));
    sleep(2 * SECOND).await;
    let log = bench.queue(QueueParams::default());
    assert_eq!(log.counts(), Counts::default(), "the first queue has ended");
}

#[tokio::test(start_paused = true)]
async fn a_sender_that_stalls_holds_up_a_drain_only_until_its_deadline() {
    let bench = Bench::new([Reply::Stall]);
    let queue = bench.queue(batches_of(2));
    push(&queue, [1, 2, 3]);
    bench.sink.attempted.notified().await;
    assert_eq!(bench.queues.drain(Instant::now() + SECOND).await, 3);
    assert_eq!(bench.start.elapsed(), SECOND);
    assert_complete(queue.counts());
}
