//! Responses that are built from stored ones.

use super::Ask;
use super::freshness::age_of;
use crate::proxy_cache::collect;
use crate::proxy_cache::entry::{Entry, Lines};
use crate::proxy_cache::{AGE, Status};
use compact_str::CompactString;
use plugin::{HeaderEdits, Response, ResponseBody, ResponseCx};

/// Builds the response from a stored one: 304 if the client has it already. A stored response without its age would look
/// younger than it is, so that the age is always shown (RFC 9111, section 4).
pub(super) fn stored(
    entry: &Entry,
    headers: &Lines,
    ask: &Ask,
    status: Status,
    now: u64,
) -> Response {
    let mut edits = collect::replay(headers);
    edits.set(AGE, itoa::Buffer::new().format(age_of(entry, now)));
    ask.shown.status(&mut edits, status);
    ask.shown.key(&mut edits, ask.place.uri);
    let has_it = entry.status == 200 && ask.conditions.are_met_by(headers);
    Response {
        status: if has_it { 304 } else { entry.status },
        headers: edits,
        // The length of a 304 is that of the whole response (RFC 9110, section 8.6). Its body is not sent.
        body: ResponseBody::Pieces(entry.body.pieces.to_vec()),
        counts_as_proxied: true,
    }
}

/// Removes the headers of the response that a stored one replaces.
pub(super) fn remove_replaced(cx: &ResponseCx<'_, '_>, headers: &mut HeaderEdits) {
    let replaced = cx.upstream.into_iter().flat_map(|head| head.headers());
    for (name, _) in replaced {
        if !headers.drops(name) {
            headers.remove(CompactString::from(name));
        }
    }
}
