//! A body that is held until it is complete, within the memory that all such bodies of a node may use.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Maximum size of one body.
pub(super) const MOST: usize = 16 << 20;

/// Maximum size of all bodies that are held at the same time.
const MOST_OF_ALL: usize = 256 << 20;

/// The number of bytes that are held on a node.
#[derive(Debug, Default)]
pub(super) struct Total(AtomicUsize);

/// The part of a body that has arrived.
#[derive(Debug)]
pub(super) struct Held {
    body: Vec<u8>,
    total: Arc<Total>,
}

impl Held {
    pub(super) fn new(total: &Arc<Total>) -> Self {
        Self {
            body: Vec::new(),
            total: total.clone(),
        }
    }

    pub(super) fn body(&self) -> &[u8] {
        &self.body
    }

    /// Adds a piece. Returns false if there is no room for it.
    pub(super) fn add(&mut self, piece: &[u8]) -> bool {
        if self.body.len() + piece.len() > MOST {
            return false;
        }
        let before = self.total.0.fetch_add(piece.len(), Ordering::Relaxed);
        if before + piece.len() > MOST_OF_ALL {
            self.total.0.fetch_sub(piece.len(), Ordering::Relaxed);
            return false;
        }
        self.body.extend_from_slice(piece);
        true
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.total.0.fetch_sub(self.body.len(), Ordering::Relaxed);
    }
}
