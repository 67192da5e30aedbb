//! The queue of the error log and the thread that empties it. A thread that logs never waits: while nobody reads the log, lines
//! wait in the queue, and when that is full they are lost and counted. A log line says how many as soon as there is room again.

use super::kinds::Kinds;
use crate::output::Output;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;
use tracing_subscriber::fmt::MakeWriter;

/// Bytes that may wait to be written.
const MOST_BYTES: usize = 4 << 20;
/// Lines that may wait to be written.
const MOST_LINES: usize = 1 << 14;
/// Lines are written together up to this many bytes.
const BATCH_BYTES: usize = 64 * 1024;
/// Longest wait for the last lines at the end of the process.
const LAST_LINES: Duration = Duration::from_secs(2);

/// The end of the queue that lines are put into.
#[derive(Clone)]
pub(super) struct Queue {
    sender: SyncSender<Item>,
    shared: Arc<Shared>,
}

enum Item {
    Line(Vec<u8>),
    /// The writer looks around: at its target, at lines that are held back, at the end.
    Wake,
}

#[derive(Default)]
struct Shared {
    /// Bytes of the lines in the queue.
    bytes: AtomicUsize,
    lost: AtomicU64,
    /// The target that replaces the writer's.
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
    /// Puts a line into the queue, or counts it as lost when there is no room.
    fn push(&self, line: &[u8]) {
        let waiting = self.shared.bytes.fetch_add(line.len(), Ordering::Relaxed);
        let has_room = waiting + line.len() <= MOST_BYTES;
        if !has_room || self.sender.try_send(Item::Line(line.to_vec())).is_err() {
            self.shared.bytes.fetch_sub(line.len(), Ordering::Relaxed);
            self.shared.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn wake(&self) {
        // With a full queue the writer has something to do, and looks around between two batches.
        let _ = self.sender.try_send(Item::Wake);
    }

    /// Lines that were lost so far.
    pub(super) fn lost(&self) -> u64 {
        self.shared.lost.load(Ordering::Relaxed)
    }

    /// Lets the writer go on with another target.
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

/// Takes one line at a time: the formatter writes each in one piece.
pub(super) struct Lines<'a>(&'a Queue);

impl Write for Lines<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Waits, at the end of the process, until what was logged is written; but not for ever.
pub(crate) struct Flush {
    queue: Queue,
    ended: Receiver<()>,
}

impl Drop for Flush {
    fn drop(&mut self) {
        self.queue.shared.ending.store(true, Ordering::Release);
        self.queue.wake();
        // A log that nobody reads must not keep the process.
        let _ = self.ended.recv_timeout(LAST_LINES);
    }
}

/// A queue and what its writer is made of.
pub(super) fn queue() -> (Queue, Lane) {
    let (sender, items) = sync_channel(MOST_LINES);
    let shared = Arc::<Shared>::default();
    let queue = Queue {
        sender,
        shared: Arc::clone(&shared),
    };
    (queue, Lane { items, shared })
}

/// The end of the queue that lines are taken out of.
pub(super) struct Lane {
    items: Receiver<Item>,
    shared: Arc<Shared>,
}

/// Starts the thread that writes to `output`, until the [`Flush`] is dropped.
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
        // Nobody waits when the process is killed.
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
    /// The last batch was written.
    is_writable: bool,
    /// Lost lines that the log has told already.
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
            // Asked before the queue is: what is in it by then is to be written.
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
            self.tell_lost();
            self.write(&mut batch, lines);
            self.kinds.tell_due();
            if is_ending && lines == 0 {
                return;
            }
        }
    }

    fn next(&self, is_ending: bool) -> Result<Item, RecvTimeoutError> {
        let wait = match is_ending || self.untold() > 0 {
            true => Some(Duration::ZERO),
            false => self.kinds.next_due(),
        };
        match wait {
            Some(wait) => self.lane.items.recv_timeout(wait),
            None => (self.lane.items.recv()).map_err(|_| RecvTimeoutError::Disconnected),
        }
    }

    /// Takes the lines that wait already, as many as are written at once.
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
        // What was logged before the target changed belongs to the former one.
        if let Some(next) = self.lane.shared.next() {
            self.output = next;
        }
    }

    /// Lost lines that are to be told: there are none as long as nothing can be written.
    fn untold(&self) -> u64 {
        match self.is_writable {
            true => self.lane.shared.lost.load(Ordering::Relaxed) - self.told_lost,
            false => 0,
        }
    }

    /// Says how many lines were lost. Called when lines were just taken out of the queue, so that there is room.
    fn tell_lost(&mut self) {
        let lines = self.untold();
        if lines == 0 {
            return;
        }
        tracing::error!(lines, "{lines} lines of this log were lost");
        // The line about lost lines can be lost as well; it is then written again.
        if self.untold() == lines {
            self.told_lost += lines;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Read;
    use std::os::fd::OwnedFd;
    use tracing_subscriber::layer::SubscriberExt;

    /// A queue, its writer, which writes into a pipe, and the end of the pipe to read from.
    fn log_into_pipe() -> (Queue, Writer, File) {
        let (read, write) = io::pipe().expect("a pipe");
        let (queue, lane) = queue();
        let output = Output::File(File::from(OwnedFd::from(write)));
        let kinds = Arc::new(Kinds::new(queue.clone()));
        let writer = Writer::new(lane, output, kinds);
        (queue, writer, File::from(OwnedFd::from(read)))
    }

    #[test]
    fn whoever_logs_does_not_wait_for_a_reader_who_hears_of_what_was_lost() {
        let (queue, writer, mut pipe) = log_into_pipe();
        let lines = tracing_subscriber::fmt::layer()
            .with_ansi(false)
            .with_writer(queue.clone());
        let subscriber = tracing_subscriber::registry().with(lines);
        let writer = thread::spawn(move || {
            tracing::subscriber::with_default(subscriber, || writer.run());
        });
        // More than the queue and the pipe have room for; nobody reads yet.
        let line = [b"x".repeat(1023), vec![b'\n']].concat();
        let count = (2 * MOST_BYTES / line.len()) as u64;
        (0..count).for_each(|_| queue.push(&line));
        assert!(queue.lost() > 0);
        let reader = thread::spawn(move || {
            let mut text = String::new();
            pipe.read_to_string(&mut text).map(|_| text)
        });
        queue.shared.ending.store(true, Ordering::Release);
        queue.wake();
        writer.join().expect("it ends");
        let text = reader.join().expect("it ends").expect("the log is text");
        let (kept, told): (Vec<_>, Vec<_>) = text.lines().partition(|line| line.starts_with('x'));
        assert!(!kept.is_empty());
        let told = told.iter().map(|line| {
            let number = line
                .rsplit_once("lines=")
                .expect("a line about lost lines")
                .1;
            number.parse::<u64>().expect("a number")
        });
        assert_eq!(told.sum::<u64>(), queue.lost());
    }

    #[test]
    fn the_end_does_not_wait_for_ever() {
        let (read, write) = io::pipe().expect("a pipe");
        let (queue, lane) = queue();
        let output = Output::File(File::from(OwnedFd::from(write)));
        let kinds = Arc::new(Kinds::new(queue.clone()));
        let flush = start(&queue, lane, output, kinds).expect("a thread");
        queue.push(&b"x".repeat(MOST_BYTES / 2));
        drop(flush);
        drop(read);
    }
}
