//! Responses that are built from stored ones.

use super::Ask;
use super::freshness::age_of;
use crate::proxy_cache::collect;
use crate::proxy_cache::entry::{Entry, Lines};
use crate::proxy_cache::{AGE, Status};
use compact_str::CompactString;
use plugin::{HeaderChange, HeaderEdits, Response, ResponseBody, ResponseCx};

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

/// Adds the removal of the headers of the response that another one replaces.
pub(super) fn in_place_of(cx: &ResponseCx<'_, '_>, headers: HeaderEdits) -> HeaderEdits {
    let replaced = cx.upstream.into_iter().flat_map(|head| head.headers());
    let removed = replaced.filter(|(name, _)| !headers.drops(name));
    let removed: Vec<CompactString> = removed.map(|(name, _)| name.into()).collect();
    let removed = removed.into_iter().map(|name| (name, HeaderChange::Remove));
    let mut edits = HeaderEdits::from_ordered(removed);
    edits.apply(headers);
    edits
}
