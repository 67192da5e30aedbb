//! Timeouts for slow clients: a stream that fails if the head of a request takes too long, if no other request arrives,
//! or if the client stops reading the response.

use crate::server::Limits;
use axum::body::{Body, HttpBody};
use axum::http::Version;
use axum::response::Response;
use futures_util::StreamExt;
use futures_util::stream::poll_fn;
use futures_util::task::AtomicWaker;
use net::deadline::Deadline;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

/// Progress of a client, which decides its time limits. The stream and its requests share this state.
#[derive(Debug)]
pub(crate) struct Pace {
    /// Whether several requests may share the connection, as in HTTP/2. Known from the first request.
    is_shared: AtomicBool,
    /// The data that the client is expected to send: `HEAD`, `NOTHING` or `NEXT_REQUEST`.
    awaited: AtomicU8,
    /// Number of requests in progress; in HTTP/2 there may be several.
    busy: AtomicU32,
    /// Number of responses with a piece that the client could read but has not read yet.
    offered: AtomicU32,
    /// Changes whenever a response body is polled or dropped. It stays the same while the client reads no response,
    /// because hyper polls a body only if the client has room for another piece.
    taken: AtomicU32,
    /// Wakes the connection after a change of `busy`, `offered` or `taken` in a response, because a time limit may then
    /// start or end.
    connection: AtomicWaker,
}

/// A request head, or the rest of one.
const HEAD: u8 = 0;
/// Nothing: requests are in progress.
const NOTHING: u8 = 1;
/// The first byte of another request.
const NEXT_REQUEST: u8 = 2;

impl Pace {
    /// Starts by expecting a first request.
    pub(crate) fn new() -> Self {
        Self {
            is_shared: AtomicBool::new(false),
            awaited: AtomicU8::new(HEAD),
            busy: AtomicU32::new(0),
            offered: AtomicU32::new(0),
            taken: AtomicU32::new(0),
            connection: AtomicWaker::new(),
        }
    }

    /// Called when a request head is complete: nothing is expected from the client until the response ends.
    pub(crate) fn begin_answer(self: &Arc<Self>, version: Version) -> Busy {
        let is_shared = version == Version::HTTP_2;
        self.is_shared.store(is_shared, Ordering::Release);
        self.busy.fetch_add(1, Ordering::AcqRel);
        self.set(NOTHING);
        Busy {
            pace: Arc::clone(self),
            is_offered: false,
        }
    }

    /// Returns `taken`, or `None` if the client has read all pieces that it could read.
    fn offered(&self) -> Option<u32> {
        let offered = self.offered.load(Ordering::Acquire);
        (offered > 0).then(|| self.taken.load(Ordering::Acquire))
    }

    fn is_shared(&self) -> bool {
        self.is_shared.load(Ordering::Acquire)
    }

    fn set(&self, awaited: u8) {
        self.awaited.store(awaited, Ordering::Release);
    }

    fn awaited(&self) -> u8 {
        self.awaited.load(Ordering::Acquire)
    }
}

/// A request in progress, until this is dropped.
pub(crate) struct Busy {
    pace: Arc<Pace>,
    /// Whether this response is counted in `offered` of the connection.
    is_offered: bool,
}

impl Busy {
    /// Keeps the request in progress until its response body ends.
    pub(crate) fn until_sent(self, response: Response) -> Response {
        if response.body().size_hint().exact().is_some() {
            // The body is complete, so hyper accepts all of it immediately. `Paced::sent` limits the time for writing
            // it.
            return response;
        }
        response.map(|body| {
            let (mut busy, mut body) = (self, body.into_data_stream());
            Body::from_stream(poll_fn(move |cx| {
                let piece = body.poll_next_unpin(cx);
                // If an HTTP/2 client grants no more flow control window, hyper does not poll the body again. Nothing
                // else shows that the client has stopped reading.
                busy.set_offered(matches!(piece, Poll::Ready(Some(_))));
                piece
            }))
        })
    }

    fn set_offered(&mut self, is_offered: bool) {
        if !self.pace.is_shared() {
            return;
        }
        self.pace.taken.fetch_add(1, Ordering::AcqRel);
        match (self.is_offered, is_offered) {
            (false, true) => drop(self.pace.offered.fetch_add(1, Ordering::AcqRel)),
            (true, false) => drop(self.pace.offered.fetch_sub(1, Ordering::AcqRel)),
            _ => {}
        }
        self.is_offered = is_offered;
        self.pace.connection.wake();
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.set_offered(false);
        if self.pace.busy.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.pace.set(NEXT_REQUEST);
        }
        self.pace.connection.wake();
    }
}

pub(crate) struct Paced<S> {
    stream: S,
    pace: Arc<Pace>,
    limits: Limits,
    /// Time limit for what is expected from the client.
    reading: Deadline,
    /// The expectation for which `reading` was set.
    awaited: u8,
    /// Set while writes to the client are blocked.
    writing: Option<Deadline>,
    /// Set while the client could read pieces: the last value of `taken`, and the time limit for it to change.
    offered: Option<(u32, Deadline)>,
}

impl<S> Paced<S> {
    pub(crate) fn new(stream: S, pace: Arc<Pace>, limits: Limits) -> Self {
        Self {
            stream,
            reading: Deadline::new(Instant::now() + limits.head),
            awaited: pace.awaited(),
            writing: None,
            offered: None,
            pace,
            limits,
        }
    }

