//! The headers that plugins set before there is a response.

use net::http1::{KnownHeader, ResponseHead};
use plugin::{Answer, HeaderEdits};

/// Adds these headers to an answer, before the header filters. In front of an upstream's response they are lines before
/// the upstream's own, as nginx adds the upstream's headers to those that it already has; only the type of the content is
/// the upstream's alone. A response without an upstream replaces those that it sets itself.
#[inline]
pub(super) fn add(early: &mut HeaderEdits, upstream: Option<&ResponseHead>, answer: &mut Answer) {
    if early.is_empty() {
        if answer.headers.is_empty() {
            // The filters use the memory of the list.
            std::mem::swap(early, &mut answer.headers);
        }
        return;
    }
    let mut early = std::mem::take(early);
    if let Some(head) = upstream {
        early = early.into_before(head.known(KnownHeader::ContentType).next().is_some());
    }
    let later = std::mem::replace(&mut answer.headers, early);
    if !later.is_empty() {
        answer.headers.apply(later);
    }
}
