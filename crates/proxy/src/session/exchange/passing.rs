//! The body of an answer on its way to the client, head included. Where answers are buffered it goes in pieces of a useful size:
//! as with the web server under Kong, which passes on a buffer when it is full or the answer is complete, and gives chunks a
//! size of its own. Elsewhere every piece goes on as it comes.

use super::{Answer, Exchange, Failed, Span, Terms, copy_if_small};
use crate::forward_response::ClientFraming;
use crate::session::filtering::{write_chunk_size, write_end_of_chunks, write_last_chunk};
use crate::session::worker::Worker;
use net::http1::{BadChunk, Body, Known, ResponseHead};
use std::task::Context;

/// The size of a buffer of the web server (`proxy_buffer_size`).
const PIECE: usize = 4096;

/// The beginning of a piece that is too small to go yet.
#[derive(Default)]
pub(super) struct Held {
    /// The head of the answer, if it has not gone, then payload.
    bytes: Vec<u8>,
    /// The length of that head.
    head: usize,
    /// What comes behind the last chunk, as the upstream sent it.
    trailers: Vec<u8>,
}

impl Held {
    /// The head and the payload that wait.
    fn take(&mut self) -> (Vec<u8>, Vec<u8>) {
        let mut head = std::mem::take(&mut self.bytes);
        let payload = head.split_off(std::mem::take(&mut self.head));
        (head, payload)
    }
}

/// What becomes of a piece of an answer.
enum Passed<'d> {
    Waits,
    /// It goes: these bytes as they came, or else what was decoded.
    Goes(Option<&'d [u8]>),
}

/// Whether an upstream wants its answer passed on as it comes: it says so to the web server under Kong, or it sends events.
pub(super) fn wants_to_stream(head: &ResponseHead) -> bool {
    let mut asks = head.known(Known::XAccelBuffering);
    let sends_events = |value: &[u8]| {
        let start = value.get(..b"text/event-stream".len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(b"text/event-stream"))
    };
    head.known(Known::ContentType).any(sends_events)
        || asks
            .next()
            .is_some_and(|value| value.eq_ignore_ascii_case(b"no"))
}

impl Exchange<'_> {
    /// Passes on what `span` has of the body, behind `worker.out`; true when the body is complete.
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
        let passed = answer.pass(self.terms, data, &mut out, &mut decoded);
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

    /// Before an answer breaks off, the client gets what has come of it.
    #[cold]
    pub(super) fn release(&mut self, cx: &mut Context<'_>) {
        let Some(answer) = &mut self.answer else {
            return;
        };
        let mut out = Vec::new();
        answer.write(self.terms, None, &mut Vec::new(), &mut out);
        if !out.is_empty() {
            // The connection is about to end, whether the client takes this or not.
            let _ = self.send_client(cx, &out, b"");
        }
    }
}

impl Answer {
    fn pass<'d>(
        &mut self,
        terms: &Terms<'_>,
        data: &'d [u8],
        out: &mut Vec<u8>,
        decoded: &mut Vec<u8>,
    ) -> Result<Passed<'d>, Failed> {
        let taken = self.take(data, decoded).map_err(|_| self.broken())?;
        if taken < data.len() {
            // More than the answer has: whatever that is, this connection cannot be trusted with another request.
            self.upstream_keeps = false;
        }
        let raw = (!self.decodes()).then(|| &data[..taken]);
        if !self.body.is_done() && self.hold(out, raw.unwrap_or(decoded)) {
            return Ok(Passed::Waits);
        }
        self.write(terms, raw, decoded, out);
        Ok(Passed::Goes(raw))
    }

    /// Whether the payload goes without the framing that it came in.
    fn decodes(&self) -> bool {
        let decodes = matches!(
            self.framing,
            ClientFraming::Unchunked | ClientFraming::Rechunked
        );
        decodes || self.filtering.is_some()
    }

    /// Follows the body through `data`, and appends its payload to `decoded` where the framing does not go on.
    fn take(&mut self, data: &[u8], decoded: &mut Vec<u8>) -> Result<usize, BadChunk> {
        if !self.decodes() {
            return self.body.consume(data);
        }
        if self.framing != ClientFraming::Rechunked {
            return self.body.decode(data, decoded);
        }
        let taken = self.body.decode_chunks(data, decoded)?;
        let trailers = &data[taken..];
        let more = self.body.consume(trailers)?;
        if more > 0 {
            let held = self.held.get_or_insert_default();
            held.trailers.extend_from_slice(&trailers[..more]);
        }
        Ok(taken + more)
    }

    /// Keeps a piece that is too small to go. A head in `out` is kept with it.
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

    /// Writes to `out` what goes before a piece: what was held, and the size of a chunk of ours. A piece that was decoded gets
    /// the end of the body behind it, or is filtered.
    fn write(
        &mut self,
        terms: &Terms<'_>,
        raw: Option<&[u8]>,
        decoded: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) {
        let mut payload = Vec::new();
        if let Some(held) = &mut self.held {
            let (head, waiting) = held.take();
            out.extend_from_slice(&head);
            payload = waiting;
        }
        if let Some(filtering) = &mut self.filtering {
            match payload.is_empty() {
                true => payload = std::mem::take(decoded),
                false => payload.append(decoded),
            }
            let (last, chunks) = (self.body.is_done(), &mut self.chunks);
            return filtering.pass(terms, payload, last, self.framing, chunks, out);
        }
        let size = payload.len() + raw.map_or(decoded.len(), <[u8]>::len);
        let in_chunks = matches!(
            self.framing,
            ClientFraming::Chunked | ClientFraming::Rechunked
        );
        if in_chunks && size > 0 {
            write_chunk_size(out, size, self.chunks);
            self.chunks = true;
        }
        out.extend_from_slice(&payload);
        if self.framing == ClientFraming::Rechunked && self.body.is_done() {
            write_end_of_chunks(decoded, self.chunks);
            let trailers = self.held.as_ref().map_or(&[][..], |held| &held.trailers);
            decoded.extend_from_slice(trailers);
        }
    }

    /// The end of a body that the upstream has ended by closing.
    pub(super) fn finish(&mut self, terms: &Terms<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        // Its end is known from here on.
        self.body = Body::Length(0);
        self.write(terms, None, &mut Vec::new(), &mut out);
        if self.filtering.is_none() && self.framing == ClientFraming::Chunked {
            write_last_chunk(&mut out, self.chunks);
        }
        out
    }

    /// How an answer fails of which the client has seen the head.
    pub(super) fn broken(&self) -> Failed {
        let by_closing = match self.framing {
            ClientFraming::AsReceived => matches!(self.body, Body::Close),
            ClientFraming::Unchunked => true,
            ClientFraming::Chunked | ClientFraming::Rechunked => false,
        };
        if by_closing {
            Failed::BrokenUnnoticed
        } else {
            Failed::Broken
        }
    }
}
