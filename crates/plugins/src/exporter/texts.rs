//! The texts of one request on their way into a queue. They are written one after the other into memory of the worker, and
//! copied into the queue together.

use services::queue::{Queue, Text};
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
    pub(crate) out: Vec<u8>,
    /// Number of texts in `out`.
    count: usize,
}

impl<'q> Texts<'q> {
    pub(super) fn new(queue: &'q Queue<Text>, most: usize) -> Self {
        let mut out = BUFFER.take();
        out.clear();
        Self {
            queue,
            most,
            out,
            count: 0,
        }
    }

    /// Ends a text, which was written at the end of `out` with its separator in front of it.
    #[inline]
    pub(crate) fn end(&mut self) {
        self.count += 1;
        if self.count >= self.most {
            self.pass_on();
        }
    }

    fn pass_on(&mut self) {
        if self.count > 0 {
            self.queue.push_texts(self.count, &self.out);
            self.count = 0;
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
