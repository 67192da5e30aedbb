//! What the headers of a request say about stored responses. They are read in one pass.

use super::conditions::Conditions;
use super::directives::RequestDirectives;
use crate::proxy_cache::control::http_date;
use plugin::Request;
use smallvec::SmallVec;

#[derive(Debug, Default)]
pub(super) struct Wishes {
    pub(super) directives: RequestDirectives,
    pub(super) conditions: Conditions,
    /// Whether it has something that a stored response cannot answer: a range, or a condition about the state of the
    /// origin.
    pub(super) needs_origin: bool,
}

impl Wishes {
    pub(super) fn read(request: &Request<'_>) -> Self {
        let mut wishes = Self::default();
        let mut control: SmallVec<[&[u8]; 4]> = SmallVec::new();
        let (mut has_pragma, mut since) = (false, None);
        for (name, value) in request.header_pairs() {
            let is = |other: &str| name.eq_ignore_ascii_case(other);
            // Most names have another length, and are not compared.
            match name.len() {
                5 if is("range") => wishes.needs_origin = true,
                8 if is("if-range") || is("if-match") => wishes.needs_origin = true,
                19 if is("if-unmodified-since") => wishes.needs_origin = true,
                6 if is("pragma") => has_pragma |= value.eq_ignore_ascii_case(b"no-cache"),
                13 if is("cache-control") => control.push(value),
                13 if is("if-none-match") => wishes.conditions.none_match.push(value.into()),
                17 if is("if-modified-since") => since = since.or(Some(value)),
                _ => {}
            }
        }
        wishes.conditions.modified_since = since.and_then(http_date);
        wishes.directives = RequestDirectives::parse(control.into_iter());
        if wishes.directives == RequestDirectives::default() {
            // RFC 9111, section 5.4: for clients of HTTP/1.0.
            wishes.directives.no_cache = has_pragma;
        }
        wishes
    }
}
