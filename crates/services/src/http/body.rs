//! The body of a request: pieces of memory that are sent one after the other without being copied into one.

use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

#[derive(Debug, Clone, Default)]
pub struct Body(VecDeque<Bytes>);

impl Body {
    /// Returns the number of bytes.
    pub fn size(&self) -> usize {
        self.0.iter().map(Bytes::len).sum()
    }

    /// Adds a piece in front of the others.
    pub fn prepend(&mut self, piece: Bytes) {
        self.0.push_front(piece);
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Self::from_iter([bytes])
    }
}

impl FromIterator<Bytes> for Body {
    fn from_iter<I: IntoIterator<Item = Bytes>>(pieces: I) -> Self {
        let pieces = pieces.into_iter();
        Self(pieces.filter(|piece| !piece.is_empty()).collect())
    }
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = self.0.pop_front();
        Poll::Ready(next.map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.size() as u64)
    }
}
