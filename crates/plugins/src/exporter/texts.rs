//! The texts of one request on their way into a queue. They are written one after the other into memory of the worker, and
//! copied into the queue together.
//!
//! If a queue is too small for all texts of a request, it gets those that fit, the first ones before the others: the span of
//! the request says more than those of its parts.

use services::queue::{Queue, QueueParams, Text};
use std::cell::RefCell;

/// Capacity above which the buffer of a worker is freed.
const KEPT_CAPACITY: usize = 64 * 1024;

thread_local! {
    /// The texts of the last request. Their memory is reused, so that it is in the cache.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Texts that are being written.
pub(crate) struct Texts<'q> {
    queue: &'q Queue<Text>,
    /// Maximum number of texts that are copied together: a batch has no more.
    most: usize,
    /// Maximum size of the texts of one request.
    max_bytes: usize,
    pub(crate) out: Vec<u8>,
    /// Number of texts in `out`, and where the last one ends.
    count: usize,
    end: usize,
    /// Size of the texts that the queue has.
    passed_on: usize,
}

impl<'q> Texts<'q> {
    pub(super) fn new(queue: &'q Queue<Text>, params: &QueueParams) -> Self {
        let mut out = BUFFER.take();
        out.clear();
        Self {
            queue,
            most: params.most_together(),
            max_bytes: params.max_bytes(),
            out,
            count: 0,
            end: 0,
            passed_on: 0,
        }
    }

    /// Ends a text, which was written at the end of `out` with its separator in front of it.
    #[inline]
    pub(crate) fn end(&mut self) {
        if self.passed_on + self.out.len() > self.max_bytes {
            return self.refuse();
        }
        self.count += 1;
        self.end = self.out.len();
        if self.count >= self.most {
            self.pass_on();
        }
    }

    /// Leaves out the text that was written last. The queue would drop all texts of the request, or older ones of it.
    #[cold]
    fn refuse(&mut self) {
        self.queue.refuse_text(self.passed_on + self.out.len());
        self.out.truncate(self.end);
        if self.end == 0 && self.passed_on == 0 {
            // Without the first text, the others belong to nothing.
            self.max_bytes = 0;
        }
    }

    fn pass_on(&mut self) {
        if self.count > 0 {
            self.queue.push_texts(self.count, &self.out);
            self.count = 0;
            self.end = 0;
            self.passed_on += self.out.len();
            self.out.clear();
        }
    }
}

/// Copies what is left into the queue, and gives the buffer back.
impl Drop for Texts<'_> {
    fn drop(&mut self) {
        self.pass_on();
        if self.out.capacity() <= KEPT_CAPACITY {
            BUFFER.set(std::mem::take(&mut self.out));
        }
    }
}
