//! The arguments of a list that select a page: `size`, `offset` and `tags`, with Kong's errors.
//! Source: kong/api/endpoints.lua, kong/db/dao/init.lua.

use data_encoding::BASE64URL_NOPAD;
use model::{Error, ErrorCode, Object, Value};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use std::sync::LazyLock;
use uuid::Uuid;

const DEFAULT_SIZE: usize = 100;
const MAX_SIZE: f64 = 1000.0;
const MAX_TAGS: usize = 5;

#[derive(Debug, PartialEq)]
pub(crate) struct Page {
    pub(crate) size: usize,
    pub(crate) offset: Offset,
    pub(crate) tags: Option<Tags>,
    /// `size` and `tags` as the client sent them, to be repeated in the link to the next page.
    pub(crate) given_size: Option<String>,
    pub(crate) given_tags: Option<String>,
}

#[derive(Debug, PartialEq, Clone)]
pub(crate) enum Offset {
    Start,
    After(String),
    /// Not an offset that Silverback has issued. With a database, this is an error. Without one, only text that is not
    /// base64 is an error; any other text gives an empty page.
    Invalid(BadOffset),
}

#[derive(Debug, PartialEq, Clone)]
pub(crate) struct BadOffset {
    pub(crate) text: String,
    pub(crate) encoding: Encoding,
}

/// The encoding that the offset violates.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub(crate) enum Encoding {
    Base64,
    Json,
}

#[derive(Debug, PartialEq, Clone)]
pub(crate) enum Tags {
    All(Vec<String>),
    Any(Vec<String>),
}

/// Parses the query of a list. If an argument occurs several times, its first value counts.
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
    // The query parser replaces invalid UTF-8 with the replacement character.
    let is_bad = |c: char| c < ' ' || c == '\x7f' || c == char::REPLACEMENT_CHARACTER;
    let bad = |tag: &String| tag.is_empty() || tag.contains(is_bad);
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

/// The error for an offset that is not the key of an entity.
pub(crate) fn invalid_offset(text: &str) -> Error {
    bad_offset(text, Encoding::Json)
}

fn bad_offset(text: &str, encoding: Encoding) -> Error {
    let encoding = match encoding {
        Encoding::Base64 => "base64",
        Encoding::Json => "json",
    };
    let message = format!("'{text}' is not a valid offset: bad {encoding} encoding");
    Error::new(ErrorCode::InvalidOffset, message)
}

impl BadOffset {
    pub(crate) fn error(&self) -> Error {
        bad_offset(&self.text, self.encoding)
    }
}

/// Returns the offset that continues after `key`: URL-safe base64 of a JSON array, in Kong's format.
pub(crate) fn offset_after(key: &str) -> String {
    let json = serde_json::to_string(&[key]).expect("a string encodes");
    BASE64URL_NOPAD.encode(json.as_bytes())
}

pub(crate) fn offset_after_id(id: Uuid) -> String {
    offset_after(&id.to_string())
}

fn parse_offset(text: &str) -> Offset {
    let invalid = |encoding| {
        let text = text.to_owned();
        Offset::Invalid(BadOffset { text, encoding })
    };
    let Some(bytes) = decode_base64(text) else {
        return invalid(Encoding::Base64);
    };
    match serde_json::from_slice::<[String; 1]>(&bytes) {
        Ok([key]) => Offset::After(key),
        Err(_) => invalid(Encoding::Json),
    }
}

/// URL-safe base64 that also decodes the standard alphabet, which Kong's offsets use.
static EITHER_ALPHABET: LazyLock<data_encoding::Encoding> = LazyLock::new(|| {
    let mut specification = BASE64URL_NOPAD.specification();
    specification.check_trailing_bits = false;
    specification.translate.from.push_str("+/");
    specification.translate.to.push_str("-_");
    specification
        .encoding()
        .expect("the two characters are free in this alphabet")
});

/// Decodes base64 with or without padding: the first `=` and everything after it are ignored.
fn decode_base64(text: &str) -> Option<Vec<u8>> {
    let text = text.split('=').next().unwrap_or_default();
    EITHER_ALPHABET.decode(text.as_bytes()).ok()
}

/// All characters except the unreserved ones of RFC 3986.
const RESERVED: AsciiSet = NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~');

/// Percent-encodes all but unreserved characters, for arguments of links.
pub(crate) fn escape(text: &str) -> String {
    utf8_percent_encode(text, &RESERVED).to_string()
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
            ("tags=%ff", "invalid option (tags: invalid filter syntax)"),
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
    fn an_offset_decodes_to_its_key() {
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
        assert_eq!(offset_after("a"), "WyJhIl0");
        let kongs = "WyI+Pz4/Il0=";
        assert_eq!(parse_offset(kongs), Offset::After(">?>?".to_owned()));
        for (text, encoding) in [
            ("garbage", Encoding::Json),
            ("zzz", Encoding::Json),
            ("", Encoding::Json),
            ("x", Encoding::Base64),
            ("zzzzz", Encoding::Base64),
            ("a b=", Encoding::Base64),
            ("ü", Encoding::Base64),
        ] {
            let text = text.to_owned();
            let offset = parse_offset(&text);
            assert_eq!(offset, Offset::Invalid(BadOffset { text, encoding }));
        }
    }

    #[test]
    fn the_query_of_a_list_costs_as_much_as_it_is_long() {
        let shapes = [
            ("tags=", "a,", "b"),
            ("tags=", "a/", "b"),
            ("tags=", ",", ""),
            ("tags=a,", "%c3%a4", ""),
            ("offset=", "WyJh", ""),
            ("offset=", "W1tb", ""),
            ("offset=", "_-+/", "="),
            ("size=", "1", ""),
            ("size=", "+", "1"),
            ("a=", "%zz%", "&offset="),
        ];
        testkit::cost::assert_linear(
            2000,
            |size| shapes.map(|(begin, again, end)| [begin, &again.repeat(size), end].concat()),
            |queries: [String; 10]| {
                for query in &queries {
                    std::hint::black_box(read(query).is_ok());
                }
            },
        );
    }
}
