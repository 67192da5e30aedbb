//! What the log says about queues. All tests share one subscriber, so each has a queue name of its own.

#![allow(clippy::unwrap_used, reason = "helpers of tests panic like tests")]

use services::Background;
use services::queue::{LOG_INTERVAL, Queue, QueueParams, Queues, SendError, Sender};
use std::io;
use std::sync::{Arc, Mutex, Once};
use std::time::Duration;
use tokio::time::{Instant, sleep};

const SECOND: Duration = Duration::from_secs(1);

static LOG: Mutex<Vec<u8>> = Mutex::new(Vec::new());

struct Log;

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LOG.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn collect_logs() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        tracing_subscriber::fmt()
            .without_time()
            .with_target(false)
            .with_ansi(false)
            .with_writer(|| Log)
            .init();
    });
}

/// Returns the lines about a queue, without its tag.
fn lines_about(queue: &str) -> Vec<String> {
    let text = String::from_utf8(LOG.lock().unwrap().clone()).unwrap();
    let tag = format!("[http-log] queue {queue}: ");
    text.lines()
        .filter(|line| line.contains(&tag))
        .map(|line| line.trim().replace(&tag, ""))
        .collect()
}

/// A queue whose sender always fails.
fn failing(queues: &Queues, name: &str, params: QueueParams) -> Arc<Queue<u32>> {
    collect_logs();
    let fail = Sender::new(|_| async { Err(SendError::new("status 500")) });
    queues.get("http-log", name, params, fail)
}

#[tokio::test(start_paused = true)]
async fn losses_are_logged_in_kongs_words_and_not_too_often() {
    let queues = Queues::new(Background::here());
    let params = QueueParams {
        max_entries: 5,
        max_bytes: Some(100),
        initial_retry_delay: 60 * SECOND,
        ..QueueParams::default()
    };
    let queue = failing(&queues, "losses", params);
    queue.push(0, 1);
    sleep(SECOND).await;
    for entry in 1..=1000 {
        queue.push(entry, 1);
    }
    for _ in 0..100 {
        queue.push(0, 101);
    }
    let mut expected = vec![
        "WARN handler could not process entries: status 500 (1 attempts failed)",
        "WARN queue at 80% capacity",
        "ERROR queue full, dropping old entries until processing is successful again (1 dropped)",
        "ERROR string to be queued is longer (101 bytes) than the queue's max_bytes (100 bytes) (1 refused)",
    ];
    assert_eq!(lines_about("losses"), expected);
    sleep(LOG_INTERVAL).await;
    queue.push(1, 1);
    queue.push(2, 98);
    expected.extend([
        "ERROR queue full, dropping old entries until processing is successful again (995 dropped)",
        "ERROR byte capacity exceeded, 2 queue entries were dropped",
    ]);
    assert_eq!(lines_about("losses"), expected);
    queues.drain(Instant::now() + SECOND).await;
    expected.extend([
        "WARN handler could not process entries: status 500 (1 attempts failed)",
        "ERROR 4 queue entries were lost because the gateway shuts down",
    ]);
    assert_eq!(lines_about("losses"), expected);
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_is_given_up_and_a_recovery_are_logged() {
    let queues = Queues::new(Background::here());
    let params = QueueParams {
        max_entries: 1,
        max_retry_time: None,
        ..QueueParams::default()
    };
    let queue = failing(&queues, "given-up", params);
    queue.push(1, 1);
    queue.push(2, 1);
    sleep(SECOND).await;
    let lines = lines_about("given-up");
    let lost =
        "ERROR could not send entries due to max_retry_time exceeded. 1 queue entries were lost";
    for expected in ["INFO queue resumed processing", lost] {
        assert!(lines.iter().any(|line| line == expected), "{lines:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn credentials_in_the_name_of_a_queue_are_not_logged() {
    let queues = Queues::new(Background::here());
    let queue = failing(
        &queues,
        "http://me:secret@log.test:POST",
        QueueParams::default(),
    );
    queue.push(1, 1);
    sleep(SECOND).await;
    assert!(!lines_about("http://***@log.test:POST").is_empty());
    assert!(!String::from_utf8_lossy(&LOG.lock().unwrap()).contains("secret"));
}
