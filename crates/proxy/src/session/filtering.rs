//! Runs body filters over a forwarded response. Filters get the payload without the upstream's framing. Their output
//! gets the framing that the header filters have left ([`super::form::Form`]).

use crate::forward_response::ClientFraming;
use crate::plugins::{Chain, FilterFailed};
use bytes::Bytes;
use net::http1::ResponseHead;
use plugin::{Answer, Chunk, HeaderValue, Phases, Request};

/// The parts of the response, besides its body, that filters see.
pub(super) struct Filtering {
    head: ResponseHead,
    answer: Answer,
    /// Bytes of the body that are still to come, if its length was sent.
    left: Option<u64>,
}

impl Filtering {
    pub(super) fn new(head: ResponseHead, answer: Answer, length: Option<u64>) -> Self {
        Self {
            head,
            answer,
            left: length,
        }
    }

    /// Takes the upstream's trailers, which have arrived after the last chunk.
    pub(super) fn take_trailers(&mut self, trailers: &[u8]) {
        self.answer.trailers = parse_trailers(trailers);
    }

    /// Filters a piece of payload and appends the result to `out`, framed for the client. The end of the body is a call
    /// of its own for the filters, as in nginx.
    pub(super) fn pass(
        &mut self,
        request: &Request<'_>,
        chain: &mut Chain<'_>,
        payload: Bytes,
        last: bool,
        framing: ClientFraming,
        out: &mut Vec<u8>,
    ) -> Result<(), FilterFailed> {
        let mut data = Bytes::new();
        if !payload.is_empty() {
            data = self.filter(request, chain, payload, false)?;
        }
        if !last {
            write_payload(&[&data], framing, out);
            return Ok(());
        }
        let end = self.filter(request, chain, Bytes::new(), true)?;
        write_payload(&[&data, &end], framing, out);
        if self.left.is_some_and(|left| left > 0) {
            return Err(wrong_length(request));
        }
        if framing == ClientFraming::Chunked {
            write_chunk_size(out, 0);
            for (name, value) in &self.answer.trailers {
                crate::forward::write_header(out, name.as_bytes(), value.as_bytes());
            }
            out.extend_from_slice(b"\r\n");
        }
        Ok(())
    }

    fn filter(
        &mut self,
        request: &Request<'_>,
        chain: &mut Chain<'_>,
        data: Bytes,
        last: bool,
    ) -> Result<Bytes, FilterFailed> {
        if !chain.has(Phases::BODY_FILTER) {
            return Ok(data);
        }
        let mut chunk = Chunk { data, last };
        let (head, answer) = (Some(&self.head), &mut self.answer);
        chain.body_filter(request, head, None, answer, &mut chunk)?;
        if let Some(left) = &mut self.left {
            let length = chunk.data.len() as u64;
            *left = left
                .checked_sub(length)
                .ok_or_else(|| wrong_length(request))?;
        }
        Ok(chunk.data)
    }
}

/// Appends filtered payload in the framing for the client.
fn write_payload(pieces: &[&[u8]], framing: ClientFraming, out: &mut Vec<u8>) {
    let length = pieces.iter().map(|piece| piece.len()).sum();
    if length == 0 {
        return;
    }
    let in_chunks = framing == ClientFraming::Chunked;
    if in_chunks {
        write_chunk_size(out, length);
    }
    pieces.iter().for_each(|piece| out.extend_from_slice(piece));
    if in_chunks {
        out.extend_from_slice(CHUNK_END);
    }
}

/// Logs that the filtered body does not have the length that was sent to the client. The connection must be closed.
fn wrong_length(request: &Request<'_>) -> FilterFailed {
    tracing::error!(
        request_id = request.request_id,
        "a plugin has changed the length of a response's body, but has not removed Content-Length"
    );
    FilterFailed
}

/// Parses trailer lines. They were checked when the chunks were parsed, so a line that is malformed is left out.
pub(super) fn parse_trailers(lines: &[u8]) -> Vec<(compact_str::CompactString, HeaderValue)> {
    let lines = lines.split(|byte| *byte == b'\n');
    let pairs = lines.filter_map(|line| {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let colon = memchr::memchr(b':', line)?;
        let name = std::str::from_utf8(&line[..colon]).ok()?;
        let value = Bytes::copy_from_slice(line[colon + 1..].trim_ascii());
        Some((name.into(), HeaderValue::Bytes(value)))
    });
    pairs.collect()
}

/// The end of a chunk. It is sent with the chunk: some clients, such as Python's urllib3, read it before they use the
/// chunk.
pub(super) const CHUNK_END: &[u8] = b"\r\n";

/// Begins a chunk, which [`CHUNK_END`] ends. The chunk of size 0 is the last one, and trailers can follow its size.
pub(super) fn write_chunk_size(out: &mut Vec<u8>, size: usize) {
    // Formatting by the standard library costs more than everything else that is done for a chunk.
    let digits = size.checked_ilog2().unwrap_or(0) / 4 + 1;
    let digit = |place: u32| b"0123456789abcdef"[size >> (4 * place) & 0xF];
    out.extend((0..digits).rev().map(digit));
    out.extend_from_slice(b"\r\n");
}

/// Ends a body in chunks that has no trailers.
pub(super) fn write_last_chunk(out: &mut Vec<u8>) {
    write_chunk_size(out, 0);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_chunks_are_hexadecimal_without_zeros_before_them() {
        for size in [
            0,
            1,
            9,
            10,
            15,
            16,
            255,
            256,
            4095,
            4096,
            0xabc_def,
            usize::MAX,
        ] {
            let mut out = Vec::new();
            write_chunk_size(&mut out, size);
            assert_eq!(out, format!("{size:x}\r\n").as_bytes());
        }
    }
}
