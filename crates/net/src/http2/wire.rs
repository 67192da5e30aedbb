//! The connection below HTTP/2. The `h2` crate writes every larger DATA frame by itself and flushes after it; here frames
//! of many streams gather, and leave in one write when the connection's task has nothing more to do. It is also where one
//! sees what `h2` does not tell: how much was read, and since when the peer has not taken what is written.

use crate::stream::Stream;
use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

/// Up to here frames are gathered; beyond it they are written, together with what waits.
const GATHERED_BYTES: usize = 32 * 1024;
/// A buffer larger than this is given back when it is empty.
const KEPT_BYTES: usize = 4 * 1024;

#[derive(Debug)]
pub(super) struct Line {
    stream: Stream,
    /// Read before it was known that this is HTTP/2.
    before: Vec<u8>,
    out: Vec<u8>,
    written: usize,
    /// TLS has taken everything but could not send it.
    unflushed: bool,
    pub(super) read: u64,
    pub(super) last_read: Instant,
    /// Since when the peer has taken nothing although there is something for it.
    pub(super) blocked_since: Option<Instant>,
}

impl Line {
    fn poll_put(
        &mut self,
        cx: &mut Context<'_>,
        first: &[u8],
        second: &[u8],
    ) -> Poll<io::Result<usize>> {
        let waiting = self.out.len() - self.written;
        if waiting + first.len() + second.len() <= GATHERED_BYTES {
            self.out.extend_from_slice(first);
            self.out.extend_from_slice(second);
            return Poll::Ready(Ok(first.len() + second.len()));
        }
        let put = self.poll_put_through(cx, first, second);
        self.note(put.is_pending());
        put
    }

    /// What waits goes first, in one write with the beginning of what follows.
    fn poll_put_through(
        &mut self,
        cx: &mut Context<'_>,
        first: &[u8],
        second: &[u8],
    ) -> Poll<io::Result<usize>> {
        let next = if first.is_empty() { second } else { first };
        while self.written < self.out.len() {
            let waiting = &self.out[self.written..];
            let written = ready!(self.stream.poll_write(cx, waiting, next))?;
            self.unflushed = true;
            if written == 0 {
                return Poll::Ready(Err(ErrorKind::WriteZero.into()));
            }
            if written > waiting.len() {
                let of_next = written - waiting.len();
                self.clear();
                return Poll::Ready(Ok(of_next));
            }
            self.written += written;
        }
        self.clear();
        self.unflushed = true;
        self.stream.poll_write(cx, first, second)
    }

    /// Sends what was gathered.
    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.out.is_empty() && !self.unflushed {
            return Poll::Ready(Ok(()));
        }
        let flushed = self.poll_flush_out(cx);
        self.note(flushed.is_pending());
        flushed
    }

    fn poll_flush_out(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.written < self.out.len() {
            match ready!(self.stream.poll_write(cx, &self.out[self.written..], b""))? {
                0 => return Poll::Ready(Err(ErrorKind::WriteZero.into())),
                written => self.written += written,
            }
            self.unflushed = true;
            // Something went: whoever takes a little is slow, not dead.
            self.blocked_since = None;
        }
        self.clear();
        ready!(self.stream.poll_flush(cx))?;
        self.unflushed = false;
        Poll::Ready(Ok(()))
    }

    fn clear(&mut self) {
        self.written = 0;
        self.out.clear();
        if self.out.capacity() > KEPT_BYTES {
            self.out = Vec::new();
        }
    }

    fn note(&mut self, pending: bool) {
        match (pending, self.blocked_since) {
            (true, None) => self.blocked_since = Some(Instant::now()),
            (true, Some(_)) | (false, None) => {}
            (false, Some(_)) => self.blocked_since = None,
        }
    }

    fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let filled = buffer.filled().len();
        if self.before.is_empty() {
            ready!(self.stream.poll_read_buf(cx, buffer))?;
        } else {
            let taken = self.before.len().min(buffer.remaining());
            buffer.put_slice(&self.before[..taken]);
            self.before.drain(..taken);
            if self.before.is_empty() {
                self.before = Vec::new();
            }
        }
        self.read += (buffer.filled().len() - filled) as u64;
        self.last_read = Instant::now();
        Poll::Ready(Ok(()))
    }
}

/// A handle on the line: one is the `h2` connection's, one that of the task around it. Both are of one task, so nobody ever
/// waits for the lock.
#[derive(Debug, Clone)]
pub(super) struct Wire(Arc<Mutex<Line>>);

impl Wire {
    pub(super) fn new(stream: Stream, before: Vec<u8>) -> Self {
        Self(Arc::new(Mutex::new(Line {
            stream,
            before,
            out: Vec::new(),
            written: 0,
            unflushed: false,
            read: 0,
            last_read: Instant::now(),
            blocked_since: None,
        })))
    }

    pub(super) fn line(&self) -> MutexGuard<'_, Line> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.line().poll_fill(cx, buffer)
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.line().poll_put(cx, data, b"")
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let piece = |at: usize| pieces.get(at).map_or(&b""[..], |piece| piece);
        self.line().poll_put(cx, piece(0), piece(1))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Not yet: the task does it when the connection has no more frames to write.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut line = self.line();
        ready!(line.poll_flush(cx))?;
        line.stream.poll_shutdown(cx)
    }
}
