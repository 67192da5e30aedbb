//! An HTTP/2 stream to an upstream. The HTTP/1.1 engine uses it like a connection for one request: it writes the
//! request as text and reads the response as text.

use super::link::Use;
use super::receiving::Receiving;
use super::sending::Sending;
use super::text::{self, Length};
use super::wire::Watch;
use super::{Refused, Unsayable, has_cause, to_io};
use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use http::Method;
use std::future::Future;
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::time::Instant;

/// An HTTP/2 stream to an upstream, which the engine uses like an HTTP/1.1 connection for one request.
#[derive(Debug)]
pub struct UpstreamStream {
    calling: Calling,
    /// Text of the response head; `at` counts the bytes already read.
    text: Vec<u8>,
    at: usize,
    watch: Watch,
    tls: bool,
    to_head: bool,
    /// Counts the stream as in use until it is dropped.
    counted: Use,
}

// The size difference does not matter: an `UpstreamStream` is always boxed, and most of the time the value is `Sent`,
// the larger variant.
#[expect(clippy::large_enum_variant)]
#[derive(Debug)]
enum Calling {
    /// The engine has not written the whole request head yet; these bytes are the part so far.
    Head(SendRequest<Bytes>, Vec<u8>),
    Sent {
        sending: Sending,
        answer: ResponseState,
    },
    /// The connection did not accept the request.
    Refused(Option<h2::Error>),
}

#[derive(Debug)]
enum ResponseState {
    Awaited(ResponseFuture),
    Body(Receiving),
}

impl UpstreamStream {
    pub(super) fn new(request: SendRequest<Bytes>, watch: Watch, tls: bool, counted: Use) -> Self {
        Self {
            calling: Calling::Head(request, Vec::new()),
            text: Vec::new(),
            at: 0,
            watch,
            tls,
            to_head: false,
            counted,
        }
    }

    /// Waits until earlier bytes have been sent, then accepts all bytes of both pieces.
    pub fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        first: &[u8],
        second: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_flush(cx))?;
        match &mut self.calling {
            Calling::Refused(_) => return Poll::Ready(Err(ErrorKind::NotConnected.into())),
            Calling::Sent { sending, .. } => sending.push(first, second)?,
            Calling::Head(_, kept) if kept.is_empty() => match text::head_end(first) {
                Some(end) => self.send_head(&first[..end], &first[end..], second)?,
                None => self.push_head(first, second)?,
            },
            Calling::Head(..) => self.push_head(first, second)?,
        }
        if let Poll::Ready(Err(error)) = self.poll_flush(cx) {
            return Poll::Ready(Err(error));
        }
        Poll::Ready(Ok(first.len() + second.len()))
    }

    /// Collects a request head that the engine writes in several pieces.
    fn push_head(&mut self, first: &[u8], second: &[u8]) -> io::Result<()> {
        let Calling::Head(_, kept) = &mut self.calling else {
            return Ok(());
        };
        kept.extend_from_slice(first);
        kept.extend_from_slice(second);
        let Some(end) = text::head_end(kept) else {
            return Ok(());
        };
        let kept = std::mem::take(kept);
        self.send_head(&kept[..end], &kept[end..], b"")
    }

    fn send_head(&mut self, head: &[u8], first: &[u8], second: &[u8]) -> io::Result<()> {
        let Calling::Head(connection, _) = &mut self.calling else {
            return Ok(());
        };
        let call = text::read_request(head, self.tls)
            .map_err(|_| io::Error::new(ErrorKind::InvalidInput, Unsayable))?;
        self.to_head = call.request.method() == Method::HEAD;
        let ended = call.length == Length::Known(0);
        match connection.send_request(call.request, ended) {
            Ok((response, stream)) => {
                let mut sending = Sending::new(stream, call.length, ended);
                sending.push(first, second)?;
                self.calling = Calling::Sent {
                    sending,
                    answer: ResponseState::Awaited(response),
                };
                Ok(())
            }
            Err(error) => {
                self.calling = Calling::Refused(Some(error));
                Err(ErrorKind::NotConnected.into())
            }
        }
    }

    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.calling {
            Calling::Sent { sending, .. } if sending.is_waiting() => sending.poll_flush(cx),
            _ => Poll::Ready(Ok(())),
        }
    }

    /// Number of request bytes that wait for the upstream's HTTP/2 window.
    pub fn held_back(&self) -> usize {
        match &self.calling {
            Calling::Sent { sending, .. } => sending.held_back(),
            _ => 0,
        }
    }

    /// Time when the last part of an incomplete response frame arrived.
    pub fn partial(&self) -> Option<Instant> {
        match &self.calling {
            Calling::Sent {
                answer: ResponseState::Body(receiving),
                ..
            } => receiving.partial(),
            _ => None,
        }
    }

    pub fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Calling::Sent { sending, .. } = &mut self.calling {
            sending.finish();
        }
        self.poll_flush(cx)
    }

    pub fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            let head = &self.text[self.at..];
            if !head.is_empty() {
                let taken = head.len().min(buffer.len());
                buffer[..taken].copy_from_slice(&head[..taken]);
                self.at += taken;
                return Poll::Ready(Ok(taken));
            }
            match &mut self.calling {
                Calling::Sent {
                    answer: ResponseState::Body(receiving),
                    ..
                } => return receiving.poll_read(cx, buffer, |_| {}),
                Calling::Sent { .. } => match ready!(self.poll_head(cx)) {
                    Err(error) if self.counted.is_refused() && !has_cause(&error) => {
                        let error = io::Error::new(ErrorKind::ConnectionReset, Refused);
                        return Poll::Ready(Err(error));
                    }
                    head => head?,
                },
                Calling::Refused(error) => {
                    // No part of the request was sent, so it can be retried on another connection.
                    let refused = ErrorKind::ConnectionRefused;
                    return Poll::Ready(Err(match error.take() {
                        Some(cause) => io::Error::new(refused, cause),
                        None => refused.into(),
                    }));
                }
                Calling::Head(..) => return Poll::Ready(Err(ErrorKind::NotConnected.into())),
            }
        }
    }

    /// Receives an interim response, or the head of the final response, and writes it to `text`.
    fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Calling::Sent { answer, .. } = &mut self.calling else {
            return Poll::Ready(Ok(()));
        };
        let ResponseState::Awaited(response) = answer else {
            return Poll::Ready(Ok(()));
        };
        self.text.clear();
        self.at = 0;
        if let Some(interim) = ready!(response.poll_informational(cx)) {
            let interim = interim.map_err(to_io)?;
            text::write_response(&interim, true, true, &mut self.text);
            return Poll::Ready(Ok(()));
        }
        let response = ready!(Pin::new(response).poll(cx)).map_err(to_io)?;
        let (parts, body) = response.into_parts();
        let response = http::Response::from_parts(parts, ());
        let ended = body.is_end_stream();
        let length = text::write_response(&response, ended, self.to_head, &mut self.text);
        let watch = self.watch.clone();
        *answer = ResponseState::Body(Receiving::new(body, length, watch));
        Poll::Ready(Ok(()))
    }
}
