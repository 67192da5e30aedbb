//! The encodings of gRPC-Web: base64 that comes in pieces, frames, and the trailers as the last frame of a body.

use bytes::{Buf, Bytes, BytesMut};
use data_encoding::{BASE64, BASE64_NOPAD};

/// Length of the head of a frame: flags, and the length of the content.
const FRAME_HEAD: usize = 5;

/// The flag of the frame with the trailers.
pub(super) const TRAILERS: u8 = 0x80;

/// The flag of a compressed message.
pub(super) const COMPRESSED: u8 = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum CodecError {
    #[error("the body is not base64")]
    Base64,
    #[error("the body ends within a frame")]
    Unfinished,
    #[error("a message is larger than {0} bytes")]
    TooLarge(usize),
}

/// Decodes base64 in pieces of any length. Padding may be anywhere, because clients encode each of their pieces alone.
#[derive(Debug, Default)]
pub(super) struct Base64Decoder {
    /// The begin of a group of four characters.
    group: [u8; 4],
    length: usize,
}

impl Base64Decoder {
    pub(super) fn decode(&mut self, mut text: &[u8]) -> Result<Vec<u8>, CodecError> {
        let mut out = Vec::with_capacity((self.length + text.len()).div_ceil(4) * 3);
        while let Some((&byte, rest)) = text.split_first() {
            let whole = self.length == 0 && text.len() >= 4;
            if whole && let Some(taken) = decode_groups(text, &mut out)? {
                text = &text[taken..];
                continue;
            }
            text = rest;
            self.group[self.length] = byte;
            self.length += 1;
            if self.length == 4 {
                self.length = 0;
                decode_padded(&self.group, &mut out)?;
            }
        }
        Ok(out)
    }

    /// Decodes what is left at the end. The last padding may be missing, as for Kong.
    pub(super) fn finish(&mut self) -> Result<Vec<u8>, CodecError> {
        let rest = &self.group[..std::mem::take(&mut self.length)];
        let padding = rest.iter().position(|&byte| byte == b'=');
        let (group, padding) = rest.split_at(padding.unwrap_or(rest.len()));
        if !padding.is_empty() && (group.len() < 2 || padding.iter().any(|&byte| byte != b'=')) {
            return Err(CodecError::Base64);
        }
        BASE64_NOPAD.decode(group).map_err(|_| CodecError::Base64)
    }
}

/// Decodes the groups of four characters before the first padding. Returns their length, or `None` if there is none.
fn decode_groups(text: &[u8], out: &mut Vec<u8>) -> Result<Option<usize>, CodecError> {
    let end = memchr::memchr(b'=', text).unwrap_or(text.len()) / 4 * 4;
    if end == 0 {
        return Ok(None);
    }
    let start = out.len();
    out.resize(start + end / 4 * 3, 0);
    BASE64
        .decode_mut(&text[..end], &mut out[start..])
        .map_err(|_| CodecError::Base64)?;
    Ok(Some(end))
}

fn decode_padded(group: &[u8; 4], out: &mut Vec<u8>) -> Result<(), CodecError> {
    let decoded = BASE64.decode(group).map_err(|_| CodecError::Base64)?;
    out.extend_from_slice(&decoded);
    Ok(())
}

/// Encodes one piece, with its own padding.
pub(super) fn encode_base64(bytes: &[u8]) -> Bytes {
    BASE64.encode(bytes).into()
}

/// Returns a frame with this content.
pub(super) fn frame(flags: u8, content: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(FRAME_HEAD + content.len());
    out.push(flags);
    // A content that does not fit would have to be larger than the memory limit of a body.
    out.extend_from_slice(
        &u32::try_from(content.len())
            .unwrap_or(u32::MAX)
            .to_be_bytes(),
    );
    out.extend_from_slice(content);
    out
}

/// Returns the frame with the trailers. The status and the message come first and are always there, as in Kong.
pub(super) fn trailer_frame<'t>(
    trailers: impl Iterator<Item = (&'t str, &'t [u8])> + Clone,
) -> Vec<u8> {
    let value = |wanted: &str| {
        let mut same = trailers.clone();
        same.find(|(name, _)| name.eq_ignore_ascii_case(wanted))
            .map(|(_, value)| value)
    };
    let mut content = Vec::new();
    put_line(
        &mut content,
        "grpc-status",
        value("grpc-status").unwrap_or(b"0"),
    );
    put_line(
        &mut content,
        "grpc-message",
        value("grpc-message").unwrap_or_default(),
    );
    for (name, value) in trailers.clone() {
        if !["grpc-status", "grpc-message"]
            .iter()
            .any(|known| known.eq_ignore_ascii_case(name))
        {
            put_line(&mut content, name, value);
        }
    }
    frame(TRAILERS, &content)
}

fn put_line(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.extend(name.bytes().map(|byte| byte.to_ascii_lowercase()));
    out.push(b':');
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Finds the frames in a body that comes in pieces.
#[derive(Debug)]
pub(super) struct Frames {
    buffer: BytesMut,
    limit: usize,
}

/// A frame of a body.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) flags: u8,
    pub(super) content: Bytes,
}

impl Frames {
    /// The limit is for the content of a frame. At most one unfinished frame is kept in memory.
    pub(super) fn new(limit: usize) -> Self {
        Self {
            buffer: BytesMut::new(),
            limit,
        }
    }

    pub(super) fn push(&mut self, piece: &[u8]) {
        self.buffer.extend_from_slice(piece);
    }

    /// Returns the next frame if it has arrived.
    pub(super) fn next(&mut self) -> Result<Option<Frame>, CodecError> {
        let Some((&[flags, ref length @ ..], _)) = self.buffer.split_first_chunk::<FRAME_HEAD>()
        else {
            return Ok(None);
        };
        let length = u32::from_be_bytes(*length) as usize;
        if length > self.limit {
            return Err(CodecError::TooLarge(self.limit));
        }
        if self.buffer.len() - FRAME_HEAD < length {
            return Ok(None);
        }
        self.buffer.advance(FRAME_HEAD);
        let content = self.buffer.split_to(length).freeze();
        Ok(Some(Frame { flags, content }))
    }

    /// Whether the body ended after a frame.
    pub(super) fn finish(&self) -> Result<(), CodecError> {
        if self.buffer.is_empty() {
            Ok(())
        } else {
            Err(CodecError::Unfinished)
        }
    }
}

#[cfg(test)]
#[path = "codec_tests.rs"]
mod tests;
