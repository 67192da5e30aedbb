//! Parses the text of a document to an object, and computes the hashes of configurations.

use super::{Format, json, problems, yaml};
use crate::error::Error;
use crate::value::{Object, Value};
use aws_lc_rs::digest::{SHA256, digest};
use md5::{Digest, Md5};
use serde::de::IgnoredAny;
use std::fmt::Write;

/// The hash of the empty configuration.
pub const EMPTY_HASH: &str = "00000000000000000000000000000000";

/// A parsed document, before it is checked.
pub(super) struct Parsed {
    pub object: Object,
    /// Whether an object in the document repeats a name. The last value of the name is used.
    pub repeated: bool,
}

/// Parses a document. Errors are in the form of `POST /config`.
pub fn parse(text: &[u8], format: Format) -> Result<Object, Error> {
    read(text, format).map(|parsed| parsed.object)
}

/// Parses a document as [`parse`] does, and also finds out whether it repeats a name.
pub(super) fn read(text: &[u8], format: Format) -> Result<Parsed, Error> {
    let read = match format {
        Format::Json => parse_json(text),
        Format::Yaml => parse_yaml(text),
        Format::Auto if may_be_json(text) => parse_json(text).or_else(|_| parse_yaml(text)),
        Format::Auto => parse_yaml(text),
    };
    read.map_err(|problem| problems::unreadable(&problem))
}

/// Whether [`read`] parses a text as JSON.
pub(super) fn is_json(text: &[u8], format: Format) -> bool {
    match format {
        Format::Json => true,
        Format::Yaml => false,
        Format::Auto => may_be_json(text) && serde_json::from_slice::<IgnoredAny>(text).is_ok(),
    }
}

/// Returns the hash of a configuration that is given as text: the MD5 of its exact bytes, as 32 hex digits.
pub fn hash(text: &[u8]) -> String {
    hex(&Md5::digest(text))
}

/// Returns the hash of a configuration that is given as a structured body, as 32 hex digits. Kong's hashes differ at
/// each load, so clients cannot expect a certain value. SHA-256 takes a quarter of MD5's time, because processors have
/// instructions for it.
pub fn structured_hash(body: &[u8]) -> String {
    hex(&digest(&SHA256, body).as_ref()[..16])
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::with_capacity(2 * bytes.len()), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        })
}

/// The parameters in the JSON body of `POST /config`, found without building the document.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Parameters {
    /// Whether the body itself is the configuration, because it has `_format_version`.
    pub is_configuration: bool,
    /// The text of a configuration inside the body.
    pub config: Option<String>,
    pub check_hash: Option<Value>,
    pub flatten_errors: Option<Value>,
}

/// Reads the parameters of a JSON body. Returns `None` if the body is not an object. The values are checked later, when
/// the document is loaded.
pub fn sniff(body: &[u8]) -> Option<Parameters> {
    let mut parameters = Parameters::default();
    for (name, value) in json::fields(body)? {
        match name.as_str() {
            "_format_version" => parameters.is_configuration = true,
            "config" => parameters.config = serde_json::from_slice(value).ok(),
            "check_hash" => parameters.check_hash = serde_json::from_slice(value).ok(),
            "flatten_errors" => parameters.flatten_errors = serde_json::from_slice(value).ok(),
            _ => {}
        }
    }
    Some(parameters)
}

