//! Parses the header with the signature:
//! `hmac username="…", algorithm="…", headers="…", signature="…"`.
//!
//! Kong finds the parameters anywhere in the value, by a regex with greedy groups. This parser finds the same in linear
//! time, from the end to the beginning.

use memchr::{memchr, memmem, memrchr};

/// The parameters of a signature. None of them is empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SignatureParams<'h> {
    pub username: &'h [u8],
    pub algorithm: &'h [u8],
    /// Names of the signed headers, separated by spaces.
    pub headers: &'h [u8],
    /// The signature in base64.
    pub signature: &'h [u8],
}

/// Returns the parameters in a header value. The regex in kong/plugins/hmac-auth/access.lua retrieve_hmac_fields() is
/// `\s*[Hh]mac\s*username="(.+)",\s*algorithm="(.+)",\s*headers="(.+)",\s*signature="(.+)"`.
///
/// A greedy group ends as late as possible. So the signature ends at the last quote of the value, and each parameter
/// begins at the last place that leaves room for those after it.
pub fn parse(value: &[u8]) -> Option<SignatureParams<'_>> {
    // `.` does not match a line feed, so the regex cannot match across one. Header values have none.
    if memchr(b'\n', value).is_some() {
        return None;
    }
    let end = memrchr(b'"', value)?;
    let (headers_end, signature) = last_parameter(value, b"signature=\"", end)?;
    let (algorithm_end, headers) = last_parameter(value, b"headers=\"", headers_end)?;
    let (username_end, algorithm) = last_parameter(value, b"algorithm=\"", algorithm_end)?;
    let username = username(value, username_end)?;
    Some(SignatureParams {
        username: &value[username..username_end],
        algorithm: &value[algorithm..algorithm_end],
        headers: &value[headers..headers_end],
        signature: &value[signature..end],
    })
}

/// Finds the last `",\s*NAME="` after which a value of at least one byte ends at `end`. Returns where it begins, which is
/// the end of the value before, and where it ends.
fn last_parameter(value: &[u8], opening: &[u8], end: usize) -> Option<(usize, usize)> {
    let mut before = &value[..end.checked_sub(1)?];
    let finder = memmem::FinderRev::new(opening);
    loop {
        let at = finder.rfind(before)?;
        before = &before[..at];
        if let Some(former) = without_spaces(before).strip_suffix(b"\",") {
            return Some((former.len(), at + opening.len()));
        }
    }
}

/// Finds the first `[Hh]mac\s*username="` after which a value of at least one byte ends at `end`. Returns where the value
/// begins.
fn username(value: &[u8], end: usize) -> Option<usize> {
    const OPENING: &[u8] = b"username=\"";
    let value = &value[..end.checked_sub(1)?];
    let mut places = memmem::find_iter(value, OPENING);
    let at = places.find(|&at| {
        let scheme = without_spaces(&value[..at]);
        scheme.ends_with(b"Hmac") || scheme.ends_with(b"hmac")
    })?;
    Some(at + OPENING.len())
}

