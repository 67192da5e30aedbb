//! How long a message body is, and how much of it has passed.

use super::chunked::{BadChunk, Chunked};

/// How the end of a body is known (RFC 9112 section 6.3).
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    #[default]
    None,
    Length(u64),
    Chunked,
    /// Until the connection closes; only answers end so.
    Close,
}

/// A body on its way: what of it is still to come.
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

    /// How many leading bytes of `data` belong to this body as they travel, chunk framing included.
    #[inline]
    pub fn consume(&mut self, data: &[u8]) -> Result<usize, BadChunk> {
        match self {
            Self::Length(left) => Ok(take(left, data.len())),
            Self::Chunked(chunked) => chunked.advance(data, |_| {}),
            Self::Close => Ok(data.len()),
        }
    }

    /// The same, and how much of it is payload.
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

    /// The same, appending the payload without its framing to `payload`.
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
}

fn take(left: &mut u64, available: usize) -> usize {
    let taken = (*left).min(available as u64);
    *left -= taken;
    taken as usize
}
