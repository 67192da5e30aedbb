//! Sends a body on a stream: the engine's HTTP/1.1 text becomes DATA and trailers. If the flow-control windows of the
//! peer are full, the bytes of one write wait here, and the next write has to wait.

use super::chunks::Dechunker;
use super::text::Length;
use super::to_io;
use bytes::Bytes;
use h2::SendStream;
use http::HeaderMap;
use std::io::{self, ErrorKind};
use std::task::{Context, Poll, ready};

#[derive(Debug)]
enum Form {
    /// Number of bytes still to come.
    Length(u64),
    Chunked(Dechunker),
    /// The body ends when [`Sending::finish`] is called.
    Open,
    Complete,
}

#[derive(Debug)]
pub(super) struct Sending {
    stream: SendStream<Bytes>,
    form: Form,
    waiting: Bytes,
    trailers: Option<HeaderMap>,
    /// Whether END_STREAM has been sent.
    ended: bool,
}

impl Sending {
    /// If `ended` is true, the head was the whole message.
    pub(super) fn new(stream: SendStream<Bytes>, length: Length, ended: bool) -> Self {
        let form = match length {
            _ if ended => Form::Complete,
            Length::Known(0) => Form::Complete,
            Length::Known(length) => Form::Length(length),
            Length::Chunked => Form::Chunked(Dechunker::new()),
            Length::Open => Form::Open,
        };
        Self {
            stream,
            form,
            waiting: Bytes::new(),
            trailers: None,
            ended,
        }
    }

    /// Whether all bytes have been passed to the connection.
    pub(super) fn is_done(&self) -> bool {
        self.ended
    }

    /// Number of bytes that wait for the peer's flow-control window.
    pub(super) fn held_back(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn is_waiting(&self) -> bool {
        !self.ended && (!self.waiting.is_empty() || matches!(self.form, Form::Complete))
    }

    /// Accepts all bytes of both slices. No bytes of an earlier call may be waiting.
    pub(super) fn push(&mut self, first: &[u8], second: &[u8]) -> io::Result<()> {
        let size = first.len() + second.len();
        if size == 0 {
            return Ok(());
        }
        let mut payload = Vec::with_capacity(size);
        match &mut self.form {
            Form::Length(left) => {
                payload.extend_from_slice(first);
                payload.extend_from_slice(second);
                // Bytes beyond the announced length do not belong to this message.
                let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(size);
                payload.truncate(taken);
                *left -= taken as u64;
                if *left == 0 {
                    self.form = Form::Complete;
                }
            }
            Form::Chunked(chunks) => {
                let decoded = chunks
                    .advance(first, &mut payload)
                    .and_then(|()| chunks.advance(second, &mut payload));
                decoded.map_err(|_| io::Error::from(ErrorKind::InvalidData))?;
                if chunks.is_done() {
                    self.trailers = chunks.take_trailers();
                    self.form = Form::Complete;
                }
            }
            Form::Open => {
                payload.extend_from_slice(first);
                payload.extend_from_slice(second);
            }
            Form::Complete => return Ok(()),
        }
        self.waiting = payload.into();
        Ok(())
    }

    /// Ends a body in the form [`Form::Open`]. Other bodies contain or announce their end, so if one ends before, it
    /// stays incomplete.
    pub(super) fn finish(&mut self) {
        if matches!(self.form, Form::Open) {
            self.form = Form::Complete;
        }
    }

    /// Passes waiting bytes to the connection; ready when none are left.
    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.waiting.is_empty() {
            let room = ready!(self.poll_room(cx))?;
            let part = self.waiting.split_to(room.min(self.waiting.len()));
            let last = self.waiting.is_empty()
                && self.trailers.is_none()
                && matches!(self.form, Form::Complete);
            self.stream.send_data(part, last).map_err(to_io)?;
            self.ended = last;
        }
        if matches!(self.form, Form::Complete) && !self.ended {
            let ended = match self.trailers.take() {
                Some(trailers) => self.stream.send_trailers(trailers),
                None => self.stream.send_data(Bytes::new(), true),
            };
            ended.map_err(to_io)?;
            self.ended = true;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.stream.reserve_capacity(self.waiting.len());
        loop {
            match self.stream.capacity() {
                0 => {}
                room => return Poll::Ready(Ok(room)),
            }
            match ready!(self.stream.poll_capacity(cx)) {
                Some(Ok(_)) => {}
                Some(Err(error)) => return Poll::Ready(Err(to_io(error))),
                None => return Poll::Ready(Err(ErrorKind::BrokenPipe.into())),
            }
        }
    }

    pub(super) fn reset(&mut self, reason: h2::Reason) {
        self.stream.send_reset(reason);
    }

    /// Ready when the peer has reset the stream, or when the connection has failed.
    pub(super) fn poll_reset(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.stream.poll_reset(cx).map(|_| ())
    }
}
