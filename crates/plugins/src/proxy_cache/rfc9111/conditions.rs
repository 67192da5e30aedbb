//! Conditional requests: those of clients, which a stored response can answer, and those for the upstream, which validate
//! a stored response (RFC 9110, section 13; RFC 9111, section 4.3).

use crate::proxy_cache::control::http_date;
use crate::proxy_cache::entry::Entry;
use plugin::{HeaderValue, Request, Stored};

const IF_NONE_MATCH: &str = "If-None-Match";
const IF_MODIFIED_SINCE: &str = "If-Modified-Since";

/// The conditions of a client that a cache may evaluate.
#[derive(Debug, Default)]
pub(super) struct Conditions {
    /// The values of `If-None-Match`.
    pub(super) none_match: Vec<Box<[u8]>>,
    pub(super) modified_since: Option<u64>,
}

impl Conditions {
    /// Whether the client already has this response. `If-None-Match` takes precedence.
    pub(super) fn are_met_by(&self, headers: &Stored) -> bool {
        if !self.none_match.is_empty() {
            let tag = headers.header("etag");
            return tag.is_some_and(|tag| self.none_match.iter().any(|list| lists(list, tag)));
        }
        let Some(since) = self.modified_since else {
            return false;
        };
        let modified = headers.header("last-modified").and_then(http_date);
        // A response without Last-Modified has not changed since its date (RFC 9111, section 4.3.2).
        let modified = modified.or_else(|| headers.header("date").and_then(http_date));
        modified.is_some_and(|modified| modified <= since)
    }
}

/// Whether a list of entity tags has this one, or is `*`. Weak and strong tags are the same here (RFC 9110, section
/// 13.1.2). A tag may contain a comma.
fn lists(list: &[u8], tag: &[u8]) -> bool {
    let tag = strong(tag);
    let mut rest = list.trim_ascii();
    if rest == b"*" {
        return true;
    }
    while !rest.is_empty() {
        let after_weak = strong(rest);
        let end = match after_weak.strip_prefix(b"\"") {
            Some(inner) => memchr::memchr(b'"', inner).map_or(after_weak.len(), |at| at + 2),
            None => memchr::memchr(b',', after_weak).unwrap_or(after_weak.len()),
        };
        if after_weak[..end].trim_ascii() == tag {
            return true;
        }
        let after = &after_weak[end..];
        rest = match memchr::memchr(b',', after) {
            Some(comma) => after[comma + 1..].trim_ascii_start(),
            None => &[],
        };
    }
    false
}

fn strong(tag: &[u8]) -> &[u8] {
    tag.strip_prefix(b"W/").unwrap_or(tag)
}

/// Makes the request to the upstream validate a stored response. Returns whether the response has a validator. The
/// client's own conditions are evaluated against the result.
pub(super) fn validate(request: &mut Request<'_>, entry: &Entry) -> bool {
    let tag = entry.stored.header("etag");
    let modified = entry.stored.header("last-modified");
    if tag.is_none() && modified.is_none() {
        return false;
    }
    let headers = &mut request.upstream.headers;
    for (name, value) in [(IF_NONE_MATCH, tag), (IF_MODIFIED_SINCE, modified)] {
        match value {
            Some(value) => headers.set(name, HeaderValue::from_untrusted(value)),
            None => headers.remove(name),
        }
    }
    true
}

/// Whether the entity tag of a 304 is not that of the stored response.
pub(super) fn contradicts(entry: &Entry, tag: Option<&[u8]>) -> bool {
    let pair = tag.zip(entry.stored.header("etag"));
    pair.is_some_and(|(tag, own)| strong(tag) != strong(own))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_found_in_lists() {
        for (list, tag, is_there) in [
            ("\"a\"", "\"a\"", true),
            ("\"x\", \"a\"", "\"a\"", true),
            ("W/\"a\"", "\"a\"", true),
            ("\"a\"", "W/\"a\"", true),
            ("\"x,a\", \"y\"", "\"y\"", true),
            ("\"x,\"a\"", "\"a\"", false),
            ("*", "\"a\"", true),
            ("a", "\"a\"", false),
            ("a, b", "b", true),
            ("", "\"a\"", false),
            ("\"a", "\"a\"", false),
        ] {
            assert_eq!(
                lists(list.as_bytes(), tag.as_bytes()),
                is_there,
                "{list} {tag}"
            );
        }
    }

    #[test]
    fn a_list_costs_as_much_as_it_is_long() {
        testkit::cost::assert_linear(
            3000,
            |size| ["\"", ",", "\"x\",", "W/\"x\", ", "W/,"].map(|piece| piece.repeat(size)),
            |lists_of: [String; 5]| {
                for list in &lists_of {
                    std::hint::black_box(lists(list.as_bytes(), b"\"y\""));
                }
            },
        );
    }
}
