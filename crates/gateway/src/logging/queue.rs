//! The queue of the error log, and the thread that writes its lines. A thread that logs never waits. While nobody reads
//! the log, lines wait in the queue. When the queue is full, further lines are lost and counted. Once there is room
//! again, a log line reports their number.

use super::control;
use super::kinds::Kinds;
use crate::output::Output;
use std::cell::RefCell;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;
use tracing_subscriber::fmt::MakeWriter;

/// Maximum bytes that may wait to be written.
const MAX_BYTES: usize = 4 << 20;
/// Maximum number of lines that may wait to be written.
const MAX_LINES: usize = 1 << 14;
/// A batch of lines is written when it has this many bytes, or when the queue is empty.
const BATCH_BYTES: usize = 64 * 1024;
/// Maximum wait for the last lines at the end of the process.
const LAST_LINES: Duration = Duration::from_secs(2);

thread_local! {
    /// Collects the lines that this thread logs, if it is the writer and reports lost lines.
    static OWN_LINES: RefCell<Option<Vec<u8>>> = const { RefCell::new(None) };
}

/// Returns the lines that `work` logs on this thread. They do not go through the queue.
fn collect(work: impl FnOnce()) -> Vec<u8> {
    OWN_LINES.set(Some(Vec::new()));
    work();
    OWN_LINES.take().unwrap_or_default()
}

/// Adds a line to those that `collect` returns. Returns `false` if this thread does not collect.
fn is_collected(line: &[u8]) -> bool {
    // A line that is logged while the thread ends finds no collection.
    let collected = OWN_LINES.try_with(|lines| {
        let mut lines = lines.borrow_mut();
        lines.as_mut().map(|lines| lines.extend_from_slice(line))
    });
    matches!(collected, Ok(Some(())))
}

/// The sending end of the queue.
#[derive(Clone)]
pub(super) struct Queue {
    sender: SyncSender<Item>,
    shared: Arc<Shared>,
}

enum Item {
    Line(Vec<u8>),
    /// Wakes the writer, so that it checks for a new target, for held-back lines that it must report, and for the end
    /// of the process.
    Wake,
}

#[derive(Default)]
struct Shared {
    /// Bytes of the lines in the queue.
    bytes: AtomicUsize,
    lost: AtomicU64,
    /// The target that replaces the writer's current one.
    next: Mutex<Option<Output>>,
    ending: AtomicBool,
}

impl Shared {
    fn next(&self) -> Option<Output> {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        next.take()
    }
}

