//! Entries that are texts, such as log records.
//!
//! A queue copies the texts that wait into chunks, so that a push usually allocates nothing and a chunk is freed as a
//! whole. Texts that were pushed one after the other are next to each other in memory. When the task takes them, it
//! joins them again without a copy, so that a batch of a thousand records is a few pieces.
//!
//! A text that is long to write, and short to describe, is written by the task: a worker pushes what it is written from
//! ([`Queue::push_unwritten`]). So it costs the worker little time, and little memory that is new to the processor's
//! caches.

use super::state::Size;
use super::{Queue, SendError, Sender};
use bytes::{Bytes, BytesMut};
use std::fmt;
use std::sync::Arc;
use tokio::task::yield_now;

/// Sizes of a chunk. It grows with the texts that wait, so that a queue that is rarely used takes little memory.
const SMALLEST_CHUNK: usize = 4 * 1024;
const LARGEST_CHUNK: usize = 64 * 1024;
/// Number of texts that are written before other tasks run.
const AT_ONCE: usize = 64;
/// Size above which a text is allocated alone. The rest of a chunk that is left unused is never larger.
const LARGEST_TEXT: usize = LARGEST_CHUNK / 4;

/// Texts that were pushed one after the other, each after its separator or, if they are lines, before its line end.
pub struct Text {
    bytes: BytesMut,
    entries: usize,
    /// What the text is still to be written from. A sender gets no such text.
    unwritten: Option<Box<dyn Unwritten>>,
}

/// A text that is written when its batch is sent.
pub trait Unwritten: Send + Sync {
    /// Appends the text, with its separator or line end.
    fn write(&self, out: &mut Vec<u8>);
}

/// The chunk that a queue fills. It belongs to one queue: if queues shared a chunk, the texts of a slow receiver would
/// keep those of a fast one in memory.
#[derive(Default)]
pub(super) struct Chunk(BytesMut);

impl Chunk {
    /// Copies texts that are given in three parts. `waiting` is the size of the texts that wait.
    #[inline]
    fn add(&mut self, entries: usize, parts: [&[u8]; 3], waiting: u64) -> Text {
        if self.0.capacity() < size(parts) {
            return self.add_slow(entries, parts, waiting);
        }
        for part in parts {
            self.0.extend_from_slice(part);
        }
        Text::new(self.0.split(), entries)
    }

    /// Copies texts, and leaves the rest of the chunk to them, so that those that follow can be added in place.
    pub(super) fn open(&mut self, entries: usize, texts: &[u8], waiting: u64) -> Text {
        if texts.len() > LARGEST_TEXT {
            return self.add(entries, [texts, b"", b""], waiting);
        }
        if self.0.capacity() < texts.len() {
            self.renew(texts.len(), waiting);
        }
        self.0.extend_from_slice(texts);
        Text::new(std::mem::take(&mut self.0), entries)
    }

    /// Takes the rest of the chunk from texts that [`Self::open`] has returned.
    #[inline]
    pub(super) fn close(&mut self, last: &mut Text) {
        if self.0.capacity() == 0 && last.bytes.capacity() > last.bytes.len() {
            self.0 = last.bytes.split_off(last.bytes.len());
        }
    }

    #[cold]
    fn add_slow(&mut self, entries: usize, parts: [&[u8]; 3], waiting: u64) -> Text {
        let needed = size(parts);
        if needed > LARGEST_TEXT {
            let mut bytes = BytesMut::with_capacity(needed);
            for part in parts {
                bytes.extend_from_slice(part);
            }
            return Text::new(bytes, entries);
        }
        self.renew(needed, waiting);
        self.add(entries, parts, waiting)
    }

    /// Makes room for a text. `waiting` is the size of the texts that wait.
    #[cold]
    fn renew(&mut self, needed: usize, waiting: u64) {
        let size = (waiting as usize).clamp(SMALLEST_CHUNK, LARGEST_CHUNK);
        let size = size.next_power_of_two().max(needed);
        // If no text of the chunk is in use, its memory is used again.
        if !self.0.try_reclaim(size) {
            self.0 = BytesMut::with_capacity(size);
        }
    }
}

#[inline]
fn size(parts: [&[u8]; 3]) -> usize {
    parts.iter().map(|part| part.len()).sum()
}

impl Text {
    fn new(bytes: BytesMut, entries: usize) -> Self {
        Self {
            bytes,
            entries,
            unwritten: None,
        }
    }

    /// Adds copies of texts in place, if there is room for them.
    #[inline]
    pub(super) fn extend(&mut self, entries: usize, texts: &[u8]) -> bool {
        let fits = self.bytes.capacity() - self.bytes.len() >= texts.len();
        if fits {
            self.bytes.extend_from_slice(texts);
            self.entries += entries;
        }
        fits
    }

