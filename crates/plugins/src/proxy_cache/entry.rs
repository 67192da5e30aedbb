//! A stored response, and the memory that it takes.

use plugin::Stored;
use std::sync::Arc;

/// Bytes that each stored item takes beside its texts: its positions in the map and in the order of eviction, and its
/// allocations. A test compares it with what an allocator counts.
const OVERHEAD: usize = 560;

/// Bytes that each further piece of a body takes beside its text.
const PIECE_OVERHEAD: usize = 64;

/// A stored response.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) status: u16,
    pub(super) stored: Arc<Stored>,
    /// Time of storing, in seconds since 1970.
    pub(super) stored_at: u64,
    /// Seconds for which the response may be sent. With `rfc9111`, they count from its creation at the upstream.
    pub(super) ttl: u64,
    /// Time at which the response leaves the storage, in seconds since 1970.
    pub(super) expires_at: u64,
    /// How the response may be used with `rfc9111`. Plugins without it store the default, and do not read it.
    pub(super) terms: Terms,
}

/// The terms of RFC 9111 and RFC 5861 under which a stored response may be sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Terms {
    /// Age of the response when it was stored, in seconds.
    pub(super) age: u64,
    /// Whether each use must be validated with the upstream (`no-cache`).
    pub(super) always_validates: bool,
    /// Whether it must not be sent once it is stale (`must-revalidate` and what implies it).
    pub(super) forbids_stale: bool,
    /// Whether requests with `Authorization` may share it.
    pub(super) shares_authorized: bool,
    /// Seconds after the end of its freshness for which it may be sent while it is validated.
    pub(super) while_revalidate: u64,
    /// Seconds after the end of its freshness for which it may be sent in place of an error.
    pub(super) if_error: u64,
}

impl Entry {
    pub(super) fn weight(&self) -> usize {
        OVERHEAD + self.stored.weight() + self.stored.more_pieces().len() * PIECE_OVERHEAD
    }
}

/// What the requests of one URI have in common under `rfc9111`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Family {
    /// A number that the keys of all responses of the URI depend on. Without the family they cannot be found any more,
    /// which makes them invalid at once, however many there are.
    pub(super) number: u64,
    /// The names of the request headers that responses of the URI have listed in `Vary`, in lower case and sorted.
    pub(super) vary: Box<[Box<str>]>,
    /// Digests of the values of these headers for which a response was stored, the oldest first.
    pub(super) variants: Box<[u64]>,
    /// The key of the response that was stored last.
    pub(super) latest: super::key::CacheKey,
}

impl Family {
    pub(super) fn weight(&self) -> usize {
        let names = self.vary.iter().map(|name| name.len() + 16);
        OVERHEAD + names.sum::<usize>() + self.variants.len() * 8
    }
}
