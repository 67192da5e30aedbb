//! The byte layer between `h2` and the socket or TLS. It saves system calls: the `h2` crate writes and flushes every
//! large DATA frame separately, but this layer collects the frames of many streams and sends them in one write when the
//! connection's task has no more work. It also records facts that `h2` does not report: the number of bytes read, the
//! arriving frame, and since when the peer has accepted no bytes.

use crate::stream::Stream;
use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

/// Maximum size of the collected frames. A write that exceeds it goes to the socket, after the collected bytes.
const GATHERED_BYTES: usize = 32 * 1024;
/// Maximum capacity of an empty buffer. A larger buffer is freed as soon as it is empty.
const KEPT_BYTES: usize = 4 * 1024;

/// The connection with its collected output and its counters.
#[derive(Debug)]
pub(super) struct Line {
    stream: Stream,
    /// Bytes that the gateway read to detect HTTP/2, before it created this value. `h2` still has to read them.
    before: Vec<u8>,
    out: Vec<u8>,
    written: usize,
    /// Whether TLS may hold bytes that it has accepted but not sent.
    unflushed: bool,
    pub(super) read: u64,
    pub(super) last_read: Instant,
    arriving: Arriving,
    /// Stream whose DATA frame is incomplete, and the time when the last part of the frame arrived.
    partial: Option<(u32, Instant)>,
    /// Time since which bytes have waited and the peer has accepted none.
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

    /// Writes the collected bytes and the new ones, if possible in one write.
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
            // The peer accepted some bytes, so it is slow but not dead.
            self.blocked_since = None;
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

    /// Sends the collected bytes.
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
        let read = &buffer.filled()[filled..];
        self.read += read.len() as u64;
        self.last_read = Instant::now();
        let stream = self.arriving.advance(read);
        self.partial = stream.map(|stream| (stream, self.last_read));
        Poll::Ready(Ok(()))
    }
}

/// A handle of the [`Line`]. The `h2` connection has one, and the connection's task has another. Both are used in the
/// same task, so the lock is never contended.
#[derive(Debug, Clone)]
pub(super) struct Wire(Arc<Mutex<Line>>);

/// Tracks the arriving frame, so that a slow peer does not time out in the middle of a frame: `h2` reports DATA only
/// when the frame is complete.
#[derive(Debug)]
struct Arriving {
    /// Header of the frame; its first `filled` bytes have arrived.
    head: [u8; HEAD],
    filled: usize,
    /// Number of payload bytes of the frame that have not arrived yet.
    left: usize,
}

/// Size of a frame header (RFC 9113 section 4.1).
const HEAD: usize = 9;

impl Arriving {
    /// Creates a tracker that skips `first` bytes before the first frame.
    fn after(first: usize) -> Self {
        Self {
            head: [0; HEAD],
            filled: HEAD,
            left: first,
        }
    }

    /// Follows the frames in `data`. Returns the stream of the last frame if it is DATA and incomplete.
    fn advance(&mut self, mut data: &[u8]) -> Option<u32> {
        loop {
            let taken = self.left.min(data.len());
            self.left -= taken;
            data = &data[taken..];
            if data.is_empty() {
                break;
            }
            if self.filled == HEAD {
                self.filled = 0;
            }
            let taken = data.len().min(HEAD - self.filled);
            self.head[self.filled..self.filled + taken].copy_from_slice(&data[..taken]);
            self.filled += taken;
            data = &data[taken..];
            if self.filled == HEAD {
                let [high, middle, low, ..] = self.head;
                self.left = u32::from_be_bytes([0, high, middle, low]) as usize;
            }
        }
        let [_, _, _, kind, _, stream @ ..] = self.head;
        let stream = u32::from_be_bytes(stream) & 0x7fff_ffff;
        // `stream > 0` excludes the bytes before the first frame, for which `head` is all zero.
        (self.filled == HEAD && self.left > 0 && kind == 0 && stream > 0).then_some(stream)
    }
}

