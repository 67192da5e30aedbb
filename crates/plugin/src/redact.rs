//! Hides credentials in logs (`log_redact`): values of query fields, cookies, and headers with keys.

use std::borrow::Cow;

/// What a log shows in place of a credential.
pub const REDACTED: &[u8] = b"REDACTED";

/// Fields of a query whose values are credentials. The first six are those of OAuth 2.0 and of Kong's plugins.
const FIELDS: [&[u8]; 11] = [
    b"access_token",
    b"client_secret",
    b"code",
    b"refresh_token",
    b"jwt",
    b"apikey",
    b"api_key",
    b"id_token",
    b"assertion",
    b"client_assertion",
    b"password",
];

/// Headers whose values are credentials. Kong hides the first two in log records.
const HEADERS: [&[u8]; 11] = [
    b"authorization",
    b"proxy-authorization",
    b"cookie",
    b"set-cookie",
    b"apikey",
    b"api-key",
    b"x-api-key",
    b"x-auth-token",
    b"x-access-token",
    b"x-amz-security-token",
    b"x-vault-token",
];

/// Headers whose values are URLs, with codes and tokens of OAuth 2.0 in their queries and fragments.
const URL_HEADERS: [&[u8]; 4] = [b"referer", b"location", b"content-location", b"refresh"];

/// Whether a field of a query has a credential. The name may be percent-encoded.
pub fn is_secret_field(name: &[u8]) -> bool {
    let name: Cow<'_, [u8]> = match name.contains(&b'%') {
        true => percent_encoding::percent_decode(name).into(),
        false => name.into(),
    };
    FIELDS.iter().any(|field| name.eq_ignore_ascii_case(field))
}

/// Whether a header has a credential.
pub fn is_secret_header(name: &[u8]) -> bool {
    HEADERS
        .iter()
        .any(|header| name.eq_ignore_ascii_case(header))
}

/// Whether the value of a header is a URL, which [`url`] shows without credentials.
pub fn is_url_header(name: &[u8]) -> bool {
    URL_HEADERS
        .iter()
        .any(|header| name.eq_ignore_ascii_case(header))
}

/// Passes the pieces of a query to `out`, with values of secret fields hidden.
pub fn query(query: &[u8], mut out: impl FnMut(&[u8])) {
    for (at, pair) in query.split(|byte| *byte == b'&').enumerate() {
        if at > 0 {
            out(b"&");
        }
        match memchr::memchr(b'=', pair) {
            Some(equals) if is_secret_field(&pair[..equals]) => {
                out(&pair[..=equals]);
                out(REDACTED);
            }
            _ => out(pair),
        }
    }
}

/// Passes the pieces of a target to `out`, with its user information and values of secret fields of its query hidden.
pub fn target(target: &[u8], mut out: impl FnMut(&[u8])) {
    let (place, fields) = match memchr::memchr(b'?', target) {
        Some(at) => target.split_at(at + 1),
        None => (target, &b""[..]),
    };
    without_user(place, &mut out);
    if !fields.is_empty() {
        query(fields, out);
    }
}

/// Passes the pieces of a URL to `out`. Like [`target`], with secret fields of the fragment hidden too.
pub fn url(url: &[u8], mut out: impl FnMut(&[u8])) {
    let Some(at) = memchr::memchr(b'#', url) else {
        return target(url, out);
    };
    let (before, fragment) = url.split_at(at + 1);
    target(&before[..at], &mut out);
    out(b"#");
    // A client application may have a query in the fragment.
    let fields = memchr::memchr(b'?', fragment).map_or(0, |at| at + 1);
    out(&fragment[..fields]);
    query(&fragment[fields..], out);
}

/// Passes a URL without its query to `out`. Its user information is hidden.
fn without_user(place: &[u8], mut out: impl FnMut(&[u8])) {
    const START: &[u8] = b"://";
    let start = memchr::memmem::find(place, START).map(|at| at + START.len());
    let authority = start.and_then(|start| {
        let rest = &place[start..];
        let authority = &rest[..memchr::memchr(b'/', rest).unwrap_or(rest.len())];
        Some((start, memchr::memrchr(b'@', authority)?))
    });
    match authority {
        Some((start, length)) => {
            out(&place[..start]);
            out(REDACTED);
            out(&place[start + length..]);
        }
        None => out(place),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        let mut out = Vec::new();
        target(text.as_bytes(), |piece| out.extend_from_slice(piece));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn values_of_secret_fields_are_hidden_and_nothing_else_is_changed() {
        for (text, expected) in [
            ("/a", "/a"),
            ("/a?", "/a?"),
            ("/a?b=c&&d", "/a?b=c&&d"),
            ("/code=1?codex=2", "/code=1?codex=2"),
            ("/?apikey", "/?apikey"),
            ("/?apikey=", "/?apikey=REDACTED"),
            (
                "/?x=1&Access_Token=a=b&y=2",
                "/?x=1&Access_Token=REDACTED&y=2",
            ),
            ("/?%61pikey=k", "/?%61pikey=REDACTED"),
            ("https://a/?jwt=a.b.c?d", "https://a/?jwt=REDACTED"),
            ("http://u:p@a/?b=c", "http://REDACTED@a/?b=c"),
        ] {
            assert_eq!(shown(text), expected, "{text}");
        }
    }

    #[test]
    fn user_information_and_fragments_of_urls_are_hidden() {
        let shown = |text: &str| {
            let mut out = Vec::new();
            url(text.as_bytes(), |piece| out.extend_from_slice(piece));
            String::from_utf8(out).unwrap()
        };
        for (text, expected) in [
            ("", ""),
            ("#", "#"),
            ("/a#b", "/a#b"),
            ("https://a/b@c?d=e", "https://a/b@c?d=e"),
            ("https://u:p@a", "https://REDACTED@a"),
            (
                "https://u:p@w@a/b?code=1#c",
                "https://REDACTED@a/b?code=REDACTED#c",
            ),
            (
                "/cb#access_token=a&state=b",
                "/cb#access_token=REDACTED&state=b",
            ),
            ("/#/cb?id_token=a", "/#/cb?id_token=REDACTED"),
            ("0; url=/x?code=1", "0; url=/x?code=REDACTED"),
        ] {
            assert_eq!(shown(text), expected, "{text}");
        }
        assert!(is_url_header(b"Location") && !is_url_header(b"host"));
    }

    #[test]
    fn names_are_compared_without_case() {
        assert!(is_secret_header(b"X-API-Key") && is_secret_header(b"Cookie"));
        assert!(!is_secret_header(b"x-api-key-id"));
        assert!(is_secret_field(b"CODE") && !is_secret_field(b"codes"));
    }
}
