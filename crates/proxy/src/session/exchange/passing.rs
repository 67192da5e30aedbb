//! Forwards a response body, with its head, to the client. A buffered response is sent in pieces of a useful size, as
//! by nginx: nginx sends a buffer when it is full or the response is complete, and chooses its own chunk sizes. Other
//! responses are forwarded as they arrive, and so are the chunks of a response that plugins filter.

use super::{Exchange, Failed, ResponseInProgress, Span, Terms, copy_if_small};
use crate::forward_response::ClientFraming;
use crate::plugins::Chain;
use crate::session::filtering::{CHUNK_END, write_chunk_size, write_last_chunk};
use crate::session::worker::Worker;
use net::http1::{BadChunk, Body, KnownHeader, ResponseHead};
use std::task::Context;

/// Size of nginx's buffer (`proxy_buffer_size`).
const PIECE: usize = 4096;

/// The start of a piece that is still too small to send.
#[derive(Default)]
pub(super) struct Held {
    /// The response head, if it has not been sent, then payload.
    bytes: Vec<u8>,
    /// Length of the head in `bytes`.
    head: usize,
    /// Bytes after the last chunk, as the upstream sent them.
    trailers: Vec<u8>,
}

impl Held {
    /// Removes and returns the held head and payload.
    fn take(&mut self) -> (Vec<u8>, Vec<u8>) {
        let mut head = std::mem::take(&mut self.bytes);
        let payload = head.split_off(std::mem::take(&mut self.head));
        (head, payload)
    }
}

/// The next step for a piece of a response.
enum Passed<'d> {
    Waits,
    /// The piece is sent: these bytes as they arrived, or the decoded bytes if `None`.
    Goes(Option<&'d [u8]>),
}

/// Whether an upstream wants its response forwarded as it arrives: it sends `X-Accel-Buffering: no`, as for nginx, or
/// server-sent events.
#[inline]
pub(super) fn wants_to_stream(head: &ResponseHead) -> bool {
    let mut asks = head.known(KnownHeader::XAccelBuffering);
    let sends_events = |value: &[u8]| {
        let start = value.get(..b"text/event-stream".len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(b"text/event-stream"))
    };
    head.known(KnownHeader::ContentType).any(sends_events)
        || asks
            .next()
            .is_some_and(|value| value.eq_ignore_ascii_case(b"no"))
}

impl Exchange<'_, '_> {
    /// Forwards the body bytes in `span` after those in `worker.out`. Returns true when the body is complete.
    pub(super) fn pass_body(
        &mut self,
        cx: &mut Context<'_>,
        worker: &mut Worker,
        span: Span,
    ) -> Result<bool, Failed> {
        let Some(answer) = &mut self.answer else {
            return Ok(false);
        };
        let mut out = std::mem::take(&mut worker.out);
        let mut decoded = std::mem::take(&mut worker.decoded);
        decoded.clear();
        let data = span.of(worker, &self.partial);
        let passed = answer.pass(self.terms, self.chain, data, &mut out, &mut decoded);
        let done = answer.body.is_done();
        let sent = passed.and_then(|passed| match passed {
            Passed::Waits => Ok(()),
            Passed::Goes(raw) => {
                let body = copy_if_small(raw.unwrap_or(&decoded), &mut out);
                if out.is_empty() && body.is_empty() {
                    return Ok(());
                }
                let client = &mut *self.client;
                let sent = client.out.send(&mut client.stream, cx, &out, body);
                sent.map_err(|_| Failed::ClientGone)
            }
        });
        worker.out = out;
        worker.decoded = decoded;
        sent.map(|()| done)
    }

    /// Sends the held bytes of a response that is about to break off.
    #[cold]
    pub(super) fn release(&mut self, cx: &mut Context<'_>) {
        let Some(answer) = &mut self.answer else {
            return;
        };
        let mut out = Vec::new();
        let mut end = Vec::new();
        let _ = answer.write(self.terms, self.chain, None, &mut end, &mut out);
        out.append(&mut end);
        if !out.is_empty() {
            // The connection is about to close, whether or not the client accepts this.
            let _ = self.send_client(cx, &out, b"");
        }
    }
}

