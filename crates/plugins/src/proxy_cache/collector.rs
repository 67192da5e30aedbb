//! Collects bodies that are to be stored, within a share of the memory of the storage.

use super::storage::Storage;
use bytes::{Bytes, BytesMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Length of the pieces in which a body is kept and sent.
const PIECE: usize = 64 * 1024;

/// Length of a body up to which it may use all the bytes for responses that are being collected.
const SMALL: usize = 64 * 1024;

/// The bytes of the bodies that are being collected. Many at once must not take more memory than the storage has. Bodies
/// of more than [`SMALL`] bytes get only half of it: a few clients that read large responses slowly must not keep all
/// others from being stored.
pub(super) struct Collecting {
    bytes: AtomicUsize,
    /// Maximum bytes of all bodies.
    most: usize,
    /// Maximum bytes of one body.
    one: usize,
}

/// Collects a body that is to be stored, while it is sent to the client. It copies the body, so that the stored one
/// keeps no larger buffers of the connection.
pub(super) struct Collector {
    storage: Arc<Storage>,
    pieces: Vec<Bytes>,
    last: BytesMut,
    len: usize,
}

/// The body has become too large to be stored, or too many bodies are being collected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NoRoom;

impl Collecting {
    pub(super) fn new(most: usize, one: usize) -> Self {
        Self {
            bytes: AtomicUsize::new(0),
            most,
            one,
        }
    }

    fn reserve(&self, len: usize, more: usize) -> Result<(), NoRoom> {
        if more > self.one.saturating_sub(len) {
            return Err(NoRoom);
        }
        let most = match len + more <= SMALL {
            true => self.most,
            false => self.most / 2,
        };
        let add = |all: usize| all.checked_add(more).filter(|all| *all <= most);
        let reserved = self
            .bytes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        reserved.map(|_| ()).map_err(|_| NoRoom)
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }
}

impl Collector {
    /// Begins to collect a body.
    pub(super) fn new(storage: &Arc<Storage>) -> Self {
        Self {
            storage: Arc::clone(storage),
            pieces: Vec::new(),
            last: BytesMut::new(),
            len: 0,
        }
    }

    /// Whether a body of this length could be collected if no other one were.
    pub(super) fn may_hold(&self, len: usize) -> bool {
        len <= self.storage.collecting.one
    }

    /// Returns the length of the body so far.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Adds a piece. After [`NoRoom`] the collector must be dropped, which gives its memory back.
    pub(super) fn add(&mut self, mut data: &[u8]) -> Result<(), NoRoom> {
        self.storage.collecting.reserve(self.len, data.len())?;
        self.len += data.len();
        while !data.is_empty() {
            let room = PIECE - self.last.len();
            let (now, later) = data.split_at(data.len().min(room));
            self.last.extend_from_slice(now);
            if self.last.len() == PIECE {
                self.end_piece();
            }
            data = later;
        }
        Ok(())
    }

    fn end_piece(&mut self) {
        // A copy of the exact length: the buffer has grown by doubling.
        let piece = Bytes::copy_from_slice(&self.last);
        self.last.clear();
        self.pieces.push(piece);
    }

    /// Returns the pieces of the body that was collected.
    pub(super) fn finish(&mut self) -> Vec<Bytes> {
        if !self.last.is_empty() {
            self.end_piece();
        }
        std::mem::take(&mut self.pieces)
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        let bytes = &self.storage.collecting.bytes;
        bytes.fetch_sub(self.len, Ordering::Relaxed);
    }
}
