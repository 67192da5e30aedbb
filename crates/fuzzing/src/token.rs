//! Fuzz target for JSON Web Tokens. Every text must be refused or read in the same way as by another reader of JSON.

use plugins::parsers::{Key, Token, decode};
use serde_json::Value;

/// Checks a text: up to the first line break the name of the claim with the key, and then a token.
pub fn token(data: &[u8]) {
    let at = data.iter().position(|byte| *byte == b'\n');
    let (name, text) = match at {
        Some(at) => (&data[..at], &data[at + 1..]),
        None => (&b"iss"[..], data),
    };
    let Ok(name) = std::str::from_utf8(name) else {
        return;
    };
    let Ok(token) = Token::read(text, name) else {
        return;
    };
    // What is signed is the text up to the second dot, so no other text has the same signature.
    assert!(text.is_ascii());
    assert!(text.starts_with(token.signed));
    assert_eq!(text[token.signed.len()], b'.');
    let signature = decode(&text[token.signed.len() + 1..]);
    assert_eq!(signature.as_deref(), Some(&*token.signature));
    let mut parts = token.signed.split(|byte| *byte == b'.');
    let mut object = || -> Option<Value> {
        let json = decode(parts.next()?)?;
        // Values that are not used may be nested too deeply for this reader, or be numbers that it does not take.
        serde_json::from_slice(&json).ok()
    };
    let (Some(header), Some(claims)) = (object(), object()) else {
        return;
    };
    assert!(parts.next().is_none());
    assert!(claims.is_object());
    assert_eq!(header["alg"].as_str(), Some(token.algorithm.name()));
    assert_eq!(header.get("crit"), None);
    let given = |object: &Value| object.get(name).filter(|key| **key != false).cloned();
    match (token.key(), given(&claims).or_else(|| given(&header))) {
        (Key::Absent, None) => {}
        (Key::Text(key), Some(Value::String(wanted))) => assert_eq!(key, wanted),
        (Key::Invalid, Some(wanted)) => assert!(wanted.as_str().is_none_or(str::is_empty)),
        (found, wanted) => panic!("{found:?} is not {wanted:?}"),
    }
}
