//! Responses that are built from stored ones.

use super::Ask;
use super::freshness::age_of;
use crate::proxy_cache::entry::Entry;
use crate::proxy_cache::{AGE, Status};
use compact_str::CompactString;
use plugin::{HeaderEdits, Response, ResponseBody, ResponseCx};
use std::sync::Arc;

/// Builds the response from a stored one: 304 if the client has it already. A stored response without its age would look
/// younger than it is, so that the age is always shown (RFC 9111, section 4).
pub(super) fn stored(entry: &Entry, ask: &Ask, status: Status, now: u64) -> Response {
    let mut headers = HeaderEdits::new();
    headers.set(AGE, itoa::Buffer::new().format(age_of(entry, now)));
    ask.shown.status(&mut headers, status);
    ask.shown.key(&mut headers, ask.place.uri);
    let has_it = entry.status == 200 && ask.conditions.are_met_by(&entry.stored);
    Response {
        status: if has_it { 304 } else { entry.status },
        headers,
        // The length of a 304 is that of the whole response (RFC 9110, section 8.6). Its body is not sent.
        body: ResponseBody::Stored(Arc::clone(&entry.stored)),
        counts_as_proxied: true,
    }
}

/// Makes a stored response one that replaces another one: the headers of that one are removed.
pub(super) fn replacing(cx: &ResponseCx<'_, '_>, response: Response) -> Response {
    let mut response = response.open();
    let replaced = cx.upstream.into_iter().flat_map(|head| head.headers());
    for (name, _) in replaced {
        if !response.headers.drops(name) {
            response.headers.remove(CompactString::from(name));
        }
    }
    response
}
