//! The access log: a line for each request. Lines are made on the worker, into a buffer of its own, and handed to a thread that
//! writes them, many at a time. A worker waits neither for the disk nor for that thread: where the writer does not keep up,
//! lines are dropped and counted.
//!
//! Not here: files, and the thread that writes them. The program has those.

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

/// A buffer is handed over when it has grown to this,
const HAND_OVER_BYTES: usize = 32 * 1024;
/// or when its first line is this old.
pub(crate) const HAND_OVER_AFTER: Duration = Duration::from_millis(100);
/// What may wait for the writer, for each worker.
const LANE_BYTES: usize = 4 * 1024 * 1024;

/// A log that several threads write to.
#[derive(Clone)]
pub struct AccessLog {
    format: Arc<Format>,
    lanes: Arc<[Lane]>,
    writer: Thread,
}

impl AccessLog {
    /// `writer` is the thread that takes what is in the lanes, one for each worker, when it is woken up.
    pub fn new(format: Arc<Format>, lanes: Arc<[Lane]>, writer: Thread) -> Self {
        Self {
            format,
            lanes,
            writer,
        }
    }

    pub fn format(&self) -> &Format {
        &self.format
    }

    /// Hands over lines from a thread that may wait a moment, as workers may not.
    pub fn give(&self, lane: usize, lines: Vec<u8>) {
        if let Some(lane) = self.lanes.get(lane) {
            lane.give(lines);
        }
        self.writer.unpark();
    }
}

impl fmt::Debug for AccessLog {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("AccessLog")
    }
}

/// From one worker to the writer.
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
    /// Empties `lines` in any case.
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

    /// Adds a line, from a thread that may wait a moment. The writer is to be woken up.
    pub fn give(&self, mut line: Vec<u8>) {
        self.lock().add(&mut line, 1, &self.dropped);
    }

    /// For the writer: what waits, in whole lines, in exchange for an empty buffer that may have room already.
    pub fn take(&self, spare: Vec<u8>) -> Vec<u8> {
        debug_assert!(spare.is_empty());
        std::mem::replace(&mut self.lock().bytes, spare)
    }

    /// Lines that are lost, so far.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// For the writer, which could not write them.
    pub fn count_dropped(&self, lines: u64) {
        self.dropped.fetch_add(lines, Ordering::Relaxed);
    }
}

/// The log as one worker has it.
pub(crate) struct Journal {
    log: AccessLog,
    lane: usize,
    clock: Clock,
    buffer: Vec<u8>,
    /// In the buffer.
    lines: u64,
}

/// What is to be done after a line was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Written {
    /// It is the first in the buffer: call [`Journal::hand_over`] in a while.
    First,
    Another,
}

impl Journal {
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
        match first && !self.buffer.is_empty() {
            true => Written::First,
            false => Written::Another,
        }
    }

    /// Gives the writer what there is. When it is just looking into the lane, the next time will do; but not for ever.
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

    /// Something waits that was not handed over.
    pub(crate) fn has_lines(&self) -> bool {
        !self.buffer.is_empty()
    }
}
