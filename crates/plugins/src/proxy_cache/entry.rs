//! A stored response, and the memory that it takes.

use bytes::{Bytes, BytesMut};
use std::collections::HashSet;

/// Bytes that each stored item takes beside its texts: its positions in the map and in the order of eviction, and its
/// allocations. A test compares it with what an allocator counts.
const OVERHEAD: usize = 560;

/// Bytes that each header line takes beside its text.
const HEADER_OVERHEAD: usize = std::mem::size_of::<Line>();

/// Bytes that each piece of a body takes beside its text.
const PIECE_OVERHEAD: usize = 96;

/// A stored response.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) status: u16,
    pub(super) headers: Lines,
    pub(super) body: Body,
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

/// Header lines in order. Their texts are in one buffer, because a buffer for each would take more memory than most
/// texts.
#[derive(Debug, Clone, Default)]
pub(super) struct Lines(Box<[Line]>);

#[derive(Debug, Clone)]
pub(super) struct Line {
    /// The name as received.
    pub(super) name: Bytes,
    pub(super) value: Bytes,
    /// Whether no earlier line has this name.
    pub(super) is_first: bool,
}

impl Lines {
    pub(super) fn new<'l>(lines: impl Iterator<Item = (&'l str, &'l [u8])> + Clone) -> Self {
        let length = |(name, value): (&str, &[u8])| name.len() + value.len();
        let mut texts = BytesMut::with_capacity(lines.clone().map(length).sum());
        for (name, value) in lines.clone() {
            texts.extend_from_slice(name.as_bytes());
            texts.extend_from_slice(value);
        }
        let mut texts = texts.freeze();
        let mut names = HashSet::new();
        let lines = lines.map(|(name, value)| Line {
            name: texts.split_to(name.len()),
            value: texts.split_to(value.len()),
            is_first: names.insert(name.to_ascii_lowercase()),
        });
        Self(lines.collect())
    }

    pub(super) fn iter(&self) -> std::slice::Iter<'_, Line> {
        self.0.iter()
    }

    /// The names and values of all lines.
    pub(super) fn pairs(&self) -> impl Iterator<Item = (&str, &[u8])> + Clone {
        let pairs = self.0.iter();
        pairs.filter_map(|line| Some((std::str::from_utf8(&line.name).ok()?, &*line.value)))
    }

    /// Returns the first value of a header.
    pub(super) fn value(&self, name: &str) -> Option<&[u8]> {
        let mut lines = self.0.iter();
        let found = lines.find(|line| line.name.eq_ignore_ascii_case(name.as_bytes()));
        found.map(|line| &*line.value)
    }
}

/// A body in pieces. They belong to the stored response alone and keep no buffer of a connection.
#[derive(Debug, Clone, Default)]
pub(super) struct Body {
    pub(super) pieces: Box<[Bytes]>,
    pub(super) len: usize,
}

impl Entry {
    pub(super) fn weight(&self) -> usize {
        let line = |line: &Line| line.name.len() + line.value.len() + HEADER_OVERHEAD;
        let headers: usize = self.headers.iter().map(line).sum();
        OVERHEAD + headers + self.body.len + self.body.pieces.len() * PIECE_OVERHEAD
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
