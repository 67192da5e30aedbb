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

/// Passes the pieces of a target or an URL to `out`, with values of secret fields of its query hidden.
pub fn target(target: &[u8], mut out: impl FnMut(&[u8])) {
    match memchr::memchr(b'?', target) {
        Some(at) => {
            out(&target[..=at]);
            query(&target[at + 1..], out);
        }
        None => out(target),
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
        ] {
            assert_eq!(shown(text), expected, "{text}");
        }
    }

    #[test]
    fn names_are_compared_without_case() {
        assert!(is_secret_header(b"X-API-Key") && is_secret_header(b"Cookie"));
        assert!(!is_secret_header(b"x-api-key-id"));
        assert!(is_secret_field(b"CODE") && !is_secret_field(b"codes"));
    }
}
