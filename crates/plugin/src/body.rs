//! Request bodies for plugins that read them: parses forms, JSON and `multipart/form-data`, finds and removes fields,
//! and encodes the remaining fields. A body that no plugin reads is not parsed.

use crate::args;
pub use crate::multipart::{Multipart, Part};
use crate::request::Field;
use bytes::Bytes;
use model::{Object, Value};
use std::borrow::Cow;

/// The body of a request, as far as plugins can read it.
#[derive(Debug, Clone, Default)]
pub enum RequestBody {
    /// The body was not read into memory, because no plugin has asked for it.
    #[default]
    Unread,
    /// The body is that of a gRPC call, whose response may have to begin before the body ends. It cannot be read.
    Streamed,
    /// The complete body. It is empty if the request has none.
    Whole(Bytes),
    /// The body exceeds the limit of the data plane. Plugins cannot read it, as in Kong.
    TooLarge,
}

/// A parsed body.
#[derive(Debug, Clone, PartialEq)]
pub enum ParsedBody {
    Form(Vec<FormField>),
    Json(Value),
    Multipart(Multipart),
}

/// A field of a form. The field `a` has no value; the field `a=` has an empty value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormField {
    pub name: Vec<u8>,
    pub value: Option<Vec<u8>>,
}

impl ParsedBody {
    /// Parses a body. Returns `None` if the content type is not supported or the body does not conform to it. Types are
    /// compared by prefix and without case, as in kong/pdk/request.lua get_body().
    pub fn parse(content_type: &[u8], body: &[u8]) -> Option<Self> {
        let is = |name: &str| {
            let start = content_type.get(..name.len());
            start.is_some_and(|start| start.eq_ignore_ascii_case(name.as_bytes()))
        };
        if is("application/x-www-form-urlencoded") {
            Some(parse_form(body))
        } else if is("application/json") {
            let value: Value = serde_json::from_slice(body).ok()?;
            matches!(value, Value::Object(_) | Value::Array(_)).then_some(Self::Json(value))
        } else if is("multipart/form-data") {
            Multipart::parse(content_type, body).map(Self::Multipart)
        } else {
            None
        }
    }

    pub fn field(&self, name: &str) -> Field<'_> {
        let name_bytes = name.as_bytes();
        match self {
            Self::Form(fields) => {
                let same = fields.iter().filter(|field| field.name == name_bytes);
                Field::collect(same.map(|field| field.value.as_deref().map(Cow::from)))
            }
            Self::Multipart(multipart) => {
                let parts = multipart.parts().iter();
                let same = parts.filter(|part| part.name == name_bytes);
                Field::collect(same.map(|part| Some(Cow::from(&part.content))))
            }
            Self::Json(Value::Object(object)) => match object.get(name) {
                None | Some(Value::Null) => Field::Absent,
                Some(Value::String(text)) => Field::Text(Cow::from(text.as_bytes())),
                Some(Value::Array(_) | Value::Object(_)) => Field::Several,
                Some(_) => Field::Other,
            },
            Self::Json(_) => Field::Absent,
        }
    }

    pub fn remove(&mut self, name: &str) {
        match self {
            Self::Form(fields) => fields.retain(|field| field.name != name.as_bytes()),
            Self::Multipart(multipart) => multipart.remove(name.as_bytes()),
            Self::Json(Value::Object(object)) => {
                object.remove(name);
            }
            Self::Json(_) => {}
        }
    }

    /// Encodes the body. The fields of forms and multipart bodies are sorted by name, as in Kong.
    pub fn encode(mut self) -> Vec<u8> {
        match &mut self {
            Self::Form(fields) => {
                fields.sort_by(|one, two| one.name.cmp(&two.name));
                let mut out = String::new();
                for field in fields {
                    args::write(&mut out, &field.name, field.value.as_deref());
                }
                out.into_bytes()
            }
            Self::Json(value) => {
                serde_json::to_vec(value).expect("a value read from JSON can be written as JSON")
            }
            Self::Multipart(multipart) => {
                multipart.sort();
                multipart.encode()
            }
        }
    }

    /// Returns the body as a value, for plugins that show it. A form becomes an object: a repeated name gets a list,
    /// and a name without a value gets `true`.
    pub fn to_value(&self) -> Value {
        match self {
            Self::Json(value) => value.clone(),
            Self::Form(fields) => collect_values(fields.iter().map(|field| {
                let value = field.value.as_deref().map_or(Value::Bool(true), text_value);
                (field.name.as_slice(), value)
            })),
            Self::Multipart(multipart) => collect_values(
                multipart
                    .parts()
                    .iter()
                    .map(|part| (part.name.as_slice(), text_value(&part.content))),
            ),
        }
    }
}

/// Collects names and values in an object. The values of a repeated name become a list.
pub fn collect_values<'a>(pairs: impl Iterator<Item = (&'a [u8], Value)>) -> Value {
    let mut object = Object::new();
    for (name, value) in pairs {
        let name = String::from_utf8_lossy(name);
        match object.get_mut(&name) {
            Some(Value::Array(values)) => values.push(value),
            Some(other) => {
                let first = std::mem::take(other);
                *other = Value::Array(vec![first, value]);
            }
            None => object.push(name, value),
        }
    }
    Value::Object(object)
}

/// Returns the bytes as a text, with invalid UTF-8 replaced.
pub fn text_value(bytes: &[u8]) -> Value {
    Value::from(&*String::from_utf8_lossy(bytes))
}

