//! What a connection would not take at once. Holds memory only while a write is incomplete; as long as it is not empty,
//! nothing more is read from the other side: that is the back-pressure.

use crate::stream::Stream;
use std::io::{self, ErrorKind};
use std::task::{Context, Poll, ready};

/// A buffer larger than this is given back as soon as it is empty.
const KEPT_BYTES: usize = 4 * 1024;

#[derive(Debug, Default)]
pub struct Outgoing {
    bytes: Vec<u8>,
    written: usize,
    /// TLS has taken everything but could not send it.
    unflushed: bool,
    sent: u64,
}

impl Outgoing {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty() && !self.unflushed
    }

    /// Sends the two pieces as one, after what is still waiting; keeps what does not go.
    #[inline]
    pub fn send(
        &mut self,
        stream: &mut Stream,
        cx: &mut Context<'_>,
        first: &[u8],
        second: &[u8],
    ) -> io::Result<()> {
        if !self.is_empty() {
            self.keep(0, first, second);
            return Ok(());
        }
        let written = match stream.poll_write(cx, first, second) {
            Poll::Ready(written) => written?,
            Poll::Pending => 0,
        };
        self.sent += written as u64;
        if written < first.len() + second.len() {
            self.keep(written, first, second);
            // Tried again at once: only a write that finds no room makes the runtime say when there is some.
            if let Poll::Ready(Err(error)) = self.poll_flush_slow(stream, cx) {
                return Err(error);
            }
        } else if stream.keeps_back() {
            self.unflushed = match stream.poll_flush(cx) {
                Poll::Ready(flushed) => {
                    flushed?;
                    false
                }
                Poll::Pending => true,
            };
        }
        Ok(())
    }

    /// Appends without trying to write; for a connection that is not there yet.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Forgets what waits.
    pub fn clear(&mut self) {
        *self = Self {
            sent: self.sent,
            ..Self::default()
        };
    }

    fn keep(&mut self, written: usize, first: &[u8], second: &[u8]) {
        // A receiver that always takes some and never all would make this grow without end.
        if self.written > self.bytes.len() / 2 {
            self.bytes.drain(..self.written);
            self.written = 0;
        }
        if written < first.len() {
            self.bytes.extend_from_slice(&first[written..]);
            self.bytes.extend_from_slice(second);
        } else {
            self.bytes
                .extend_from_slice(&second[written - first.len()..]);
        }
    }

    /// Ready when nothing is left.
    #[inline]
    pub fn poll_flush(
        &mut self,
        stream: &mut Stream,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        if self.is_empty() {
            Poll::Ready(Ok(()))
        } else {
            self.poll_flush_slow(stream, cx)
        }
    }

    fn poll_flush_slow(
        &mut self,
        stream: &mut Stream,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while self.written < self.bytes.len() {
            match ready!(stream.poll_write(cx, &self.bytes[self.written..], b""))? {
                0 => return Poll::Ready(Err(ErrorKind::WriteZero.into())),
                written => {
                    self.written += written;
                    self.sent += written as u64;
                }
            }
            self.unflushed = true;
        }
        ready!(stream.poll_flush(cx))?;
        self.unflushed = false;
        self.written = 0;
        self.bytes.clear();
        if self.bytes.capacity() > KEPT_BYTES {
            self.bytes = Vec::new();
        }
        Poll::Ready(Ok(()))
    }

    /// Bytes that the stream took since counting was started.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    #[inline]
    pub fn start_counting(&mut self) {
        self.sent = 0;
    }

    /// How many of the bytes that were sent have left, since counting was started. Compared over time it shows whether a
    /// peer still takes any. A stream of HTTP/2 accepts a whole write, and lets go of it as the peer opens its window.
    pub fn taken(&self, stream: &Stream) -> u64 {
        self.sent.saturating_sub(stream.held_back() as u64)
    }

    /// How many bytes wait here.
    pub fn waiting(&self) -> usize {
        self.bytes.len() - self.written
    }
}