/// Removes what `\s` matches from the end.
fn without_spaces(text: &[u8]) -> &[u8] {
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t'..=b'\r');
    let spaces = text.iter().rev().take_while(|byte| is_space(byte)).count();
    &text[..text.len() - spaces]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use regex::bytes::Regex;
    use std::sync::LazyLock;

    /// Kong's regex. The groups are greedy, and the first match counts, as in PCRE.
    static KONG: LazyLock<Regex> = LazyLock::new(|| {
        let regex = r#"(?-u)\s*[Hh]mac\s*username="(.+)",\s*algorithm="(.+)",\s*headers="(.+)",\s*signature="(.+)""#;
        Regex::new(regex).expect("the regex is valid")
    });

    fn by_regex(value: &[u8]) -> Option<SignatureParams<'_>> {
        let found = KONG.captures(value)?;
        let group = |number| found.get(number).expect("all groups match").as_bytes();
        Some(SignatureParams {
            username: group(1),
            algorithm: group(2),
            headers: group(3),
            signature: group(4),
        })
    }

    #[test]
    fn the_parameters_are_found_in_their_order() {
        let text = br#"hmac username="nora", algorithm="hmac-sha256", headers="date host", signature="c2ln""#;
        let wanted = SignatureParams {
            username: b"nora",
            algorithm: b"hmac-sha256",
            headers: b"date host",
            signature: b"c2ln",
        };
        assert_eq!(parse(text), Some(wanted));
        let dense = br#"x Hmacusername="nora",algorithm="hmac-sha256",headers="date host",signature="c2ln" y"#;
        assert_eq!(parse(dense), Some(wanted));
    }

    #[test]
    fn a_missing_empty_or_misplaced_parameter_is_an_error() {
        for text in [
            "",
            "hmac",
            "\"",
            r#"hmac username="", algorithm="a", headers="h", signature="s""#,
            r#"hmac username="u", algorithm="a", headers="", signature="s""#,
            r#"hmac username="u", algorithm="a", headers="h", signature="""#,
            r#"hmac username="u", algorithm="a", headers="h", signature="s"#,
            r#"hmac username="u", headers="h", algorithm="a", signature="s""#,
            r#"hmac username="u", algorithm="a", signature="s""#,
            r#"HMAC username="u", algorithm="a", headers="h", signature="s""#,
            r#"hmac username=u, algorithm=a, headers=h, signature=s"#,
        ] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
    }

    /// Texts that consist mostly of what the regex looks for.
    fn value() -> impl Strategy<Value = Vec<u8>> {
        let pieces = prop::sample::select(vec![
            "hmac ",
            "Hmac",
            "username=\"",
            "\",algorithm=\"",
            "\", algorithm=\"",
            "\",\x0b headers=\"",
            "\",headers=\"",
            "\", signature=\"",
            "\",signature=\"",
            "\"",
            ",",
            " ",
            "a",
            "\u{e9}",
            "hmac username=\"a\",algorithm=\"b\",headers=\"c\",signature=\"d\"",
        ]);
        prop::collection::vec(pieces, 0..14).prop_map(|pieces| pieces.concat().into_bytes())
    }

    proptest! {
        #[test]
        fn the_parser_finds_what_the_regex_finds(value in value()) {
            prop_assert_eq!(parse(&value), by_regex(&value));
        }

        #[test]
        fn complete_headers_are_read_back(
            username in "[a-z\" ]{1,8}", headers in "[a-z -]{1,8}", signature in "[A-Za-z0-9+/=]{1,8}"
        ) {
            let text = format!("hmac username=\"{username}\",algorithm=\"a\",headers=\"{headers}\",signature=\"{signature}\"");
            let found = parse(text.as_bytes()).expect("it is complete");
            prop_assert_eq!(found.username, username.as_bytes());
            prop_assert_eq!(found.headers, headers.as_bytes());
            prop_assert_eq!(found.signature, signature.as_bytes());
        }
    }

    #[test]
    fn a_header_costs_as_much_as_it_is_long() {
        let end = "\",algorithm=\"a\",headers=\"h\",signature=\"s\"";
        let shapes = [
            ("", "hmac username=\"", end),
            ("hmac username=\"u", "\",algorithm=\"", end),
            ("hmac username=\"u", "\",headers=\"", ""),
            ("hmac username=\"u", "\",signature=\"", "\""),
            ("hmac username=\"u", " signature=\"", "\""),
            ("hmac username=\"u", "\", signature=", "\""),
            ("hmac username=\"u\",", " ", "signature=\"s\""),
            ("", " username=\"", end),
            ("", " ", end),
            ("", "\"", ""),
        ];
        testkit::cost::assert_linear(
            2000,
            |size| shapes.map(|(begin, again, end)| [begin, &again.repeat(size), end].concat()),
            |values: [String; 10]| {
                for value in &values {
                    std::hint::black_box(parse(value.as_bytes()));
                }
            },
        );
    }
}
