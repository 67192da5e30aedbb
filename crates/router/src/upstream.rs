//! Joins the service's path and the request's path into the upstream path. The two methods, `v0` and `v1`, behave as in
//! Kong, including their irregularities (`kong/router/utils.lua`, `kong/router/traditional.lua`).

use model::entities::PathHandling;
use model::uri::escape_into;

/// Appends the escaped path. `stripped` is the number of bytes that the route strips from the start of `path`.
pub(crate) fn write_path(
    base: &[u8],
    path: &[u8],
    stripped: Option<usize>,
    handling: PathHandling,
    out: &mut Vec<u8>,
) {
    let rest = stripped.map(|length| without_leading_dots(path.get(length..).unwrap_or(b"")));
    let parts = match (handling, rest) {
        (PathHandling::V0, Some(rest)) => join_stripped(base, rest, path),
        (PathHandling::V0, None) => join_whole(base, path),
        (PathHandling::V1, Some(rest)) => match (base, rest) {
            ([base @ .., b'/'], [b'/', ..]) => [base, b"", rest],
            _ => [base, b"", rest],
        },
        (PathHandling::V1, None) => [base, b"", without_first_slash(path)],
    };
    for part in parts.into_iter().filter(|part| !part.is_empty()) {
        escape_into(part, out);
    }
}

/// A trailing slash in the request's path matters only if nothing is left after stripping.
fn join_stripped<'a>(base: &'a [u8], rest: &'a [u8], path: &[u8]) -> [&'a [u8]; 3] {
    let ends_in_slash = path.last() == Some(&b'/');
    match (base, rest) {
        (b"/", b"") => [b"/", b"", b""],
        ([.., b'/'], b"") if ends_in_slash => [base, b"", b""],
        ([bare @ .., b'/'], b"") => [bare, b"", b""],
        ([bare @ .., b'/'], [b'/', ..]) => [bare, b"", rest],
        ([.., b'/'], _) => [base, b"", rest],
        (_, b"") if ends_in_slash && path.len() > 1 => [base, b"/", b""],
        (_, b"") => [base, b"", b""],
        (_, [b'/', ..]) => [base, b"", rest],
        _ => [base, b"/", rest],
    }
}

fn join_whole<'a>(base: &'a [u8], path: &'a [u8]) -> [&'a [u8]; 3] {
    match (base, path) {
        ([.., b'/'], _) => [base, b"", without_first_slash(path)],
        (_, b"/") => [base, b"", b""],
        _ => [base, b"", path],
    }
}

/// Removes a leading dot segment, so that the rest cannot leave the service's path.
fn without_leading_dots(rest: &[u8]) -> &[u8] {
    match rest {
        b"." | b".." => b"",
        [b'.', b'/', rest @ ..] | [b'.', b'.', b'/', rest @ ..] => rest,
        _ => rest,
    }
}

fn without_first_slash(path: &[u8]) -> &[u8] {
    path.strip_prefix(b"/").unwrap_or(path)
}
