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

    /// Filters a piece of payload and appends the result to `out`, framed for the client. `chunks` is true if a chunk
    /// was written before. The end of the body is a call of its own for the filters, as in nginx.
    #[expect(clippy::too_many_arguments)]
    pub(super) fn pass(
        &mut self,
        request: &Request<'_>,
        chain: &mut Chain<'_>,
        payload: Bytes,
        last: bool,
        framing: ClientFraming,
        chunks: &mut bool,
        out: &mut Vec<u8>,
    ) -> Result<(), FilterFailed> {
        let mut data = Bytes::new();
        if !payload.is_empty() {
            data = self.filter(request, chain, payload, false)?;
        }
        if !last {
            write_payload(&[&data], framing, chunks, out);
            return Ok(());
        }
        let end = self.filter(request, chain, Bytes::new(), true)?;
        write_payload(&[&data, &end], framing, chunks, out);
        if self.left.is_some_and(|left| left > 0) {
            return Err(wrong_length(request));
        }
        if framing == ClientFraming::Chunked {
            write_end_of_chunks(out, *chunks);
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
fn write_payload(pieces: &[&[u8]], framing: ClientFraming, chunks: &mut bool, out: &mut Vec<u8>) {
    let length = pieces.iter().map(|piece| piece.len()).sum();
    if length == 0 {
        return;
    }
    if framing == ClientFraming::Chunked {
        write_chunk_size(out, length, *chunks);
        *chunks = true;
    }
    pieces.iter().for_each(|piece| out.extend_from_slice(piece));
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

/// Begins a chunk, and ends the previous one if there is one.
pub(super) fn write_chunk_size(out: &mut Vec<u8>, size: usize, follows_another: bool) {
    if follows_another {
        out.extend_from_slice(b"\r\n");
    }
    // Formatting by the standard library costs more than everything else that is done for a chunk.
    let digits = size.checked_ilog2().unwrap_or(0) / 4 + 1;
    let digit = |place: u32| b"0123456789abcdef"[size >> (4 * place) & 0xF];
    out.extend((0..digits).rev().map(digit));
    out.extend_from_slice(b"\r\n");
}

pub(super) fn write_last_chunk(out: &mut Vec<u8>, follows_another: bool) {
    write_end_of_chunks(out, follows_another);
    out.extend_from_slice(b"\r\n");
}

/// Writes the last chunk without the end of the body, so that trailers can follow.
pub(super) fn write_end_of_chunks(out: &mut Vec<u8>, follows_another: bool) {
    write_chunk_size(out, 0, follows_another);
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
            write_chunk_size(&mut out, size, false);
            write_chunk_size(&mut out, size, true);
            let expected = format!("{size:x}\r\n\r\n{size:x}\r\n");
            assert_eq!(out, expected.as_bytes());
        }
    }
}
