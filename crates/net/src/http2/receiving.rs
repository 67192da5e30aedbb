//! Reads a body from a stream: DATA and trailers become HTTP/1.1 text for the engine. The flow-control window is
//! enlarged only for bytes that the engine has read, so the window limits the unread bytes.

use super::text::{self, Length};
use super::to_io;
use super::wire::Watch;
use bytes::{Buf, Bytes};
use h2::RecvStream;
use std::io;
use std::task::{Context, Poll, ready};
use tokio::time::Instant;

/// Upper bound for the framing of a chunk: the line with the size of the chunk, and the line break after its data.
const CHUNK_FRAME: usize = 24;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Plain,
    Chunked,
    Done,
}

#[derive(Debug)]
pub(super) struct Receiving {
    stream: RecvStream,
    watch: Watch,
    form: Form,
    rest: Bytes,
    /// Text that comes before `rest`.
    text: Vec<u8>,
    at: usize,
}

impl Receiving {
    pub(super) fn new(stream: RecvStream, length: Length, watch: Watch) -> Self {
        Self {
            stream,
            watch,
            form: match length {
                Length::Known(0) => Form::Done,
                Length::Known(_) | Length::Open => Form::Plain,
                Length::Chunked => Form::Chunked,
            },
            rest: Bytes::new(),
            text: Vec::new(),
            at: 0,
        }
    }

    /// If a DATA frame of this stream is incomplete, the time when its last piece arrived.
    pub(super) fn partial(&self) -> Option<Instant> {
        self.watch.partial(self.stream.stream_id())
    }

    /// Reads into `buffer`, and returns 0 at the end of the body. Passes the size of each received piece of payload to
    /// `count`.
    pub(super) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
        mut count: impl FnMut(usize),
    ) -> Poll<io::Result<usize>> {
        let mut filled = 0;
        loop {
            filled += self.take_text(&mut buffer[filled..]);
            let room = buffer.len() - filled;
            if room == 0 || (self.form == Form::Done && self.rest.is_empty()) {
                return Poll::Ready(Ok(filled));
            }
            if self.rest.is_empty() {
                match self.poll_more(cx) {
                    Poll::Ready(Ok(())) => {
                        count(self.rest.len());
                        continue;
                    }
                    // Return the bytes read so far first. An error is reported again by the next read.
                    Poll::Pending | Poll::Ready(Err(_)) if filled > 0 => {
                        return Poll::Ready(Ok(filled));
                    }
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                }
            }
            if self.form == Form::Chunked {
                if room <= CHUNK_FRAME {
                    if filled > 0 {
                        return Poll::Ready(Ok(filled));
                    }
                    self.chunk_to_text();
                    continue;
                }
                let size = self.rest.len().min(room - CHUNK_FRAME);
                text::write_chunk_size(size, &mut self.text);
                filled += self.take_text(&mut buffer[filled..]);
                filled += self.take_data(&mut buffer[filled..filled + size]);
                self.text.extend_from_slice(b"\r\n");
            } else {
                filled += self.take_data(&mut buffer[filled..]);
            }
        }
    }

    /// Writes a chunk as text, for a buffer too small for a chunk and its framing.
    fn chunk_to_text(&mut self) {
        let size = self.rest.len().min(1024);
        text::write_chunk_size(size, &mut self.text);
        self.text.extend_from_slice(&self.rest[..size]);
        self.text.extend_from_slice(b"\r\n");
        self.rest.advance(size);
        self.release(size);
    }

    fn take_text(&mut self, buffer: &mut [u8]) -> usize {
        let left = &self.text[self.at..];
        let taken = left.len().min(buffer.len());
        buffer[..taken].copy_from_slice(&left[..taken]);
        self.at += taken;
        if self.at == self.text.len() {
            self.text.clear();
            self.at = 0;
        }
        taken
    }

    fn take_data(&mut self, buffer: &mut [u8]) -> usize {
        let taken = self.rest.len().min(buffer.len());
        self.rest.copy_to_slice(&mut buffer[..taken]);
        self.release(taken);
        taken
    }

    fn release(&mut self, bytes: usize) {
        // `h2` returns an error only if more bytes are released than were received, or if the stream has ended.
        let _ = self.stream.flow_control().release_capacity(bytes);
    }

    /// Receives the next piece of data, or the end of the body.
    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match ready!(self.stream.poll_data(cx)) {
            Some(Ok(data)) => self.rest = data,
            Some(Err(error)) => return Poll::Ready(Err(to_io(error))),
            None if self.form == Form::Plain => self.form = Form::Done,
            None => {
                let trailers = ready!(self.stream.poll_trailers(cx)).map_err(to_io)?;
                self.text.extend_from_slice(b"0\r\n");
                if let Some(trailers) = trailers {
                    text::write_trailers(&trailers, &mut self.text);
                }
                self.text.extend_from_slice(b"\r\n");
                self.form = Form::Done;
            }
        }
        Poll::Ready(Ok(()))
    }
}
