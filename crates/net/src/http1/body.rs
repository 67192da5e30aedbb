//! Finds the end of a message body while its bytes pass through.

use super::chunked::{BadChunk, Chunked};

/// The way in which the end of a body is found (RFC 9112 section 6.3).
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    #[default]
    None,
    Length(u64),
    Chunked,
    /// The body ends when the connection closes. Only responses may use this.
    Close,
}

/// Remaining part of a body, updated as its bytes pass through.
#[derive(Debug, Clone)]
pub enum Body {
    Length(u64),
    Chunked(Chunked),
    Close,
}

impl Body {
    pub fn new(framing: Framing) -> Self {
        match framing {
            Framing::None => Self::Length(0),
            Framing::Length(length) => Self::Length(length),
            Framing::Chunked => Self::Chunked(Chunked::default()),
            Framing::Close => Self::Close,
        }
    }

    #[inline]
    pub fn is_done(&self) -> bool {
        match self {
            Self::Length(left) => *left == 0,
            Self::Chunked(chunked) => chunked.is_done(),
            Self::Close => false,
        }
    }

    /// Returns how many bytes of the current chunk's data are still to come, or `None` if the body is not in chunks.
    pub fn left_of_chunk(&self) -> Option<u64> {
        match self {
            Self::Chunked(chunked) => Some(chunked.left_of_chunk()),
            Self::Length(_) | Self::Close => None,
        }
    }

    /// Returns how many leading bytes of `data` belong to this body, chunk framing included.
    #[inline]
    pub fn consume(&mut self, data: &[u8]) -> Result<usize, BadChunk> {
        match self {
            Self::Length(left) => Ok(take(left, data.len())),
            Self::Chunked(chunked) => chunked.advance(data, |_| {}),
            Self::Close => Ok(data.len()),
        }
    }

    /// Like [`Self::consume`], and also returns how many of these bytes are payload.
    pub fn measure(&mut self, data: &[u8]) -> Result<(usize, usize), BadChunk> {
        match self {
            Self::Chunked(chunked) => {
                let mut payload = 0;
                let taken = chunked.advance(data, |part| payload += part.len())?;
                Ok((taken, payload))
            }
            _ => self.consume(data).map(|taken| (taken, taken)),
        }
    }

    /// Like [`Self::consume`], and appends the payload without its framing to `payload`.
    pub fn decode(&mut self, data: &[u8], payload: &mut Vec<u8>) -> Result<usize, BadChunk> {
        match self {
            Self::Chunked(chunked) => chunked.advance(data, |part| payload.extend_from_slice(part)),
            _ => {
                let taken = self.consume(data)?;
                payload.extend_from_slice(&data[..taken]);
                Ok(taken)
            }
        }
    }

    /// Like [`Self::decode`], but stops after the last chunk. [`Self::consume`] then takes the trailers and the end of
    /// the body.
    pub fn decode_chunks(&mut self, data: &[u8], payload: &mut Vec<u8>) -> Result<usize, BadChunk> {
        match self {
            Self::Chunked(chunked) => {
                chunked.advance_chunks(data, |part| payload.extend_from_slice(part))
            }
            _ => self.decode(data, payload),
        }
    }
}

fn take(left: &mut u64, available: usize) -> usize {
    let taken = (*left).min(available as u64);
    *left -= taken;
    taken as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_decoded_up_to_the_trailers_wherever_they_are_cut() {
        let text = b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nX: y\r\n\r\nnext";
        let trailers = b"X: y\r\n\r\n";
        for cut in 0..=text.len() {
            let mut body = Body::new(Framing::Chunked);
            let (mut payload, mut behind) = (Vec::new(), Vec::new());
            for piece in [&text[..cut], &text[cut..]] {
                let taken = body
                    .decode_chunks(piece, &mut payload)
                    .expect("well formed");
                let rest = &piece[taken..];
                let more = body.consume(rest).expect("well formed");
                behind.extend_from_slice(&rest[..more]);
            }
            assert!(body.is_done());
            assert_eq!((&payload[..], &behind[..]), (&b"abcde"[..], &trailers[..]));
        }
    }
}
