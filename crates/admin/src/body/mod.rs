//! Request bodies: decodes bytes to arguments by their content type. Endpoints interpret the arguments. Types are
//! inferred only for forms, from the endpoint's schema (`infer`).

pub(crate) mod form;
mod multipart;

use crate::respond::Failure;
use bytes::Bytes;
use model::{Object, Value};

/// A decoded body.
#[derive(Debug, PartialEq)]
pub(crate) enum Body {
    None,
    Json(Object),
    /// Nested text values, see [`form`]. JSON parts of a multipart body are already decoded.
    Form(Object),
    /// YAML, which only `POST /config` accepts.
    Yaml(Bytes),
}

/// Decodes like Kong does for POST, PUT and PATCH. As in Kong, the comparison of content types is case-sensitive.
pub(crate) fn decode(content_type: Option<&str>, body: &Bytes) -> Result<Body, Failure> {
    match content_type {
        None if body.is_empty() => Ok(Body::None),
        Some(kind) if kind.starts_with("application/json") => json(body).map(Body::Json),
        Some(kind) if is_urlencoded(kind) => urlencoded(body).map(Body::Form),
        Some(kind) if kind.starts_with("multipart/form-data") => {
            multipart(kind, body).map(Body::Form)
        }
        Some(kind) if is_yaml(kind) => Ok(Body::Yaml(body.clone())),
        _ => Err(Failure::UnsupportedMediaType),
    }
}

/// Returns the fields of a form, multipart or JSON body; `None` if it is invalid. Public for the fuzz target of bodies.
pub fn fields(content_type: &str, body: &Bytes) -> Option<Object> {
    match decode(Some(content_type), body) {
        Ok(Body::Form(fields) | Body::Json(fields)) => Some(fields),
        _ => None,
    }
}

/// Whether bodies of this type are accepted.
pub(crate) fn accepts(content_type: Option<&str>, empty: bool, yaml_is_fine: bool) -> bool {
    const KINDS: [&str; 3] = [
        "application/json",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
    ];
    match content_type {
        None => empty,
        Some(kind) => {
            KINDS.iter().any(|known| kind.starts_with(known)) || yaml_is_fine && is_yaml(kind)
        }
    }
}

pub(crate) fn is_urlencoded(content_type: &str) -> bool {
    content_type.starts_with("application/x-www-form-urlencoded")
}

fn is_yaml(content_type: &str) -> bool {
    content_type.starts_with("text/yaml") || content_type.starts_with("application/yaml")
}

fn json(body: &Bytes) -> Result<Object, Failure> {
    serde_json::from_slice(body).map_err(|_| Failure::bad_request("Cannot parse JSON body"))
}

fn urlencoded(body: &Bytes) -> Result<Object, Failure> {
    let text = String::from_utf8_lossy(body);
    Ok(form::decode(arguments(&text)?))
}

/// Decodes the arguments of a query or form; a key without a value is `true`.
pub(crate) fn arguments(text: &str) -> Result<Vec<(String, Value)>, Failure> {
    let pairs = form::pairs(text).map_err(|_| too_many())?;
    Ok(pairs
        .into_iter()
        .map(|(key, value)| (key, value.map_or(Value::Bool(true), Value::from)))
        .collect())
}

pub(crate) fn too_many() -> Failure {
    Failure::bad_request("Too many arguments")
}

fn multipart(content_type: &str, body: &Bytes) -> Result<Object, Failure> {
    let parts = match multipart::parts(content_type, body, form::MAX_ARGUMENTS) {
        Ok(parts) => parts,
        Err(multipart::MultipartError::TooManyParts) => return Err(too_many()),
        // Kong treats an undecodable body as one without fields.
        Err(error) => {
            tracing::debug!(%error, "a multipart body cannot be read");
            Vec::new()
        }
    };
    let arguments = parts.into_iter().map(|part| {
        let json = part
            .content_type
            .as_deref()
            .is_some_and(|kind| kind.starts_with("application/json"));
        let value = match json.then(|| serde_json::from_slice(&part.data)) {
            Some(Ok(value)) => value,
            _ => Value::from(&*String::from_utf8_lossy(&part.data)),
        };
        (part.name, value)
    });
    Ok(form::decode(arguments.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(content_type: &str, text: &'static str) -> Result<Body, Failure> {
        decode(Some(content_type), &Bytes::from_static(text.as_bytes()))
    }

    fn object(text: &str) -> Object {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn each_content_type_has_its_decoder() {
        let json = decoded("application/json; charset=utf-8", r#"{"a":1}"#).unwrap();
        assert_eq!(json, Body::Json(object(r#"{"a":1}"#)));
        let form = decoded("application/x-www-form-urlencoded", "a.b=1").unwrap();
        assert_eq!(form, Body::Form(object(r#"{"a":{"b":"1"}}"#)));
        let yaml = decoded("text/yaml", "a: 1").unwrap();
        assert_eq!(yaml, Body::Yaml(Bytes::from_static(b"a: 1")));
    }

    #[test]
    fn a_json_part_of_a_multipart_body_is_a_value() {
        let body = "--B\r\nContent-Disposition: form-data; name=\"a\"\r\nContent-Type: application/json\r\n\r\n{\"b\":1}\r\n\
                    --B\r\nContent-Disposition: form-data; name=\"c.d\"\r\n\r\nx\r\n--B--\r\n";
        let form = decoded("multipart/form-data; boundary=B", body).unwrap();
        assert_eq!(form, Body::Form(object(r#"{"a":{"b":1},"c":{"d":"x"}}"#)));
    }

    #[test]
    fn undecodable_json_and_unknown_types_are_refused() {
        for text in ["", "{bad", "[1]", "\"x\""] {
            let failure = decoded("application/json", text).unwrap_err();
            assert!(
                matches!(failure, Failure::Message(status, _) if status == 400),
                "{text}"
            );
        }
        for kind in ["text/plain", "Application/JSON"] {
            let failure = decoded(kind, "{}").unwrap_err();
            assert!(matches!(failure, Failure::UnsupportedMediaType), "{kind}");
        }
        let missing = decode(None, &Bytes::from_static(b"x")).unwrap_err();
        assert!(matches!(missing, Failure::UnsupportedMediaType));
        assert_eq!(decode(None, &Bytes::new()).unwrap(), Body::None);
    }
}