impl Queue {
    /// Adds a line to the queue, or counts it as lost if there is no room.
    fn push(&self, line: &[u8]) {
        if is_collected(line) {
            return;
        }
        let waiting = self.shared.bytes.fetch_add(line.len(), Ordering::Relaxed);
        let has_room = waiting + line.len() <= MAX_BYTES;
        if !has_room || self.sender.try_send(Item::Line(line.to_vec())).is_err() {
            self.shared.bytes.fetch_sub(line.len(), Ordering::Relaxed);
            self.shared.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn wake(&self) {
        // If the queue is full, the writer is busy and checks for changes between two batches anyway.
        let _ = self.sender.try_send(Item::Wake);
    }

    /// Returns the number of lines lost so far.
    pub(super) fn lost(&self) -> u64 {
        self.shared.lost.load(Ordering::Relaxed)
    }

    /// Makes the writer continue with another target.
    pub(super) fn redirect(&self, output: Output) {
        let mut next = self
            .shared
            .next
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *next = Some(output);
        drop(next);
        self.wake();
    }
}

impl<'a> MakeWriter<'a> for Queue {
    type Writer = Lines<'a>;

    fn make_writer(&'a self) -> Lines<'a> {
        Lines(self)
    }
}

/// Adds one line per call to the queue, because the formatter writes each line in one call.
pub(super) struct Lines<'a>(&'a Queue);

impl Write for Lines<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.push(&control::shown(line));
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Waits at the end of the process until all lines are written, for at most `LAST_LINES`.
pub(crate) struct Flush {
    queue: Queue,
    ended: Receiver<()>,
}

impl Drop for Flush {
    fn drop(&mut self) {
        self.queue.shared.ending.store(true, Ordering::Release);
        self.queue.wake();
        // A log that nobody reads must not keep the process alive.
        let _ = self.ended.recv_timeout(LAST_LINES);
    }
}

/// Creates both ends of a queue.
pub(super) fn queue() -> (Queue, Lane) {
    let (sender, items) = sync_channel(MAX_LINES);
    let shared = Arc::<Shared>::default();
    let queue = Queue {
        sender,
        shared: Arc::clone(&shared),
    };
    (queue, Lane { items, shared })
}

/// The receiving end of the queue.
pub(super) struct Lane {
    items: Receiver<Item>,
    shared: Arc<Shared>,
}

/// Starts the thread that writes to `output` until the [`Flush`] is dropped.
pub(super) fn start(
    queue: &Queue,
    lane: Lane,
    output: Output,
    kinds: Arc<Kinds>,
) -> io::Result<Flush> {
    let writer = Writer::new(lane, output, kinds);
    let (end, ended) = sync_channel(1);
    let run = move || {
        writer.run();
        // Sending fails only when nobody waits for the writer any more.
        let _ = end.send(());
    };
    let thread = thread::Builder::new().name("error-log".to_owned());
    thread.spawn(run)?;
    Ok(Flush {
        queue: queue.clone(),
        ended,
    })
}

struct Writer {
    lane: Lane,
    output: Output,
    kinds: Arc<Kinds>,
    /// Whether the last batch could be written.
    is_writable: bool,
    /// Number of lost lines that the log has already reported.
    told_lost: u64,
}

impl Writer {
    fn new(lane: Lane, output: Output, kinds: Arc<Kinds>) -> Self {
        Self {
            lane,
            output,
            kinds,
            is_writable: true,
            told_lost: 0,
        }
    }

    fn run(mut self) {
        let mut batch = Vec::new();
        loop {
            // Read `ending` before the queue: lines that are already queued at the end of the process must still be
            // written.
            let is_ending = self.lane.shared.ending.load(Ordering::Acquire);
            if is_ending {
                self.kinds.tell_all();
            }
            let is_first = match self.next(is_ending) {
                Ok(Item::Line(line)) => self.add(&mut batch, &line),
                Ok(Item::Wake) | Err(RecvTimeoutError::Timeout) => 0,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let lines = is_first + self.gather(&mut batch);
            let lost = self.tell_lost(&mut batch);
            self.write(&mut batch, lines);
            // A report that could not be written is repeated later.
            if self.is_writable {
                self.told_lost += lost;
            }
            self.kinds.tell_due();
            if is_ending && lines == 0 {
                return;
            }
        }
    }

    fn next(&self, is_ending: bool) -> Result<Item, RecvTimeoutError> {
        let wait = if is_ending || self.untold() > 0 {
            Some(Duration::ZERO)
        } else {
            self.kinds.next_due()
        };
        match wait {
            Some(wait) => self.lane.items.recv_timeout(wait),
            None => (self.lane.items.recv()).map_err(|_| RecvTimeoutError::Disconnected),
        }
    }

    /// Adds waiting lines to the batch until it is full, and returns their number.
    fn gather(&self, batch: &mut Vec<u8>) -> u64 {
        let mut lines = 0;
        while batch.len() < BATCH_BYTES {
            match self.lane.items.try_recv() {
                Ok(Item::Line(line)) => lines += self.add(batch, &line),
                Ok(Item::Wake) => {}
                Err(_) => break,
            }
        }
        lines
    }

    fn add(&self, batch: &mut Vec<u8>, line: &[u8]) -> u64 {
        let waiting = &self.lane.shared.bytes;
        waiting.fetch_sub(line.len(), Ordering::Relaxed);
        batch.extend_from_slice(line);
        1
    }

    fn write(&mut self, batch: &mut Vec<u8>, lines: u64) {
        if !batch.is_empty() {
            self.is_writable = self.output.write(batch).is_ok();
            if !self.is_writable {
                let lost = &self.lane.shared.lost;
                lost.fetch_add(lines, Ordering::Relaxed);
            }
            batch.clear();
        }
        // Lines that were logged before the target changed belong to the old target.
        if let Some(next) = self.lane.shared.next() {
            self.output = next;
        }
    }

    /// Returns the number of lost lines to report. It is 0 while nothing can be written.
    fn untold(&self) -> u64 {
        if self.is_writable {
            self.lane.shared.lost.load(Ordering::Relaxed) - self.told_lost
        } else {
            0
        }
    }

    /// Adds a report of lost lines to the batch, and returns their number. The report does not go through the queue, so
    /// it cannot be lost there.
    fn tell_lost(&self, batch: &mut Vec<u8>) -> u64 {
        let lines = self.untold();
        if lines > 0 {
            let report = || tracing::error!(lines, "{lines} lines of this log were lost");
            batch.extend_from_slice(&collect(report));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Read;
    use std::os::fd::OwnedFd;
    use tracing_subscriber::layer::SubscriberExt;

    /// Returns a queue, its writer, which writes into a pipe, and the reading end of the pipe.
    fn log_into_pipe() -> (Queue, Writer, File) {
        let (read, write) = io::pipe().expect("a pipe");
        let (queue, lane) = queue();
        let output = Output::File(File::from(OwnedFd::from(write)));
        let kinds = Arc::new(Kinds::new(queue.clone()));
        let writer = Writer::new(lane, output, kinds);
        (queue, writer, File::from(OwnedFd::from(read)))
    }

    #[test]
    fn logging_never_waits_and_reports_lost_lines() {
        let (queue, writer, mut pipe) = log_into_pipe();
        let lines = tracing_subscriber::fmt::layer()
            .with_ansi(false)
            .with_writer(queue.clone());
        let subscriber = tracing_subscriber::registry().with(lines);
        let writer = thread::spawn(move || {
            tracing::subscriber::with_default(subscriber, || writer.run());
        });
        // The lines exceed the capacity of the queue and the pipe, and nobody reads the pipe yet.
        let line = [b"x".repeat(1023), vec![b'\n']].concat();
        let count = (2 * MAX_BYTES / line.len()) as u64;
        (0..count).for_each(|_| queue.push(&line));
        assert!(queue.lost() > 0);
        let reader = thread::spawn(move || {
            let mut text = String::new();
            pipe.read_to_string(&mut text).map(|_| text)
        });
        queue.shared.ending.store(true, Ordering::Release);
        queue.wake();
        writer.join().expect("the writer does not panic");
        let text = reader
            .join()
            .expect("the reader does not panic")
            .expect("the log is text");
        let (kept, told): (Vec<_>, Vec<_>) = text.lines().partition(|line| line.starts_with('x'));
        assert!(!kept.is_empty());
        assert_eq!(told_lost(told.into_iter()), queue.lost());
    }

    /// Loses a line on another thread while the first report of lost lines is logged.
    struct LoseAnother {
        queue: Queue,
        once: std::sync::Once,
    }

    impl<S: tracing::Subscriber> tracing_subscriber::Layer<S> for LoseAnother {
        fn on_event(&self, _: &tracing::Event<'_>, _: tracing_subscriber::layer::Context<'_, S>) {
            self.once.call_once(|| {
                let queue = self.queue.clone();
                let lost = thread::spawn(move || queue.push(&too_long()));
                lost.join().expect("no panic");
            });
        }
    }

    fn too_long() -> Vec<u8> {
        vec![b'x'; MAX_BYTES + 1]
    }

    #[test]
    fn lines_lost_during_a_report_are_reported_once() {
        let (queue, writer, mut pipe) = log_into_pipe();
        let lines = tracing_subscriber::fmt::layer()
            .with_ansi(false)
            .with_writer(queue.clone());
        let lose = LoseAnother {
            queue: queue.clone(),
            once: std::sync::Once::new(),
        };
        let subscriber = tracing_subscriber::registry().with(lines).with(lose);
        queue.push(&too_long());
        queue.push(&too_long());
        queue.push(b"the end\n");
        queue.shared.ending.store(true, Ordering::Release);
        tracing::subscriber::with_default(subscriber, || writer.run());
        let mut text = String::new();
        pipe.read_to_string(&mut text).expect("the log is text");
        assert_eq!(queue.lost(), 3);
        assert_eq!(told_lost(text.lines()), 3, "{text}");
    }

    /// Returns the sum of the lost lines that these lines report.
    fn told_lost<'a>(lines: impl Iterator<Item = &'a str>) -> u64 {
        let numbers = lines.filter_map(|line| line.rsplit_once("lines="));
        let numbers = numbers.map(|(_, number)| number.parse::<u64>().expect("a number"));
        numbers.sum()
    }

    #[test]
    fn the_end_of_the_process_does_not_wait_forever() {
        let (read, write) = io::pipe().expect("a pipe");
        let (queue, lane) = queue();
        let output = Output::File(File::from(OwnedFd::from(write)));
        let kinds = Arc::new(Kinds::new(queue.clone()));
        let flush = start(&queue, lane, output, kinds).expect("a thread");
        queue.push(&b"x".repeat(MAX_BYTES / 2));
        drop(flush);
        drop(read);
    }
}
