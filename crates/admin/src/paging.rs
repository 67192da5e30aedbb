//! Which page of a list is asked for: `size`, `offset` and `tags`, with Kong's errors.
//! Source: kong/api/endpoints.lua, kong/db/dao/init.lua.

use model::{Error, ErrorCode, Object, Value};
use uuid::Uuid;

const DEFAULT_SIZE: usize = 100;
const MAX_SIZE: f64 = 1000.0;
const MAX_TAGS: usize = 5;

#[derive(Debug, PartialEq)]
pub(crate) struct Page {
    pub(crate) size: usize,
    pub(crate) offset: Offset,
    pub(crate) tags: Option<Tags>,
    /// `size` and `tags` as given: the link to the next page repeats them.
    pub(crate) given_size: Option<String>,
    pub(crate) given_tags: Option<String>,
}

#[derive(Debug, PartialEq, Clone)]
pub(crate) enum Offset {
    Start,
    After(String),
    /// Not one of ours. In `off` mode that is an empty page, else an error.
    Invalid(String),
}

#[derive(Debug, PartialEq, Clone)]
pub(crate) enum Tags {
    All(Vec<String>),
    Any(Vec<String>),
}

/// Reads the query of a list; the first value of a repeated argument counts.
pub(crate) fn page(query: &[(String, Option<String>)], taggable: bool) -> Result<Page, Error> {
    let first = |wanted: &str| {
        query
            .iter()
            .find(|(key, _)| key == wanted)
            .map(|(_, value)| value.clone().unwrap_or_default())
    };
    let (size, tags) = (first("size"), first("tags").filter(|_| taggable));
    Ok(Page {
        size: size.as_deref().map_or(Ok(DEFAULT_SIZE), parse_size)?,
        offset: first("offset").map_or(Offset::Start, |text| parse_offset(&text)),
        tags: tags.as_deref().map(parse_tags).transpose()?,
        given_size: size,
        given_tags: tags,
    })
}

fn parse_size(text: &str) -> Result<usize, Error> {
    let invalid = |text| Error::new(ErrorCode::InvalidSize, text);
    let size: f64 = text
        .trim()
        .parse()
        .ok()
        .filter(|size: &f64| size.is_finite())
        .ok_or_else(|| invalid("size must be a number"))?;
    if size.fract() != 0.0 || !(1.0..=MAX_SIZE).contains(&size) {
        return Err(invalid("size must be an integer between 1 and 1000"));
    }
    Ok(size as usize)
}

fn parse_tags(text: &str) -> Result<Tags, Error> {
    if text.is_empty() {
        return Err(invalid_tags("cannot be null"));
    }
    let split = |separator: char| -> Vec<String> {
        let text = text.strip_suffix(separator).unwrap_or(text);
        text.split(separator).map(str::to_owned).collect()
    };
    let (tags, any) = match (text.contains(','), text.contains('/')) {
        (true, true) => return Err(invalid_tags("invalid filter syntax")),
        (false, true) => (split('/'), true),
        _ => (split(','), false),
    };
    let bad = |tag: &String| tag.is_empty() || tag.bytes().any(|byte| byte < b' ' || byte == 0x7f);
    if tags.iter().any(bad) {
        return Err(invalid_tags("invalid filter syntax"));
    }
    if tags.len() > MAX_TAGS {
        return Err(invalid_tags("cannot query more than 5 tags"));
    }
    Ok(if any {
        Tags::Any(tags)
    } else {
        Tags::All(tags)
    })
}

fn invalid_tags(text: &str) -> Error {
    let options = Object::from_iter([("tags", Value::from(text))]);
    let message = format!("invalid option (tags: {text})");
    Error::new(ErrorCode::InvalidOptions, message).with_fields(options)
}

pub(crate) fn invalid_offset(text: &str) -> Error {
    let message = format!("'{text}' is not a valid offset: bad json encoding");
    Error::new(ErrorCode::InvalidOffset, message)
}

/// The offset that continues after `key`: URL-safe base64 of a JSON array, as Kong's looks.
pub(crate) fn offset_after(key: &str) -> String {
    let json = serde_json::to_string(&[key]).expect("a string encodes");
    base64_url(json.as_bytes())
}

