//! Ranges of response bytes that are being processed.

use crate::session::worker::Worker;

/// A range of response bytes: in the thread's read buffer, or in the kept part of an incomplete head.
#[derive(Clone, Copy)]
pub(super) enum Span {
    Read(usize, usize),
    Partial(usize, usize),
}

impl Span {
    pub(super) fn of<'b>(self, worker: &'b Worker, partial: &'b [u8]) -> &'b [u8] {
        match self {
            Self::Read(start, end) => &worker.read[start..end],
            Self::Partial(start, end) => &partial[start..end],
        }
    }

    pub(super) fn after(self, used: usize) -> Self {
        match self {
            Self::Read(start, end) => Self::Read(start + used, end),
            Self::Partial(start, end) => Self::Partial(start + used, end),
        }
    }

    pub(super) fn is_empty(self) -> bool {
        match self {
            Self::Read(start, end) | Self::Partial(start, end) => start == end,
        }
    }
}
