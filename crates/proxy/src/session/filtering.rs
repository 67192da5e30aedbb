//! Runs body filters over a forwarded response. Filters get the payload without the upstream's framing. Their output
//! gets a new framing, because its length is unknown until its end.

use super::exchange::Terms;
use crate::forward_response::ClientFraming;
use net::http1::ResponseHead;
use plugin::{Chunk, HeaderEdits, Origin, ResponseCx};

/// The parts of the response, besides its body, that filters see.
pub(super) struct Filtering {
    pub(super) head: ResponseHead,
    pub(super) headers: HeaderEdits,
    pub(super) status: u16,
}

impl Filtering {
    /// Filters a piece of payload and appends the result to `out`, framed for the client. `chunks` is true if a chunk
    /// was written before.
    pub(super) fn pass(
        &mut self,
        terms: &Terms<'_>,
        payload: Vec<u8>,
        last: bool,
        framing: ClientFraming,
        chunks: &mut bool,
        out: &mut Vec<u8>,
    ) {
        if payload.is_empty() && !last {
            return;
        }
        let mut cx = ResponseCx {
            request: terms.cx,
            origin: Origin::Upstream,
            status: self.status,
            upstream: Some(&self.head),
            headers: std::mem::take(&mut self.headers),
        };
        let mut chunk = Chunk {
            data: payload.into(),
            last,
        };
        terms
            .picked
            .body_filter(terms.instances, &mut cx, &mut chunk);
        self.headers = cx.headers;
        if framing != ClientFraming::Chunked {
            return out.extend_from_slice(&chunk.data);
        }
        if !chunk.data.is_empty() {
            write_chunk_size(out, chunk.data.len(), *chunks);
            out.extend_from_slice(&chunk.data);
            *chunks = true;
        }
        if last {
            write_last_chunk(out, *chunks);
        }
    }
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