    /// Called when bytes arrive from the client. In HTTP/2 they may belong to no request: a client acknowledges and
    /// asks for more data between requests. So the time limit stays the one of an idle connection.
    fn received(&mut self) {
        if self.pace.awaited() != NEXT_REQUEST || self.pace.is_shared() {
            return;
        }
        self.pace.set(HEAD);
        self.awaited = HEAD;
        self.reading.set(Instant::now() + self.limits.head);
    }

    /// Called while no bytes arrive from the client. Fails if the client exceeds the time limit for what is expected.
    fn wait_to_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.pace.connection.register(cx.waker());
        let awaited = self.pace.awaited();
        let changed = self.awaited != awaited;
        self.awaited = awaited;
        if awaited == NOTHING {
            return self.wait_to_be_taken(cx);
        }
        if changed {
            self.reading.set(Instant::now() + self.limits.idle);
        }
        ready!(self.reading.poll_passed(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    /// Fails if the client could read a piece of a response but has read none for too long.
    fn wait_to_be_taken(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(taken) = self.pace.offered() else {
            self.offered = None;
            return Poll::Pending;
        };
        let since = self.offered.as_ref().map(|(since, _)| *since);
        if since != Some(taken) {
            let deadline = Deadline::new(Instant::now() + self.limits.send);
            self.offered = Some((taken, deadline));
        }
        if let Some((_, deadline)) = &mut self.offered {
            ready!(deadline.poll_passed(cx));
        }
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    /// Passes on the result of a write. While the client still reads a response, the connection is not idle.
    fn written(
        &mut self,
        attempt: Poll<io::Result<usize>>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        if attempt.is_ready() {
            self.stay_open();
        }
        self.sent(attempt, cx)
    }

    fn stay_open(&mut self) {
        if self.awaited == NEXT_REQUEST {
            self.reading.set(Instant::now() + self.limits.idle);
        }
    }

    /// Passes on the result of a write or flush, or fails if the client has blocked them for too long.
    fn sent<T>(
        &mut self,
        attempt: Poll<io::Result<T>>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if attempt.is_ready() {
            // A flush that was never blocked is no progress: HTTP/2 flushes after every byte from the client.
            if self.writing.take().is_some() {
                self.stay_open();
            }
            return attempt;
        }
        let limit = self.limits.send;
        let writing = self
            .writing
            .get_or_insert_with(|| Deadline::new(Instant::now() + limit));
        ready!(writing.poll_passed(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Paced<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        match Pin::new(&mut this.stream).poll_read(cx, buffer) {
            Poll::Pending => this.wait_to_read(cx),
            ready => {
                if buffer.filled().len() > before {
                    this.received();
                }
                ready
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Paced<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let attempt = Pin::new(&mut this.stream).poll_write(cx, bytes);
        this.written(attempt, cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let attempt = Pin::new(&mut this.stream).poll_write_vectored(cx, slices);
        this.written(attempt, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let attempt = Pin::new(&mut this.stream).poll_flush(cx);
        this.sent(attempt, cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let attempt = Pin::new(&mut this.stream).poll_shutdown(cx);
        this.sent(attempt, cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use futures_util::stream::repeat;
    use std::time::Duration;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// Connects a client that reads one piece of an endless response; returns how long the connection lasts after that.
    async fn lasts(version: Version) -> Option<Duration> {
        let pace = Arc::new(Pace::new());
        let (_client, stream) = tokio::io::duplex(1);
        let limits = Limits {
            send: Duration::from_secs(7),
            ..Limits::default()
        };
        let mut stream = Paced::new(stream, Arc::clone(&pace), limits);
        let pieces = repeat(Bytes::from_static(b"x")).map(Ok::<_, io::Error>);
        let answer = pace
            .begin_answer(version)
            .until_sent(Response::new(Body::from_stream(pieces)));
        let mut pieces = answer.into_body().into_data_stream();
        pieces.next().await.unwrap().unwrap();
        let began = Instant::now();
        let read = stream.read_u8();
        let ended = tokio::time::timeout(Duration::from_secs(3600), read).await;
        ended.ok().map(|_| began.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_stops_reading_its_response_ends_the_connection() {
        assert_eq!(lasts(Version::HTTP_2).await, Some(Duration::from_secs(7)));
        // Without HTTP/2 streams the blocked connection itself shows that the client reads nothing.
        assert_eq!(lasts(Version::HTTP_11).await, None);
    }

    /// Returns how long a connection lasts after its first response if the client sends a byte every ten seconds.
    async fn lasts_with_bytes(version: Version) -> Duration {
        let pace = Arc::new(Pace::new());
        let (mut client, stream) = tokio::io::duplex(100);
        let limits = Limits {
            head: Duration::from_secs(60),
            idle: Duration::from_secs(75),
            ..Limits::default()
        };
        let mut stream = Paced::new(stream, Arc::clone(&pace), limits);
        drop(pace.begin_answer(version));
        let began = Instant::now();
        tokio::spawn(async move {
            // The first byte arrives while the connection is idle.
            loop {
                tokio::time::sleep(Duration::from_secs(10)).await;
                if client.write_u8(0).await.is_err() {
                    break;
                }
            }
        });
        while stream.read_u8().await.is_ok() {
            stream.flush().await.unwrap();
        }
        began.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_between_requests_neither_shorten_nor_extend_the_idle_time_of_http2() {
        let idle = lasts_with_bytes(Version::HTTP_2).await;
        assert_eq!(idle, Duration::from_secs(75));
        // In HTTP/1.1 they begin a request.
        let head = lasts_with_bytes(Version::HTTP_11).await;
        assert_eq!(head, Duration::from_secs(10 + 60));
    }
}
