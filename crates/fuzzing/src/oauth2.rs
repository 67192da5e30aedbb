//! Fuzz target for what clients send to the plugin oauth2: the header with a token or with the credentials of a client,
//! a signed token, and a state, which goes into a redirect URI.

use plugins::parsers::{
    Claims, Header, Oauth2Client, oauth2_basic, oauth2_bearer, oauth2_encoded_basic,
    oauth2_redirect, signed_token_parts,
};
use regex::bytes::Regex;
use std::sync::LazyLock;

static BASIC: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?-u)[Bb]asic\s*(\S.*)").expect("the regex is valid"));

/// Checks a header value, which is also taken as a signed token and as a state. It has no line feed, as the gateway
/// refuses a head with one in a value.
pub fn oauth2(data: &[u8]) {
    if data.contains(&b'\n') {
        return;
    }
    bearer(data);
    basic(data);
    encoded_basic(data);
    if let Ok(text) = std::str::from_utf8(data) {
        signed_token(text);
        state(text);
    }
}

/// The token must be the second of exactly two words.
fn bearer(data: &[u8]) {
    let words: Vec<&[u8]> = data
        .split(|byte| matches!(byte, b' ' | b'\t'..=b'\r'))
        .filter(|word| !word.is_empty())
        .collect();
    let wanted = match words.as_slice() {
        [scheme, token] if [&b"bearer"[..], b"token"].contains(&&*scheme.to_ascii_lowercase()) => {
            Some(*token)
        }
        _ => None,
    };
    assert_eq!(oauth2_bearer(data), wanted);
}

/// The text in a header with HTTP Basic, as Kong's regex finds it.
fn basic_text(data: &[u8]) -> Option<String> {
    let encoded = BASIC.captures(data).and_then(|captures| captures.get(1));
    let decoded = encoded.and_then(|text| plugin::base64::decode(text.as_bytes()));
    decoded.and_then(|bytes| String::from_utf8(bytes).ok())
}

/// The credentials must be those that Kong finds.
fn basic(data: &[u8]) {
    let text = basic_text(data);
    let mut parts = text
        .iter()
        .flat_map(|text| text.split(':'))
        .map(str::to_owned);
    let wanted = Oauth2Client {
        id: parts.next(),
        secret: parts.next(),
        from_header: true,
        decoded: None,
    };
    assert_eq!(oauth2_basic(data), wanted);
}

/// As RFC 6749 section 2.3.1 says, the secret is all after the first colon, and both may be encoded as in a form.
fn encoded_basic(data: &[u8]) {
    let found = oauth2_encoded_basic(data);
    assert!(found.from_header);
    let text = basic_text(data);
    let pair = text.as_deref().and_then(|text| text.split_once(':'));
    let Some((id, secret)) = pair else {
        let wanted = Oauth2Client {
            id: text,
            from_header: true,
            ..Oauth2Client::default()
        };
        assert_eq!(found, wanted);
        return;
    };
    assert_eq!(found.id.as_deref(), Some(id));
    assert_eq!(found.secret.as_deref(), Some(secret));
    let Some(decoded) = &found.decoded else {
        return;
    };
    assert!([id, secret].iter().any(|part| part.contains(['%', '+'])));
    assert!(![id, secret].iter().any(|part| part.contains('&')));
    let wanted = (form_decoded(id), form_decoded(secret));
    assert_eq!(
        (decoded.0.as_bytes(), decoded.1.as_bytes()),
        (&*wanted.0, &*wanted.1)
    );
}

/// Decodes a value of a form. A `%` without two digits stays as it is.
fn form_decoded(text: &str) -> Vec<u8> {
    let (mut decoded, mut rest) = (Vec::new(), text.as_bytes());
    while let [first, after @ ..] = rest {
        let escaped = after.first_chunk::<2>().filter(|_| *first == b'%');
        let escaped = escaped.and_then(|digits| {
            let digits = digits.map(|digit| char::from(digit).to_digit(16));
            u8::try_from(digits[0]? * 16 + digits[1]?).ok()
        });
        match escaped {
            Some(byte) => {
                decoded.push(byte);
                rest = &after[2..];
            }
            None => {
                decoded.push(if *first == b'+' { b' ' } else { *first });
                rest = after;
            }
        }
    }
    decoded
}

/// A token has three parts, and what is signed is all but the last.
fn signed_token(text: &str) {
    let Some(parts) = signed_token_parts(text) else {
        return;
    };
    assert_eq!(text.matches('.').count(), 2);
    assert_eq!(format!("{}.{}", parts.header, parts.claims), parts.signed);
    assert_eq!(format!("{}.{}", parts.signed, parts.signature), text);
    // Whatever they say, they are read or refused.
    let _ = (Header::read(parts.header), Claims::read(parts.claims));
}

/// A state comes back as it was sent, and adds nothing else to the redirect URI.
fn state(text: &str) {
    let uri = oauth2_redirect("https://app.example/back?keep=1&state=old#part", text);
    let rest = uri.strip_prefix("https://app.example/back?");
    let query = rest.and_then(|rest| rest.strip_suffix("#part"));
    let query = query.expect("only the query changes");
    let all: Vec<_> = plugin::args::parse(query.as_bytes()).collect();
    let pairs: Vec<_> = all
        .iter()
        .map(|arg| (&*arg.name, arg.value.as_deref()))
        .collect();
    assert_eq!(
        pairs,
        [
            (&b"keep"[..], Some(&b"1"[..])),
            (&b"state"[..], Some(text.as_bytes()))
        ]
    );
}
