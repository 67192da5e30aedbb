//! The pace that a client has to keep: a stream that fails when the head of a request takes too long, when no other request
//! comes, or when the answer is not taken.

use crate::server::Limits;
use axum::body::{Body, HttpBody};
use axum::response::Response;
use futures_util::StreamExt;
use futures_util::task::AtomicWaker;
use net::deadline::Deadline;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

/// What the client is waited for, shared between the stream and the requests that are read from it.
#[derive(Debug)]
pub(crate) struct Pace {
    awaited: AtomicU8,
    /// The connection, while it waits for nothing: its time begins to run when that changes.
    connection: AtomicWaker,
}

const HEAD: u8 = 0;
const NOTHING: u8 = 1;
const NEXT_REQUEST: u8 = 2;

impl Default for Pace {
    /// The first request is expected at once.
    fn default() -> Self {
        Self {
            awaited: AtomicU8::new(HEAD),
            connection: AtomicWaker::new(),
        }
    }
}

impl Pace {
    /// A head has come: nothing is to be waited for until its answer is over.
    pub(crate) fn begin_answer(self: &Arc<Self>) -> Busy {
        self.set(NOTHING);
        Busy(Arc::clone(self))
    }

    fn set(&self, awaited: u8) {
        self.awaited.store(awaited, Ordering::Release);
    }

    fn awaited(&self) -> u8 {
        self.awaited.load(Ordering::Acquire)
    }
}

/// A request is worked on, until this is dropped.
pub(crate) struct Busy(Arc<Pace>);

impl Busy {
    pub(crate) fn until_sent(self, response: Response) -> Response {
        if response.body().size_hint().exact().is_some() {
            // It is all there, and handed to the connection at once.
            return response;
        }
        response.map(|body| {
            let busy = self;
            Body::from_stream(body.into_data_stream().inspect(move |_| {
                let _lives_as_long_as_the_stream = &busy;
            }))
        })
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.set(NEXT_REQUEST);
        self.0.connection.wake();
    }
}

pub(crate) struct Paced<S> {
    stream: S,
    pace: Arc<Pace>,
    limits: Limits,
    /// For what is awaited of the client.
    reading: Deadline,
    /// What was awaited when that was set.
    awaited: u8,
    /// Set while the client does not take what it is sent.
    writing: Option<Deadline>,
}

impl<S> Paced<S> {
    pub(crate) fn new(stream: S, pace: Arc<Pace>, limits: Limits) -> Self {
        Self {
            stream,
            reading: Deadline::new(Instant::now() + limits.head),
            awaited: pace.awaited(),
            writing: None,
            pace,
            limits,
        }
    }

    fn expect_head(&mut self) {
        self.pace.set(HEAD);
        self.awaited = HEAD;
        self.reading.set(Instant::now() + self.limits.head);
    }

    fn wait_to_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.pace.connection.register(cx.waker());
        let awaited = self.pace.awaited();
        let changed = self.awaited != awaited;
        self.awaited = awaited;
        if awaited == NOTHING {
            return Poll::Pending;
        }
        if changed {
            self.reading.set(Instant::now() + self.limits.idle);
        }
        ready!(self.reading.poll_passed(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    /// What came of an attempt to send, or that none succeeded for too long.
    fn sent<T>(
        &mut self,
        attempt: Poll<io::Result<T>>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if attempt.is_ready() {
            self.writing = None;
            // An answer that is still taken is no idle time.
            if self.awaited == NEXT_REQUEST {
                self.reading.set(Instant::now() + self.limits.idle);
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
                if this.pace.awaited() == NEXT_REQUEST && buffer.filled().len() > before {
                    this.expect_head();
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
        this.sent(attempt, cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let attempt = Pin::new(&mut this.stream).poll_write_vectored(cx, slices);
        this.sent(attempt, cx)
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