    /// The number of texts.
    pub fn entries(&self) -> usize {
        self.entries
    }

    /// Appends texts if they follow in memory. Otherwise it returns them.
    fn join(&mut self, next: Self) -> Option<Self> {
        let end = self.bytes.as_ptr_range().end;
        // Empty ones, such as those that are to be written, can be at the same address.
        if end != next.bytes.as_ptr() || self.bytes.is_empty() || next.bytes.is_empty() {
            return Some(next);
        }
        // If the two are neighbours by chance, this copies.
        self.bytes.unsplit(next.bytes);
        self.entries += next.entries;
        None
    }

    /// Writes the texts that are still to be written, next to each other. Now and then it lets other tasks of the thread run.
    async fn write_all(batch: Vec<Self>) -> Vec<Self> {
        if batch.iter().all(|text| text.unwritten.is_none()) {
            return batch;
        }
        let (mut written, mut one, mut chunk) = (Vec::new(), Vec::new(), Chunk::default());
        // Sizes are estimates, so that only a single text gets a chunk of its size.
        let waiting = if batch.len() > 1 { LARGEST_CHUNK } else { 0 };
        for (at, text) in batch.into_iter().enumerate() {
            if at % AT_ONCE == AT_ONCE - 1 {
                yield_now().await;
            }
            let text = match &text.unwritten {
                None => text,
                Some(unwritten) => {
                    one.clear();
                    unwritten.write(&mut one);
                    chunk.add(text.entries, [&one, b"", b""], waiting as u64)
                }
            };
            let apart = match written.last_mut() {
                Some(last) => Self::join(last, text),
                None => Some(text),
            };
            written.extend(apart);
        }
        written
    }

    /// Returns the texts of a batch, of which each piece keeps the batch in memory.
    pub fn pieces(batch: &Arc<Vec<Self>>) -> impl Iterator<Item = Bytes> {
        (0..batch.len()).map(|at| {
            let batch = Arc::clone(batch);
            Bytes::from_owner(Piece { batch, at })
        })
    }
}

/// Owns one of the pieces of a batch.
struct Piece {
    batch: Arc<Vec<Text>>,
    at: usize,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.batch[self.at].bytes
    }
}

impl AsRef<[u8]> for Text {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts = String::from_utf8_lossy(&self.bytes);
        formatter.debug_tuple("Text").field(&texts).finish()
    }
}

impl Queue<Text> {
    /// Adds a copy of a text, which follows its separator. The size of the text counts against `max_bytes`. It never
    /// waits for the receiver of the texts.
    #[inline]
    pub fn push_text(&self, separator: u8, text: &[u8]) {
        self.state.push(Size::new(1, text.len()), |chunk, waiting| {
            chunk.add(1, [&[separator], text, b""], waiting)
        });
    }

    /// Adds a copy of this number of texts, each of which has its separator in front of it. They are sent or dropped
    /// together, so there should not be more of them than [`super::QueueParams::most_together`] returns. Texts that were
    /// pushed before them can be sent or dropped with them, as long as they are an eighth of that number, and of
    /// `max_bytes`. A queue should get all its texts in this way or none: those that were pushed last keep the rest of a
    /// chunk until others are.
    #[inline]
    pub fn push_texts(&self, number: usize, texts: &[u8]) {
        self.state.push_texts(Size::new(number, texts.len()), texts);
    }

    /// Adds a text that is written when its batch is sent. `bytes` is about its size, which counts against `max_bytes`.
    #[inline]
    pub fn push_unwritten(&self, text: Box<dyn Unwritten>, bytes: usize) {
        self.state.push(Size::new(1, bytes), |_, _| Text {
            unwritten: Some(text),
            ..Text::new(BytesMut::new(), 1)
        });
    }

    /// Counts and reports a text that is left out because it makes the texts of one request this long, which is more than
    /// `max_bytes`.
    #[cold]
    pub fn refuse_text(&self, bytes: usize) {
        self.state.refuse(Size::new(1, bytes));
    }

    /// Adds a copy of one or several lines, which follow a prefix. They are given without the last line end. Like
    /// [`Self::push_text`].
    #[inline]
    pub fn push_lines(&self, prefix: &[u8], lines: &[u8]) {
        let size = Size::new(1, prefix.len() + lines.len());
        self.state.push(size, |chunk, waiting| {
            chunk.add(1, [prefix, lines, b"\n"], waiting)
        });
    }
}

impl Sender<Text> {
    /// Makes a sender whose batches have as few pieces as possible.
    pub fn of_texts<F>(send: impl Fn(Arc<Vec<Text>>) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<(), SendError>> + Send + 'static,
    {
        Self {
            join: Some(Text::join),
            prepare: Some(|batch| Box::pin(Text::write_all(batch))),
            ..Self::new(send)
        }
    }
}
