//! What a client signs: the date, the headers that it names, and the request line.

use super::config::Algorithm;
use aws_lc_rs::hmac;
use plugin::Request;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use time::PrimitiveDateTime;
use time::macros::format_description;

/// Maximum number of signed headers. Plugins see as many header lines.
pub(super) const MAX_SIGNED: usize = 100;

/// Maximum length of the signed text: twice the size of the largest head. A text is longer only if names are repeated.
const MAX_TEXT: usize = 64 * 1024;

/// Splits the list of signed headers. Two adjacent spaces have an empty name between them, as in Kong.
pub(super) fn names(headers: &[u8]) -> impl Iterator<Item = &[u8]> + Clone {
    headers.split(|&byte| byte == b' ')
}

/// Computes the signature that a request should have. Returns `None` if the signed text is longer than [`MAX_TEXT`].
/// Source: kong/plugins/hmac-auth/access.lua create_hash().
pub(super) fn sign(
    request: &Request<'_>,
    headers: &[u8],
    algorithm: Algorithm,
    secret: &str,
) -> Option<hmac::Tag> {
    let key = hmac::Key::new(algorithm.hmac(), secret.as_bytes());
    let mut context = hmac::Context::with_key(&key);
    let mut left = Some(MAX_TEXT);
    write(request, headers, &mut |piece| {
        left = left.and_then(|left| left.checked_sub(piece.len()));
        if left.is_some() {
            context.update(piece);
        }
    });
    left.map(|_| context.sign())
}

/// Writes what is signed, one line for each name.
fn write(request: &Request<'_>, headers: &[u8], out: &mut impl FnMut(&[u8])) {
    for (index, name) in names(headers).enumerate() {
        if index > 0 {
            out(b"\n");
        }
        let text = std::str::from_utf8(name).ok();
        let value = text.and_then(|name| first_value(request, name));
        match (value, name) {
            (Some(value), _) => {
                out(name);
                out(b": ");
                out(value);
            }
            (None, b"@request-target") => {
                out(b"@request-target: ");
                out(&request.method_bytes().to_ascii_lowercase());
                out(b" ");
                write_target(request, out);
            }
            (None, b"request-line") => {
                out(request.method_bytes());
                out(b" ");
                write_target(request, out);
                out(b" HTTP/");
                out(version(request).as_bytes());
            }
            (None, _) => {
                out(name);
                out(b":");
            }
        }
    }
}

/// Returns the first value of a header, among all lines: a header that is signed as absent must not hide behind others. `_`
/// and `-` are equal, as in nginx's variables, because some upstreams read them as the same name.
fn first_value<'r>(request: &'r Request<'_>, name: &str) -> Option<&'r [u8]> {
    let exact = request.every_header_line(name).next();
    if exact.is_some() || !name.contains(['-', '_']) {
        return exact;
    }
    let dashed = |name: &str| name.replace('_', "-");
    let wanted = dashed(name);
    let mut lines = request.header_pairs();
    let line = lines.find(|(other, _)| {
        other.len() == wanted.len() && dashed(other).eq_ignore_ascii_case(&wanted)
    });
    line.map(|(_, value)| value)
}

/// Writes path and query as they were received, whatever routing or earlier plugins have changed.
fn write_target(request: &Request<'_>, out: &mut impl FnMut(&[u8])) {
    out(request.head.path_bytes());
    if let Some(query) = request.head.query_bytes() {
        out(b"?");
        out(query);
    }
}

fn version(request: &Request<'_>) -> &'static str {
    match request.head.version() {
        _ if request.http2 => "2.0",
        net::http1::Version::Http10 => "1.0",
        net::http1::Version::Http11 => "1.1",
    }
}

/// Parses a date of one of the three forms of RFC 9110, section 5.6.7. As in nginx's `ngx_parse_http_time`, whatever
/// follows the time is ignored in the first form, so that `+0000` of e-mail is as good as `GMT`. Returns seconds since
/// 1970.
pub(super) fn parse_date(value: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(value).ok()?;
    let time: SystemTime = match fixed_date(text) {
        Some(time) => time.assume_utc().into(),
        None => httpdate::parse_http_date(text).ok()?,
    };
    let since: Duration = time.duration_since(UNIX_EPOCH).ok()?;
    Some(since.as_secs())
}

fn fixed_date(text: &str) -> Option<PrimitiveDateTime> {
    const LENGTH: usize = "06 Nov 1994 08:49:37".len();
    let (_, date) = text.split_once(',')?;
    let date = date.trim_start_matches(' ').get(..LENGTH)?;
    let form = format_description!("[day] [month repr:short] [year] [hour]:[minute]:[second]");
    PrimitiveDateTime::parse(date, form).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_have_the_forms_that_nginx_reads() {
        for (text, wanted) in [
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(784_111_777)),
            ("Sun, 06 Nov 1994 08:49:37 -0000", Some(784_111_777)),
            ("Mon,  06 Nov 1994 08:49:37", Some(784_111_777)),
            ("Sunday, 06-Nov-94 08:49:37 GMT", Some(784_111_777)),
            ("Sun Nov  6 08:49:37 1994", Some(784_111_777)),
            ("Sun, 31 Feb 1994 08:49:37 GMT", None),
            ("Sun, 06 Nov 1994 24:49:37 GMT", None),
            ("Sun, 06 Nov 1994 08:49", None),
            ("Sun, 06 Nov 1969 08:49:37 GMT", None),
            (",\u{e9}06 Nov 1994 08:49:37", None),
            ("784111777", None),
            ("", None),
        ] {
            assert_eq!(parse_date(text.as_bytes()), wanted, "{text}");
        }
        assert_eq!(parse_date(b"\xff"), None);
    }
}
