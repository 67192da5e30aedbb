//! Fuzz target for the header with the signature of hmac-auth. The parser must find what Kong's regex finds.

use plugins::parsers::hmac_signature_params;
use regex::bytes::Regex;
use std::sync::LazyLock;

static KONG: LazyLock<Regex> = LazyLock::new(|| {
    let regex = r#"(?-u)\s*[Hh]mac\s*username="(.+)",\s*algorithm="(.+)",\s*headers="(.+)",\s*signature="(.+)""#;
    Regex::new(regex).expect("the regex is valid")
});

/// Checks a header value. It has no line feed, as the gateway refuses a head with one in a value.
pub fn hmac_header(data: &[u8]) {
    if data.contains(&b'\n') {
        return;
    }
    let found = hmac_signature_params(data);
    let found = found.map(|one| [one.username, one.algorithm, one.headers, one.signature]);
    let wanted = KONG.captures(data).map(|captures| {
        let group = |number| captures.get(number).expect("all groups match").as_bytes();
        [1, 2, 3, 4].map(group)
    });
    assert_eq!(found, wanted);
}