fn may_be_json(text: &[u8]) -> bool {
    text.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{')
}

fn parse_json(text: &[u8]) -> Result<Parsed, String> {
    match Value::from_json(text) {
        Ok((Value::Object(object), repeated)) => Ok(Parsed { object, repeated }),
        Ok(_) => Err("expected an object".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

fn parse_yaml(text: &[u8]) -> Result<Parsed, String> {
    match yaml::parse(text) {
        Ok((Some(Value::Object(object)), repeated)) => Ok(Parsed { object, repeated }),
        Ok(_) => Err("expected an object".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(text: &str, format: Format) -> String {
        let error = parse(text.as_bytes(), format).expect_err("not a document");
        let fields = error.fields.expect("fields");
        let text = fields.str("error").expect("error");
        let prefix = "failed parsing declarative configuration: ";
        text.strip_prefix(prefix).expect("prefix").to_owned()
    }

    #[test]
    fn yaml_problems_are_reported_as_by_libyaml() {
        for (text, expected) in [
            ("a: [b", "1:5: did not find expected ',' or ']'"),
            ("just text", "expected an object"),
            ("{", "1:1: did not find expected node content"),
            ("", "expected an object"),
            ("- a\n- b\n", "expected an object"),
            ("a: *x", "1:4: invalid reference: x"),
            (
                "a: !!int x",
                "1:4: invalid 'tag:yaml.org,2002:int' value: 'x'",
            ),
            ("a: &x [*x]", "1:8: invalid reference: x"),
            ("<<: 1", "1:5: invalid '<<' merge event"),
        ] {
            assert_eq!(problem(text, Format::Auto), expected, "{text}");
        }
    }

    #[test]
    fn json_is_tried_before_yaml() {
        let json = parse(b"{\"a\": \"yes\"}", Format::Auto).expect("json");
        assert_eq!(json.str("a"), Some("yes"));
        let yaml = parse(b"{a: yes}", Format::Auto).expect("yaml");
        assert_eq!(yaml.get("a"), Some(&Value::Bool(true)));
        assert!(problem("{a: yes}", Format::Json).contains("line 1"));
    }

    #[test]
    fn anchors_and_merges_are_followed() {
        let text =
            "base: &b {x: 1, y: 2}\none:\n  y: 3\n  <<: *b\ntwo: {<<: [*b, {z: 4}]}\nthree: *b\n";
        let object = parse(text.as_bytes(), Format::Yaml).expect("yaml");
        let json = serde_json::to_string(&object).expect("json");
        let expected = r#"{"base":{"x":1,"y":2},"one":{"y":3,"x":1},"two":{"x":1,"y":2,"z":4},"three":{"x":1,"y":2}}"#;
        assert_eq!(json, expected);
    }

    #[test]
    fn a_text_may_end_anywhere() {
        for (text, expected) in [
            ("a: |\n  x", "x"),
            ("a: |\n  x\n", "x\n"),
            ("a: |\n  x\n\n", "x\n"),
            ("a: |-\n  x", "x"),
            ("a: |+\n  x\n\n", "x\n\n"),
            ("a: >\n  x\n  y", "x y"),
            ("a: x", "x"),
            ("a: |\n  x\r", "x\n"),
        ] {
            for text in [text.to_owned(), format!("\u{feff}{text}")] {
                let object = parse(text.as_bytes(), Format::Yaml).expect("yaml");
                assert_eq!(object.str("a"), Some(expected), "{text:?}");
            }
        }
        assert_eq!(
            problem("\"\\", Format::Yaml),
            "1:1: found unexpected end of stream"
        );
    }

    #[test]
    fn text_that_panics_the_parser_is_refused() {
        assert_eq!(problem("[!x,y]", Format::Yaml), "malformed document");
    }

    #[test]
    fn alias_bombs_are_refused() {
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..12 {
            let line = vec![format!("*a{}", level - 1); 10].join(", ");
            let _ = writeln!(text, "a{level}: &a{level} [{line}]");
        }
        assert!(problem(&text, Format::Yaml).ends_with("aliases expand to too much data"));
        let deep = "[".repeat(100_000);
        assert!(problem(&deep, Format::Yaml).ends_with("nested too deeply"));
        assert!(problem(&format!("{{\"a\":{deep}"), Format::Json).contains("recursion limit"));
    }

    #[test]
    fn parameters_are_found_without_building_the_body() {
        let body = br#"{"config":"a: 1","check_hash":1,"flatten_errors":"on"}"#;
        let parameters = sniff(body).expect("an object");
        assert_eq!(parameters.config.as_deref(), Some("a: 1"));
        assert_eq!(parameters.check_hash, Some(Value::Int(1)));
        assert!(!parameters.is_configuration);
        assert!(
            sniff(br#"{"_format_version":"3.0"}"#)
                .expect("an object")
                .is_configuration
        );
        assert_eq!(sniff(b"{bad"), None);
    }

    #[test]
    fn the_hash_is_that_of_the_bytes() {
        assert_eq!(hash(b""), "d41d8cd98f00b204e9800998ecf8427e");
    }
}
