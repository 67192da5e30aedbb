//! Collects a response that is to be stored, while it is sent to the client.

use super::key::CacheKey;
use super::storage::{Collector, Entry, Lines, NoRoom};
use super::{AGE, CACHE_KEY, CACHE_STATUS, Shown};
use compact_str::CompactString;
use plugin::{HeaderChange, HeaderEdits, HeaderValue, ResponseCx};
use std::collections::HashSet;

/// Headers of one connection or one message, which a stored response does not have.
const OF_ONE_MESSAGE: [&str; 12] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "trailer",
    "trailers",
    "transfer-encoding",
    "upgrade",
    "content-length",
    "proxy-connection",
    "http2-settings",
];

/// The id of a request, which a response to another one does not have.
const REQUEST_ID: &str = "X-Kong-Request-Id";

/// A request whose response is stored if it turns out to be storable.
pub(super) struct Pending {
    pub(super) key: CacheKey,
    pub(super) shown: Shown,
    /// Names of the headers that earlier plugins have set for this client, such as its remaining requests or the cookie
    /// of its session. Kong stores them and sends them to other clients.
    personal: Vec<CompactString>,
    begun: Option<Begun>,
}

/// The response, since its head is known.
struct Begun {
    status: u16,
    headers: Lines,
    ttl: u64,
    /// The body's length in the head, if it has one.
    length: Option<usize>,
    collector: Collector,
}

impl Pending {
    pub(super) fn new(key: CacheKey, shown: Shown, early: &HeaderEdits) -> Self {
        let personal = early.added().map(|(name, _)| name.into()).collect();
        Self {
            key,
            shown,
            personal,
            begun: None,
        }
    }

    /// Takes over the head of the response.
    pub(super) fn begin(&mut self, cx: &ResponseCx<'_, '_>, ttl: u64, collector: Collector) {
        let length = cx.header("content-length");
        let length = length.and_then(|text| std::str::from_utf8(text).ok()?.parse().ok());
        self.begun = Some(Begun {
            status: cx.answer.status,
            headers: self.headers(cx),
            ttl,
            length,
            collector,
        });
    }

    /// Returns the headers to store. Those of the upstream are stored also if they have the name of a personal one.
    fn headers(&self, cx: &ResponseCx<'_, '_>) -> Lines {
        let edits = &cx.answer.headers;
        let of_upstream = cx.upstream.into_iter();
        let of_upstream = of_upstream.flat_map(|head| head.headers());
        let of_upstream = of_upstream.filter(|(name, _)| !edits.drops(name));
        let added = edits.added().filter(|(name, _)| !self.is_personal(name));
        let listed = cx.header_lines("connection").flat_map(tokens);
        let listed: HashSet<Vec<u8>> = listed.map(<[u8]>::to_ascii_lowercase).collect();
        let is_listed = |name: &str| {
            !listed.is_empty() && listed.contains(&name.to_ascii_lowercase().into_bytes())
        };
        let stored = of_upstream.chain(added);
        let stored = stored.filter(|(name, _)| is_storable(name) && !is_listed(name));
        let stored: Vec<(&str, &[u8])> = stored.collect();
        Lines::new(stored.into_iter())
    }

    fn is_personal(&self, name: &str) -> bool {
        let mut personal = self.personal.iter();
        personal.any(|other| other.eq_ignore_ascii_case(name))
    }

    /// Adds a piece of the body. After [`NoRoom`] the response cannot be stored.
    pub(super) fn add(&mut self, data: &[u8]) -> Result<(), NoRoom> {
        match &mut self.begun {
            Some(begun) => begun.collector.add(data),
            None => Err(NoRoom),
        }
    }

    /// Returns the response, now that it is complete. `None` if it cannot be sent again: a part of the body is missing,
    /// or it has trailers.
    pub(super) fn finish(
        self,
        cx: &ResponseCx<'_, '_>,
        storage_ttl: Option<i64>,
        now: u64,
    ) -> Option<Entry> {
        let mut begun = self.begun?;
        let body = begun.collector.finish();
        let is_whole = begun.length.is_none_or(|length| length == body.len);
        if !is_whole || !cx.answer.trailers.is_empty() {
            return None;
        }
        let seconds = match storage_ttl {
            None => begun.ttl,
            // In nginx's shared memory, zero means that an entry does not expire.
            Some(0) => u64::MAX,
            Some(seconds) => u64::try_from(seconds).ok()?,
        };
        Some(Entry {
            status: begun.status,
            headers: begun.headers,
            body,
            stored_at: now,
            ttl: begun.ttl,
            expires_at: now.saturating_add(seconds),
        })
    }
}

fn is_storable(name: &str) -> bool {
    const REMAINING: &[u8] = b"ratelimit-remaining";
    let is = |other: &&str| other.eq_ignore_ascii_case(name);
    let is_replaced = [AGE, CACHE_STATUS, CACHE_KEY, REQUEST_ID].iter().any(is);
    let mut parts = name.as_bytes().windows(REMAINING.len());
    !is_replaced
        && !OF_ONE_MESSAGE.iter().any(is)
        && !parts.any(|part| part.eq_ignore_ascii_case(REMAINING))
}

fn tokens(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|&byte| byte == b',').map(<[u8]>::trim_ascii)
}

/// Returns stored lines as headers of a response. They replace lines with the same names that were there before.
pub(super) fn replay(stored: &Lines) -> HeaderEdits {
    HeaderEdits::from_ordered(stored.iter().map(|line| {
        let name = CompactString::from_utf8_lossy(&line.name);
        let value = HeaderValue::Bytes(line.value.clone());
        let change = match line.is_first {
            true => HeaderChange::Set(value),
            false => HeaderChange::Add(value),
        };
        (name, change)
    }))
}
