//! Collects a response that is to be stored, while it is sent to the client.

use super::collector::{Collector, NoRoom};
use super::{AGE, CACHE_KEY, CACHE_STATUS};
use compact_str::CompactString;
use plugin::{HeaderEdits, ResponseCx, Stored};
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

/// The headers that earlier plugins have set for one client, such as its remaining requests or the cookie of its
/// session. Kong stores them and sends them to other clients.
pub(super) struct Personal(Vec<CompactString>);

impl Personal {
    pub(super) fn new(early: &HeaderEdits) -> Self {
        Self(early.added().map(|(name, _)| name.into()).collect())
    }

    fn has(&self, name: &str) -> bool {
        let mut names = self.0.iter();
        names.any(|other| other.eq_ignore_ascii_case(name))
    }
}

/// A response that is being collected, since its head is known.
pub(super) struct Gathering {
    status: u16,
    headers: Stored,
    /// The body's length in the head, if it has one.
    length: Option<usize>,
    collector: Collector,
}

/// A response that was collected.
pub(super) struct Gathered {
    pub(super) status: u16,
    pub(super) stored: Stored,
}

impl Gathering {
    /// Takes over the head of a response, without the headers that `hides` names.
    pub(super) fn begin(
        cx: &ResponseCx<'_, '_>,
        personal: &Personal,
        hides: impl Fn(&str) -> bool,
        collector: Collector,
    ) -> Self {
        let length = cx.header("content-length");
        Self {
            status: cx.answer.status,
            headers: storable_lines(cx, personal, hides),
            length: length.and_then(|text| std::str::from_utf8(text).ok()?.parse().ok()),
            collector,
        }
    }

    /// Whether a body of the length in the head could be stored.
    pub(super) fn may_fit(&self) -> bool {
        (self.length).is_none_or(|length| self.collector.may_hold(length))
    }

    /// Adds a piece of the body. After [`NoRoom`] the response cannot be stored.
    pub(super) fn add(&mut self, data: &[u8]) -> Result<(), NoRoom> {
        self.collector.add(data)
    }

    /// Returns the response, now that it is complete. `None` if it cannot be sent again: a part of the body is missing,
    /// or it has trailers.
    pub(super) fn finish(mut self, cx: &ResponseCx<'_, '_>) -> Option<Gathered> {
        let length = self.collector.len();
        let is_whole = self.length.is_none_or(|stated| stated == length);
        (is_whole && cx.answer.trailers.is_empty()).then(|| Gathered {
            status: self.status,
            stored: self.headers.with_body(self.collector.finish()),
        })
    }
}

/// Returns the headers to store. Those of the upstream are stored also if they have the name of a personal one.
pub(super) fn storable_lines(
    cx: &ResponseCx<'_, '_>,
    personal: &Personal,
    hides: impl Fn(&str) -> bool,
) -> Stored {
    let edits = &cx.answer.headers;
    let of_upstream = cx.upstream.into_iter();
    let of_upstream = of_upstream.flat_map(|head| head.headers());
    let of_upstream = of_upstream.filter(|(name, _)| !edits.drops(name));
    let added = edits.added();
    let added = added.filter(|(name, _)| !personal.has(name) && !is_of_session(name));
    let listed = cx.header_lines("connection").flat_map(tokens);
    let listed: HashSet<Vec<u8>> = listed.map(<[u8]>::to_ascii_lowercase).collect();
    let is_listed =
        |name: &str| !listed.is_empty() && listed.contains(&name.to_ascii_lowercase().into_bytes());
    let stored = of_upstream.chain(added);
    let stored = stored.filter(|(name, _)| is_storable(name) && !is_listed(name) && !hides(name));
    Stored::new(stored)
}

/// Whether a header that a plugin sets is about the session of one client. The plugin session sets it in its header
/// filter, which also runs for stored responses.
fn is_of_session(name: &str) -> bool {
    const PREFIX: &[u8] = b"session-";
    let start = name.as_bytes().get(..PREFIX.len());
    name.eq_ignore_ascii_case("set-cookie")
        || start.is_some_and(|start| start.eq_ignore_ascii_case(PREFIX))
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
