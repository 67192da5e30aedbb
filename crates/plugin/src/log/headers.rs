//! The headers of a message in a log record.

use super::json;
use super::record::write_grouped;
use crate::redact;
use crate::request::MAX_HEADERS;
use smallvec::SmallVec;

/// Headers whose values records do not show.
const REDACTED: [&[u8]; 2] = [b"authorization", b"proxy-authorization"];

struct Header<'h> {
    name: &'h [u8],
    value: &'h [u8],
    shown: Shown,
}

/// How the value of a header is shown.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shown {
    Whole,
    /// The value is a URL, whose credentials are hidden.
    Url,
    Redacted,
}

/// Writes the headers of a request. Credentials are shown without their values. `is_exact` says whether nothing but a
/// value is between a colon and the end of its line.
pub(super) fn write_request(head: &[u8], is_exact: bool, redacts: bool, out: &mut Vec<u8>) {
    let shown = |name: &[u8]| {
        let is_secret = REDACTED.iter().any(|one| one.eq_ignore_ascii_case(name));
        if is_secret {
            Shown::Redacted
        } else {
            Shown::Whole
        }
    };
    match redacts {
        false => write(head, is_exact, shown, out),
        true => write(head, is_exact, redacted, out),
    }
}

pub(super) fn write_response(head: &[u8], redacts: bool, out: &mut Vec<u8>) {
    match redacts {
        false => write(head, false, |_| Shown::Whole, out),
        true => write(head, false, redacted, out),
    }
}

/// Returns how a record shows a header that hides all credentials.
fn redacted(name: &[u8]) -> Shown {
    if redact::is_secret_header(name) {
        Shown::Redacted
    } else if redact::is_url_header(name) {
        Shown::Url
    } else {
        Shown::Whole
    }
}

/// Writes the headers of a head by name, in lower case. Its first line is left out, and its last line is empty. Of several
/// equal credentials, one is shown.
fn write(head: &[u8], is_exact: bool, shown: impl Fn(&[u8]) -> Shown, out: &mut Vec<u8>) {
    let ends = memchr::memchr_iter(b'\n', head);
    let starts = ends.clone().map(|end| end + 1);
    let lines = starts.zip(ends.skip(1)).take(MAX_HEADERS);
    let mut all: SmallVec<[Header<'_>; 24]> = SmallVec::new();
    for (start, end) in lines {
        let line = &head[start..end];
        let Some(colon) = memchr::memchr(b':', line) else {
            break;
        };
        let name = &line[..colon];
        let shown = shown(name);
        if shown != Shown::Redacted || !all.iter().any(|other| is_same(other.name, name)) {
            let value = &line[colon + 1..];
            let value = match is_exact {
                true => value.strip_suffix(b"\r").unwrap_or(value),
                false => value.trim_ascii(),
            };
            all.push(Header { name, value, shown });
        }
    }
    write_grouped(
        all.len(),
        |one, other| is_same(all[one].name, all[other].name),
        |at, out| {
            // A name is a token, which needs no escapes.
            out.push(b'"');
            let start = out.len();
            out.extend_from_slice(all[at].name);
            out[start..].make_ascii_lowercase();
            out.push(b'"');
        },
        |at, out| {
            let Header { value, shown, .. } = &all[at];
            out.push(b'"');
            match shown {
                Shown::Whole => json::escaped(value, out),
                Shown::Url => redact::url(value, |piece| json::escaped(piece, out)),
                Shown::Redacted => json::escaped(redact::REDACTED, out),
            }
            out.push(b'"');
        },
        out,
    );
}

fn is_same(one: &[u8], other: &[u8]) -> bool {
    one.eq_ignore_ascii_case(other)
}
