//! The access log has one line for each request. Each worker formats lines into its own buffer and hands the buffer to
//! a writer thread. A worker never waits for the disk or for the writer. If the writer cannot keep up, lines are
//! dropped and counted.
//!
//! The files and the writer thread are in the crate `gateway`.

mod clock;
mod escape;
mod format;
mod line;
#[cfg(test)]
mod tests;

pub use format::{Format, FormatError};
pub use line::{Facts, Headers, RequestLine};

use clock::Clock;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::thread::Thread;
use std::time::{Duration, SystemTime};

/// Size at which a buffer is handed to the writer.
const HAND_OVER_BYTES: usize = 32 * 1024;
/// Age of its first line at which a buffer is handed to the writer.
pub(crate) const HAND_OVER_AFTER: Duration = Duration::from_millis(100);
/// Maximum size of the lines of one worker that wait for the writer.
const LANE_BYTES: usize = 4 * 1024 * 1024;

/// A log that several threads write to.
#[derive(Clone)]
pub struct AccessLog {
    format: Arc<Format>,
    /// Whether the format has headers of the response.
    pub(crate) reads_sent_head: bool,
    lanes: Arc<[Lane]>,
    writer: Thread,
}

impl AccessLog {
    /// Creates the log. There is one lane for each worker. `writer` is the thread that empties the lanes when it is
    /// woken up.
    pub fn new(format: Arc<Format>, lanes: Arc<[Lane]>, writer: Thread) -> Self {
        Self {
            reads_sent_head: format.reads_sent_head(),
            format,
            lanes,
            writer,
        }
    }

    pub fn format(&self) -> &Format {
        &self.format
    }

    /// Hands over one line from a thread that is not a worker. Workers must not call it, because it may block briefly on
    /// a lock.
    pub fn give(&self, lane: usize, line: Vec<u8>) {
        if let Some(lane) = self.lanes.get(lane) {
            lane.give(line);
        }
        self.writer.unpark();
    }
}

impl fmt::Debug for AccessLog {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("AccessLog")
    }
}

/// The queue of lines from one worker to the writer.
#[derive(Debug, Default)]
pub struct Lane {
    waiting: Mutex<Waiting>,
    dropped: AtomicU64,
}

#[derive(Debug, Default)]
struct Waiting {
    bytes: Vec<u8>,
}

impl Waiting {
    /// Adds lines, or drops and counts them if there is no room. Empties `lines` in both cases.
    fn add(&mut self, lines: &mut Vec<u8>, count: u64, dropped: &AtomicU64) {
        if self.bytes.is_empty() {
            std::mem::swap(&mut self.bytes, lines);
        } else if self.bytes.len() + lines.len() <= LANE_BYTES {
            self.bytes.extend_from_slice(lines);
        } else {
            dropped.fetch_add(count, Ordering::Relaxed);
        }
        lines.clear();
    }
}

impl Lane {
    fn lock(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds one line, or drops and counts it if there is no room. It may block briefly on a lock. The caller has to wake the writer up.
    pub fn give(&self, mut line: Vec<u8>) {
        self.lock().add(&mut line, 1, &self.dropped);
    }

    /// Returns the waiting lines, for the writer. `spare` is an empty buffer for the next lines.
    pub fn take(&self, spare: Vec<u8>) -> Vec<u8> {
        debug_assert!(spare.is_empty());
        std::mem::replace(&mut self.lock().bytes, spare)
    }

    /// Number of lines dropped so far.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Counts lines that the writer could not write.
    pub fn count_dropped(&self, lines: u64) {
        self.dropped.fetch_add(lines, Ordering::Relaxed);
    }
}

/// A worker's access to the log.
pub(crate) struct LogBuffer {
    log: AccessLog,
    lane: usize,
    clock: Clock,
    buffer: Vec<u8>,
    /// Number of lines in the buffer.
    lines: u64,
}

/// The result of [`LogBuffer::write`]: whether the caller has to schedule a hand-over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Written {
    /// The line is the first in the buffer: call [`LogBuffer::hand_over`] after [`HAND_OVER_AFTER`].
    First,
    Another,
}

impl LogBuffer {
    pub(crate) fn new(log: &AccessLog, lane: usize) -> Self {
        Self {
            log: log.clone(),
            lane,
            clock: Clock::default(),
            buffer: Vec::new(),
            lines: 0,
        }
    }

    pub(crate) fn write(&mut self, facts: &Facts<'_>) -> Written {
        let first = self.buffer.is_empty();
        self.clock.set(SystemTime::now());
        self.log.format.write(facts, &self.clock, &mut self.buffer);
        self.lines += 1;
        if self.buffer.len() >= HAND_OVER_BYTES {
            self.hand_over();
        }
        if first && !self.buffer.is_empty() {
            Written::First
        } else {
            Written::Another
        }
    }

    /// Hands the buffer to the writer. If another thread holds the lock of the lane, the lines stay in the buffer until
    /// the next call. If the buffer has reached `LANE_BYTES` by then, the lines are dropped.
    pub(crate) fn hand_over(&mut self) {
        if self.buffer.is_empty() {
            return;
        }
        let Some(lane) = self.log.lanes.get(self.lane) else {
            return;
        };
        let waiting = match lane.waiting.try_lock() {
            Ok(waiting) => Some(waiting),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        };
        match waiting {
            Some(mut waiting) => waiting.add(&mut self.buffer, self.lines, &lane.dropped),
            None if self.buffer.len() < LANE_BYTES => return,
            None => {
                lane.count_dropped(self.lines);
                self.buffer.clear();
            }
        }
        self.lines = 0;
        self.log.writer.unpark();
    }

    /// Whether the buffer has lines.
    pub(crate) fn has_lines(&self) -> bool {
        !self.buffer.is_empty()
    }
}