fn parse_form(body: &[u8]) -> ParsedBody {
    let fields = args::parse(body).map(|arg| FormField {
        name: arg.name.into_owned(),
        value: arg.value.map(Cow::into_owned),
    });
    ParsedBody::Form(fields.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORM: &[u8] = b"Application/X-WWW-Form-Urlencoded; charset=utf-8";

    fn text(text: &str) -> Field<'_> {
        Field::Text(Cow::from(text.as_bytes()))
    }

    fn parse(content_type: &[u8], body: &str) -> ParsedBody {
        ParsedBody::parse(content_type, body.as_bytes()).expect("the body is well formed")
    }

    #[test]
    fn a_form_field_without_one_field_is_written_sorted() {
        let mut body = parse(FORM, "zeta=2&apikey=k&alpha=a+b");
        assert_eq!(body.field("apikey"), text("k"));
        assert_eq!(body.field("nothing"), Field::Absent);
        body.remove("apikey");
        assert_eq!(body.encode(), b"alpha=a%20b&zeta=2");
    }

    #[test]
    fn brackets_are_part_of_a_form_name() {
        let body = parse(FORM, "apikey[]=a&apikey[1]=b&twice=1&twice=2");
        assert_eq!(body.field("apikey"), Field::Absent);
        assert_eq!(body.field("twice"), Field::Several);
    }

    #[test]
    fn json_fields_are_found_by_their_kind() {
        let body = parse(b"application/json", r#"{"a":"x","b":["x"],"c":1,"d":null}"#);
        let found = ["a", "b", "c", "d", "e"].map(|name| body.field(name));
        let wanted = [
            text("x"),
            Field::Several,
            Field::Other,
            Field::Absent,
            Field::Absent,
        ];
        assert_eq!(found, wanted);
    }

    #[test]
    fn a_json_body_loses_only_the_field() {
        let mut body = parse(
            b"application/json",
            r#"{"b":1.5,"apikey":"k","a":{"x":null}}"#,
        );
        body.remove("apikey");
        assert_eq!(body.encode(), br#"{"b":1.5,"a":{"x":null}}"#);
    }

    #[test]
    fn bodies_that_do_not_match_their_type_are_unreadable() {
        for (content_type, body) in [
            ("application/json", "\"text\""),
            ("application/json", "{"),
            ("text/plain", "a=1"),
            ("multipart/form-data", "--x\r\n"),
            ("multipart/form-data; boundary=x", "--x\r\nunfinished"),
        ] {
            let parsed = ParsedBody::parse(content_type.as_bytes(), body.as_bytes());
            assert_eq!(parsed, None, "{content_type} {body}");
        }
    }

    #[test]
    fn a_multipart_body_keeps_the_headers_of_its_parts() {
        let head = |name: &str| format!("--XyZ\r\nContent-Disposition: form-data; name=\"{name}\"");
        let file = format!(
            "{}; filename=\"a.txt\"\r\nX: y\r\n\r\nline\r\n",
            head("zfile")
        );
        let text_ = |name: &str| format!("{}\r\n\r\nv{name}\r\n", head(name));
        let body = format!(
            "preamble\r\n{file}{}{}--XyZ--\r\n",
            text_("apikey"),
            text_("b")
        );
        let mut parsed = parse(b"multipart/form-data; boundary=\"XyZ\"", &body);
        assert_eq!(parsed.field("apikey"), text("vapikey"));
        parsed.remove("apikey");
        let wanted = format!("{}{file}--XyZ--\r\n", text_("b"));
        assert_eq!(String::from_utf8_lossy(&parsed.encode()), wanted);
    }

    #[test]
    fn shown_as_a_value_repeated_names_become_lists() {
        let body = parse(FORM, "a=1&a=2&b");
        let shown = serde_json::to_string(&body.to_value()).expect("a value is writable");
        assert_eq!(shown, r#"{"a":["1","2"],"b":true}"#);
    }

    #[test]
    fn a_body_costs_as_much_as_it_is_long() {
        const FORM: &str = "application/x-www-form-urlencoded";
        const MULTIPART: &str = "multipart/form-data; boundary=b";
        let part = "--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n";
        let shapes = [
            (FORM, "", "a=b&", ""),
            (FORM, "a=", "%41+%", ""),
            ("application/json", "{\"a\":[", "[1],", "1]}"),
            ("application/json", "{", "\"a\":1,", "\"b\":2}"),
            ("application/json", "{\"a\":\"", "\\u0041", "\"}"),
            ("application/json", "", "[", ""),
            (MULTIPART, "--b\r\n", part, "--b--"),
            (MULTIPART, part, "--", "\r\n--b--"),
            (MULTIPART, part, "\r\n-", "\r\n--b--"),
            (MULTIPART, "--b\r\n", "a: b;", "\r\n\r\n--b--"),
            (
                MULTIPART,
                "--b\r\n",
                "Content-Disposition: x\n",
                "\n\n--b--",
            ),
            (MULTIPART, "", "-", ""),
        ];
        let long_type =
            |size: usize| format!("multipart/form-data{}", "; boundary=\"\"".repeat(size));
        testkit::cost::assert_linear(
            2000,
            |size| {
                let body = |(kind, begin, again, end): (&str, &str, &str, &str)| {
                    (kind.to_owned(), [begin, &again.repeat(size), end].concat())
                };
                let with_type = (long_type(size), part.to_owned());
                shapes.map(body).into_iter().chain([with_type]).collect()
            },
            |bodies: Vec<(String, String)>| {
                for (kind, body) in &bodies {
                    let parsed = ParsedBody::parse(kind.as_bytes(), body.as_bytes());
                    let Some(mut parsed) = parsed else {
                        continue;
                    };
                    std::hint::black_box((parsed.field("a"), parsed.to_value()));
                    parsed.remove("c");
                    std::hint::black_box(parsed.encode());
                }
            },
        );
    }
}