pub(crate) fn offset_after_id(id: Uuid) -> String {
    offset_after(&id.to_string())
}

fn parse_offset(text: &str) -> Offset {
    let key = decode_base64_url(text)
        .and_then(|bytes| serde_json::from_slice::<[String; 1]>(&bytes).ok());
    match key {
        Some([key]) => Offset::After(key),
        None => Offset::Invalid(text.to_owned()),
    }
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

fn base64_url(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let group = chunk.iter().enumerate().fold(0u32, |group, (at, &byte)| {
            group | u32::from(byte) << (16 - 8 * at)
        });
        for digit in 0..=chunk.len() {
            let index = group >> (18 - 6 * digit) & 63;
            out.push(char::from(ALPHABET[index as usize]));
        }
    }
    out
}

fn decode_base64_url(text: &str) -> Option<Vec<u8>> {
    let text = text.trim_end_matches('=');
    let mut out = Vec::with_capacity(text.len() * 3 / 4);
    let (mut group, mut bits) = (0u32, 0);
    for byte in text.bytes() {
        let digit = ALPHABET.iter().position(|&one| one == byte)?;
        group = group << 6 | u32::try_from(digit).ok()?;
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            out.push(u8::try_from(group >> bits & 0xff).ok()?);
            group &= (1 << bits) - 1;
        }
    }
    Some(out)
}

/// Percent-encodes what is not unreserved, for arguments of links.
pub(crate) fn escape(text: &str) -> String {
    use std::fmt::Write;
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                out.push(char::from(byte));
            }
            _ => {
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Page, Error> {
        page(&crate::body::form::pairs(text).unwrap(), true)
    }

    #[test]
    fn sizes_beyond_the_limits_have_kongs_texts() {
        for (query, text) in [
            ("size=0", "size must be an integer between 1 and 1000"),
            ("size=1001", "size must be an integer between 1 and 1000"),
            ("size=1.5", "size must be an integer between 1 and 1000"),
            ("size=abc", "size must be a number"),
            ("size=", "size must be a number"),
            ("size=inf", "size must be a number"),
        ] {
            let error = read(query).unwrap_err();
            assert_eq!(
                (error.code, error.message.as_str()),
                (ErrorCode::InvalidSize, text),
                "{query}"
            );
        }
        assert_eq!(read("size=1000").unwrap().size, 1000);
        assert_eq!(read("").unwrap().size, 100);
    }

    #[test]
    fn tags_are_all_or_any_and_never_both() {
        let tags = |query| read(query).map(|page| page.tags.unwrap());
        assert_eq!(
            tags("tags=a,b").unwrap(),
            Tags::All(vec!["a".into(), "b".into()])
        );
        assert_eq!(
            tags("tags=a/b").unwrap(),
            Tags::Any(vec!["a".into(), "b".into()])
        );
        for (query, text) in [
            ("tags=a,b/c", "invalid option (tags: invalid filter syntax)"),
            ("tags=,", "invalid option (tags: invalid filter syntax)"),
            ("tags=", "invalid option (tags: cannot be null)"),
            (
                "tags=a,b,c,d,e,f",
                "invalid option (tags: cannot query more than 5 tags)",
            ),
        ] {
            assert_eq!(tags(query).unwrap_err().message, text, "{query}");
        }
    }

    #[test]
    fn an_offset_comes_back_as_the_key_it_was_made_from() {
        for key in [
            "",
            "a",
            "ab",
            "abc",
            "0dc6f45b-8f8d-40d2-a504-473544ee190b",
            "ü\"/",
        ] {
            assert_eq!(
                parse_offset(&offset_after(key)),
                Offset::After(key.to_owned())
            );
        }
        assert_eq!(base64_url(b"[\"a\"]"), "WyJhIl0");
        assert_eq!(parse_offset("garbage"), Offset::Invalid("garbage".into()));
        assert_eq!(parse_offset("ü"), Offset::Invalid("ü".into()));
    }
}