impl ResponseInProgress {
    fn pass<'d>(
        &mut self,
        terms: &Terms<'_>,
        chain: &mut Chain<'_>,
        data: &'d [u8],
        out: &mut Vec<u8>,
        decoded: &mut Vec<u8>,
    ) -> Result<Passed<'d>, Failed> {
        let filtered = self.filtering.as_ref();
        let left_of_chunk = filtered.and_then(|_| self.body.left_of_chunk());
        let taken = self.take(data, decoded).map_err(|_| self.broken())?;
        if taken < data.len() {
            // The upstream sent more than its response, so its connection cannot be trusted with another request.
            self.upstream_keeps = false;
        }
        if let Some(collected) = &mut self.collected {
            collected.add(decoded)?;
            return Ok(Passed::Waits);
        }
        if self.discards {
            // Reading the rest only to discard it could take for ever.
            if !self.body.is_done() {
                self.upstream_keeps = false;
                self.body = Body::Length(0);
            }
            return Ok(Passed::Goes(Some(b"")));
        }
        let raw = (!self.decodes()).then(|| &data[..taken]);
        // nginx calls body filters as soon as it has read a chunk, even if its buffer is not full.
        let has_chunk = left_of_chunk.is_some_and(|left| data.len() as u64 >= left);
        let passes = has_chunk && !decoded.is_empty();
        if !self.body.is_done() && !passes && self.hold(out, raw.unwrap_or(decoded)) {
            return Ok(Passed::Waits);
        }
        self.write(terms, chain, raw, decoded, out)?;
        Ok(Passed::Goes(raw))
    }

    /// Whether the payload is forwarded without the framing in which it arrived.
    fn decodes(&self) -> bool {
        let decodes = matches!(
            self.framing,
            ClientFraming::Unchunked | ClientFraming::Chunked | ClientFraming::Rechunked
        );
        decodes || self.filtering.is_some() || self.collected.is_some()
    }

    /// Parses the next bytes of the body, and returns how many bytes of `data` belong to it. If its framing is not
    /// forwarded, appends the payload to `decoded`.
    fn take(&mut self, data: &[u8], decoded: &mut Vec<u8>) -> Result<usize, BadChunk> {
        if !self.decodes() {
            return self.body.consume(data);
        }
        let keeps_trailers = self.framing == ClientFraming::Rechunked
            || self.filtering.is_some()
            || self.collected.is_some();
        if !keeps_trailers {
            return self.body.decode(data, decoded);
        }
        let taken = self.body.decode_chunks(data, decoded)?;
        let trailers = &data[taken..];
        let more = self.body.consume(trailers)?;
        if more > 0 {
            let trailers = &trailers[..more];
            match &mut self.collected {
                Some(collected) => collected.trailers.extend_from_slice(trailers),
                None => {
                    let held = self.held.get_or_insert_default();
                    held.trailers.extend_from_slice(trailers);
                }
            }
        }
        Ok(taken + more)
    }

    /// Holds back a piece that is too small to send. If `out` has a head, it is held back too.
    fn hold(&mut self, out: &[u8], payload: &[u8]) -> bool {
        let waiting = self.held.as_ref().map_or(0, |held| held.bytes.len());
        if self.streams || waiting + out.len() + payload.len() >= PIECE {
            return false;
        }
        let held = self.held.get_or_insert_default();
        if held.bytes.is_empty() {
            held.head = out.len();
            held.bytes.extend_from_slice(out);
        }
        held.bytes.extend_from_slice(payload);
        true
    }

    /// Writes to `out` the bytes that precede a piece: held bytes and the size of a new chunk. If there are filters,
    /// writes the filtered piece as well. Appends to `decoded` the end of the chunk, and that of a rechunked body.
    fn write(
        &mut self,
        terms: &Terms<'_>,
        chain: &mut Chain<'_>,
        raw: Option<&[u8]>,
        decoded: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Result<(), Failed> {
        let mut payload = Vec::new();
        if let Some(held) = &mut self.held {
            let (head, waiting) = held.take();
            out.extend_from_slice(&head);
            payload = waiting;
        }
        if let Some(filtering) = &mut self.filtering {
            if payload.is_empty() {
                payload = std::mem::take(decoded);
            } else {
                payload.append(decoded);
            }
            let last = self.body.is_done();
            if last && let Some(held) = &self.held {
                filtering.take_trailers(&held.trailers);
            }
            let (request, payload) = (terms.request, payload.into());
            let passed = filtering.pass(request, chain, payload, last, self.framing, out);
            return passed.map_err(|_| Failed::Filter);
        }
        let size = payload.len() + raw.map_or(decoded.len(), <[u8]>::len);
        let in_chunks = matches!(
            self.framing,
            ClientFraming::Chunked | ClientFraming::Rechunked
        );
        if in_chunks && size > 0 {
            write_chunk_size(out, size);
            decoded.extend_from_slice(CHUNK_END);
        }
        out.extend_from_slice(&payload);
        if self.framing == ClientFraming::Rechunked && self.body.is_done() {
            write_chunk_size(decoded, 0);
            let trailers = self.held.as_ref().map_or(&[][..], |held| &held.trailers);
            decoded.extend_from_slice(trailers);
        }
        Ok(())
    }

    /// Ends a body that the upstream ended by closing, and returns the last bytes for the client.
    pub(super) fn finish(
        &mut self,
        terms: &Terms<'_>,
        chain: &mut Chain<'_>,
    ) -> Result<Vec<u8>, Failed> {
        let mut out = Vec::new();
        // The body is complete now.
        self.body = Body::Length(0);
        if self.collected.is_some() || self.discards {
            return Ok(out);
        }
        let mut end = Vec::new();
        self.write(terms, chain, None, &mut end, &mut out)?;
        out.append(&mut end);
        if self.filtering.is_none() && self.framing == ClientFraming::Chunked {
            write_last_chunk(&mut out);
        }
        Ok(out)
    }

    /// The failure of a response that broke off after its head went to the client.
    pub(super) fn broken(&self) -> Failed {
        if self.collected.is_some() {
            return Failed::Incomplete;
        }
        let by_closing = match self.framing {
            ClientFraming::AsReceived => matches!(self.body, Body::Close),
            ClientFraming::Unchunked => true,
            ClientFraming::Chunked | ClientFraming::Rechunked | ClientFraming::Sized => false,
        };
        if by_closing {
            Failed::BrokenUnnoticed
        } else {
            Failed::Broken
        }
    }
}