/// A weak handle of the [`Line`]. It does not keep the connection open.
#[derive(Debug, Clone)]
pub(super) struct Watch(Weak<Mutex<Line>>);

impl Watch {
    /// Returns the time when the last part of an incomplete DATA frame for this stream arrived.
    pub(super) fn partial(&self, stream: h2::StreamId) -> Option<Instant> {
        let line = self.0.upgrade()?;
        let (number, at) = line
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .partial?;
        (stream.as_u32() == number).then_some(at)
    }
}

impl Wire {
    /// `before` holds bytes already read; the peer sends `preface` bytes before its first frame.
    pub(super) fn new(stream: Stream, before: Vec<u8>, preface: usize) -> Self {
        Self(Arc::new(Mutex::new(Line {
            stream,
            before,
            out: Vec::new(),
            written: 0,
            unflushed: false,
            read: 0,
            last_read: Instant::now(),
            arriving: Arriving::after(preface),
            partial: None,
            blocked_since: None,
        })))
    }

    pub(super) fn watch(&self) -> Watch {
        Watch(Arc::downgrade(&self.0))
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

    /// Does nothing: the connection's task flushes when `h2` has no more frames to write.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut line = self.line();
        ready!(line.poll_flush(cx))?;
        line.stream.poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use socket2::SockRef;
    use std::future::poll_fn;
    use std::time::Duration;
    use tokio::io::AsyncReadExt;
    use tokio::net::{TcpListener, TcpStream};

    fn frame(length: u8, kind: u8, stream: u8) -> Vec<u8> {
        let head = [0, 0, length, kind, 0, 0x80, 0, 0, stream];
        [&head[..], &vec![0; length.into()]].concat()
    }

    #[test]
    fn an_incomplete_data_frame_is_found_wherever_reads_end() {
        let frames = [
            (vec![0; 24], None),
            (frame(0, 4, 0), None),
            (frame(30, 0, 5), Some(5)),
            (frame(30, 1, 7), None),
            (frame(0, 0, 5), None),
            (frame(1, 0, 9), Some(9)),
        ];
        let all: Vec<u8> = frames.iter().flat_map(|frame| frame.0.clone()).collect();
        for first in 0..all.len() {
            for second in first..all.len() {
                let mut arriving = Arriving::after(24);
                arriving.advance(&all[..first]);
                let told = arriving.advance(&all[first..second]);
                let mut start = 0;
                let incomplete = frames.iter().find_map(|(frame, stream)| {
                    let within = second.checked_sub(start).filter(|at| *at < frame.len());
                    start += frame.len();
                    within.map(|at| stream.filter(|_| at >= HEAD))
                });
                assert_eq!(told, incomplete.flatten(), "{first} {second}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_partial_write_restarts_the_time_of_being_blocked() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let _ = SockRef::from(&listener).set_recv_buffer_size(4096);
        let stream = TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        let _ = SockRef::from(&stream).set_send_buffer_size(4096);
        let (mut peer, _) = listener.accept().await.unwrap();
        let wire = Wire::new(Stream::Tcp(stream), Vec::new(), 0);
        let piece = [b'x'; 16 * 1024];
        let put = || poll_fn(|cx| Poll::Ready(wire.line().poll_put(cx, &piece, b"").is_pending()));
        while !put().await {}
        let (mut written, mut seen) = (wire.line().written, false);
        for _ in 0..1000 {
            peer.read_exact(&mut [0; 1024]).await.unwrap();
            tokio::time::sleep(Duration::from_secs(1)).await;
            let blocked = put().await;
            let line = wire.line();
            // This write sent some of the collected bytes, and others are left.
            if blocked && line.written > written {
                assert_eq!(line.blocked_since, Some(Instant::now()));
                seen = true;
            }
            written = line.written;
        }
        assert!(seen);
    }
}
