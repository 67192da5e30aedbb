//! Output that a connection did not accept immediately. It uses memory only while a write is incomplete. While bytes
//! wait, the gateway reads nothing more from the other side (back-pressure).

use crate::stream::Stream;
use std::io::{self, ErrorKind};
use std::task::{Context, Poll, ready};

/// Maximum capacity of an empty buffer. A larger buffer is freed as soon as it is empty.
const KEPT_BYTES: usize = 4 * 1024;

#[derive(Debug, Default)]
pub struct Outgoing {
    bytes: Vec<u8>,
    written: usize,
    /// Whether the stream may hold bytes that it has accepted but not sent.
    unflushed: bool,
    sent: u64,
}

impl Outgoing {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty() && !self.unflushed
    }

    /// Writes both pieces, in one write if possible. Stores the bytes that the connection does not accept. If earlier
    /// bytes are still waiting, only appends to them.
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
            // Write again immediately: tokio wakes the task only after a write that returned `Pending`.
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

    /// Appends bytes without writing them, for a connection that is not open yet.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Discards the waiting bytes.
    pub fn clear(&mut self) {
        *self = Self {
            sent: self.sent,
            ..Self::default()
        };
    }

    fn keep(&mut self, written: usize, first: &[u8], second: &[u8]) {
        // Remove the written bytes. Otherwise the buffer would grow without limit if the receiver always leaves some
        // bytes.
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

    /// Sends the waiting bytes; ready when all have been sent.
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

    /// Number of bytes that the stream has accepted since [`Outgoing::start_counting`].
    pub fn sent(&self) -> u64 {
        self.sent
    }

    #[inline]
    pub fn start_counting(&mut self) {
        self.sent = 0;
    }

    /// Number of bytes sent since [`Outgoing::start_counting`]. If it grows over time, the peer still accepts data.
    /// Bytes that an HTTP/2 stream holds back are not counted: it accepts a whole write, and sends it as the peer opens
    /// its window.
    pub fn taken(&self, stream: &Stream) -> u64 {
        self.sent.saturating_sub(stream.held_back() as u64)
    }

    /// Number of bytes that wait to be sent.
    pub fn waiting(&self) -> usize {
        self.bytes.len() - self.written
    }
}
