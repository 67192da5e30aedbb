//! `/config`: loads and exports the whole configuration. Source: kong/api/routes/config.lua.

use crate::body::{self, Body};
use crate::control::{Database, DeclarativeBody, Load, LoadError, Loaded};
use crate::proposal::unwritable;
use crate::render;
use crate::request::Call;
use crate::respond::{ApiResult, Failure, empty};
use crate::stream::Slot;
use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderValue, StatusCode};
use axum::response::IntoResponse;
use bytes::Bytes;
use model::{Object, Value, declarative};
use store::Origin;

pub(crate) async fn handle(call: &Call<'_>) -> ApiResult {
    if call.control.database() != Database::Off {
        return Err(Failure::bad_request(
            "this endpoint is only available when Kong is configured to not use a database",
        ));
    }
    match call.method {
        "GET" => export(call).await,
        _ => load(call).await,
    }
}

/// Returns `{"config": "<YAML>"}`, which can be as large as the store.
async fn export(call: &Call<'_>) -> ApiResult {
    let slot = Slot::take(call, "/config")?;
    let store = call.control.store().clone();
    render::exported(slot, store, call.control.context().flavor).await
}

async fn load(call: &Call<'_>) -> ApiResult {
    let slot = Slot::take(call, "/config")?;
    let mut load = decode(call).await?;
    load.origin = call.origin.clone();
    let undecoded = matches!(load.body, DeclarativeBody::Json(_));
    match call.control.load_declarative(load).await {
        // Kong decodes JSON bodies before it routes the request, and has a separate error for bodies that do not
        // decode.
        Err(LoadError::Invalid(error)) if undecoded && is_syntax_error(&error) => {
            Err(Failure::bad_request("Cannot parse JSON body"))
        }
        Ok(Loaded::Unchanged) => Ok(empty(StatusCode::NOT_MODIFIED)),
        Ok(Loaded::Live {
            untransformed,
            revision,
            warnings,
        }) => {
            call.record(revision, call.origin.message.clone());
            call.warn_some(warnings);
            let store = call.control.store().clone();
            let flavor = call.control.context().flavor;
            render::loaded_entities(slot, store, flavor, untransformed).await
        }
        Err(error) => refused(error),
    }
}

fn is_syntax_error(error: &model::Error) -> bool {
    error
        .fields
        .as_ref()
        .and_then(|fields| fields.str("error"))
        .is_some_and(|text| text.starts_with("failed parsing declarative configuration"))
}

fn refused(error: LoadError) -> ApiResult {
    let say = |status, text: &'static str| Err(Failure::Message(status, text.into()));
    match error {
        LoadError::Invalid(error) => Err(Failure::Error(error)),
        LoadError::Busy => {
            let text = "Currently loading previous configuration";
            let mut response =
                Failure::Message(StatusCode::TOO_MANY_REQUESTS, text.into()).into_response();
            let headers = response.headers_mut();
            headers.insert(RETRY_AFTER, HeaderValue::from_static("5"));
            Ok(response)
        }
        LoadError::Exiting => say(StatusCode::SERVICE_UNAVAILABLE, "Kong currently exiting"),
        LoadError::TimedOut => say(
            StatusCode::GATEWAY_TIMEOUT,
            "Timed out while loading configuration",
        ),
        LoadError::TooLarge => say(
            StatusCode::PAYLOAD_TOO_LARGE,
            "Configuration does not fit in LMDB database, consider raising the \"lmdb_map_size\" config for Kong",
        ),
        LoadError::Unavailable => say(
            StatusCode::NOT_IMPLEMENTED,
            "loading a configuration is not available in this mode",
        ),
        LoadError::Refused(failure) => Err(failure),
        LoadError::Disk(error) => Err(unwritable(&error)),
        error @ (LoadError::Internal(_) | LoadError::Conflict { .. }) => {
            Err(Failure::Internal(format!("{error:?}")))
        }
    }
}

/// Decodes the body on another thread, because decoding a large body would delay other requests.
async fn decode(call: &Call<'_>) -> Result<Load, Failure> {
    let content_type = call.content_type.map(str::to_owned);
    let (bytes, query) = (call.bytes.clone(), call.query.clone());
    blocking(move || interpret(content_type.as_deref(), &bytes, query)).await?
}

/// Determines the form of the body and reads the flags. The forms are tried in order, and the first match wins.
fn interpret(
    content_type: Option<&str>,
    bytes: &Bytes,
    query: Vec<(String, Option<String>)>,
) -> Result<Load, Failure> {
    let mut flags = Flags::default();
    let query: Vec<_> = query
        .into_iter()
        .map(|(name, value)| (name, value.map_or(Value::Bool(true), Value::from)))
        .filter(|(name, value)| !flags.take(name, value))
        .collect();
    let is_json = content_type.is_some_and(|kind| kind.starts_with("application/json"));
    if is_json
        && query.is_empty()
        && let Some(given) = declarative::sniff(bytes)
        && given.is_configuration
    {
        for (name, value) in FLAGS
            .into_iter()
            .zip([given.check_hash, given.flatten_errors])
        {
            if let Some(value) = value {
                flags.take(name, &value);
            }
        }
        return Ok(flags.load(DeclarativeBody::Json(bytes.clone())));
    }
    if content_type.is_some_and(body::is_urlencoded) && !is_form(bytes) && !bytes.is_empty() {
        return Ok(flags.load(DeclarativeBody::Text(bytes.clone())));
    }
    let (mut fields, raw) = match body::decode(content_type, bytes)? {
        Body::None => (Object::new(), None),
        Body::Yaml(text) => (Object::new(), Some(text)),
        Body::Json(fields) => (fields, Some(bytes.clone())),
        Body::Form(fields) => (fields, None),
    };
    let body = if fields.contains(VERSION) {
        // Kong treats an unknown query argument as a key of the configuration.
        for (name, value) in query {
            if !fields.contains(&name) {
                fields.push(name, value);
            }
        }
        for name in FLAGS {
            if let Some(value) = fields.remove(name) {
                flags.take(name, &value);
            }
        }
        DeclarativeBody::Structured(fields)
    } else {
        DeclarativeBody::Text(text(&fields, raw).ok_or_else(nothing_given)?)
    };
    Ok(flags.load(body))
}

const VERSION: &str = "_format_version";
const CONFIG: &str = "config";
const FLAGS: [&str; 2] = ["check_hash", "flatten_errors"];

/// Whether a body with the content type of a form has one of the arguments that hold a configuration. If not, the body
/// is the configuration itself, sent with the content type that `curl --data-binary` chooses.
///
/// A URL in a YAML text may contain `&config=`. So only arguments that begin in the first line count, because only the
/// values of a form contain line feeds. In addition, no argument name up to there may contain a byte that clients
/// escape.
fn is_form(body: &[u8]) -> bool {
    let line = body.split(|&byte| byte == b'\n').next().unwrap_or_default();
    for argument in line.split(|&byte| byte == b'&') {
        let end = memchr::memchr(b'=', argument);
        let name = &argument[..end.unwrap_or(argument.len())];
        if name.iter().any(|&byte| is_of_document(byte)) {
            return false;
        }
        // An escaped character takes three bytes, so a longer name cannot be `config` or `_format_version`.
        let short = Some(name).filter(|name| name.len() <= 3 * VERSION.len());
        let is_one = |name: &str| [CONFIG, VERSION].contains(&&*body::form::unescape(name));
        if end.is_some()
            && short
                .and_then(|name| str::from_utf8(name).ok())
                .is_some_and(is_one)
        {
            return true;
        }
    }
    false
}

/// Whether clients escape this byte in argument names. In JSON and YAML, such a byte is in front of every value.
fn is_of_document(byte: u8) -> bool {
    byte.is_ascii_whitespace() || matches!(byte, b'{' | b':' | b'"' | b'#')
}

fn text(fields: &Object, raw: Option<Bytes>) -> Option<Bytes> {
    match fields.get(CONFIG) {
        Some(Value::String(text)) => Some(Bytes::copy_from_slice(text.as_bytes())),
        _ => raw,
    }
    .filter(|text| !text.is_empty())
}

fn nothing_given() -> Failure {
    Failure::bad_request("expected a declarative configuration")
}

#[derive(Default)]
struct Flags {
    check_hash: bool,
    flatten_errors: bool,
}

impl Flags {
    fn load(self, body: DeclarativeBody) -> Load {
        Load {
            body,
            check_hash: self.check_hash,
            flatten_errors: self.flatten_errors,
            origin: Origin::default(),
        }
    }

    /// Sets the flag `name` to `value`; returns `false` if there is no such flag.
    fn take(&mut self, name: &str, value: &Value) -> bool {
        match name {
            "check_hash" => {
                self.check_hash = value.as_str() == Some("1") || value.as_int() == Some(1);
            }
            "flatten_errors" => self.flatten_errors = is_true(value),
            _ => return false,
        }
        true
    }
}

fn is_true(value: &Value) -> bool {
    match value {
        Value::Bool(value) => *value,
        Value::String(text) => {
            ["1", "true", "on", "yes"].contains(&text.to_ascii_lowercase().as_str())
        }
        _ => value.as_int() == Some(1),
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(Failure::internal)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(content_type: &str, query: &str, body: &str) -> Result<Load, Failure> {
        let query = body::form::pairs(query).unwrap();
        interpret(Some(content_type), &Bytes::from(body.to_owned()), query)
    }

    fn text_of(load: Load) -> String {
        match load.body {
            DeclarativeBody::Text(text) => String::from_utf8(text.to_vec()).unwrap(),
            body => panic!("{body:?}"),
        }
    }

    #[test]
    fn every_body_form_yields_its_text() {
        let yaml = "_format_version: \"3.0\"\n";
        let multipart = format!(
            "--B\r\nContent-Disposition: form-data; name=\"config\"; filename=\"kong.yml\"\r\n\r\n{yaml}\r\n--B--\r\n"
        );
        for (kind, body) in [
            ("text/yaml", yaml.to_owned()),
            ("application/yaml", yaml.to_owned()),
            (
                "application/json",
                serde_json::json!({ "config": yaml }).to_string(),
            ),
            (
                "application/x-www-form-urlencoded",
                "config=_format_version%3A+%223.0%22%0A".to_owned(),
            ),
            ("multipart/form-data; boundary=B", multipart),
        ] {
            assert_eq!(text_of(load(kind, "", &body).unwrap()), yaml, "{kind}");
        }
        assert_eq!(text_of(load("application/json", "", "{}").unwrap()), "{}");
    }

    #[test]
    fn a_form_without_the_arguments_of_a_configuration_is_its_text() {
        const FORM: &str = "application/x-www-form-urlencoded";
        let many = format!("_format_version: '3.0'\n# {}", "&a".repeat(5000));
        for body in [
            "_format_version: \"3.0\"\nservices:\n- url: http://a.test/?x=1&config=2\n",
            "{\"_format_version\": \"3.0\"}",
            "{_format_version: \"3.0\", services: [{name: a, url: \"http://h/?x=1&config=2\"}]}",
            "{\"_format_version\":\"3.0\",\"services\":[{\"name\":\"a\",\"host\":\"h&_format_version=1\"}]}",
            "_format_version: '3.0' # from http://h/?x=1&config=2",
            "# http://h/?x=1&config=2\n_format_version: '3.0'",
            "a=1",
            "config",
            &many,
        ] {
            let load = load(FORM, "check_hash=1&flatten_errors=1", body).unwrap();
            assert!(load.check_hash && load.flatten_errors);
            assert_eq!(text_of(load), body);
        }
        let yaml = "_format_version: \"3.0\"\n";
        for body in [
            format!("config={yaml}"),
            format!("a=1&config={yaml}"),
            format!("%63onfig={yaml}"),
            format!("a={{: #&b&config={yaml}"),
        ] {
            assert_eq!(text_of(load(FORM, "", &body).unwrap()), yaml, "{body}");
        }
        let structured = load(FORM, "", "_format_version=3.0&services[1].host=h").unwrap();
        assert!(matches!(structured.body, DeclarativeBody::Structured(_)));
    }

    #[test]
    fn a_body_with_a_version_is_the_configuration_itself() {
        let load = load(
            "application/json",
            "flatten_errors=Yes&extra=1",
            r#"{"_format_version":"3.0","check_hash":1}"#,
        )
        .unwrap();
        assert!(load.check_hash && load.flatten_errors);
        let DeclarativeBody::Structured(object) = load.body else {
            panic!("not structured");
        };
        let fields: Vec<&str> = object.iter().map(|(name, _)| name).collect();
        assert_eq!(fields, ["_format_version", "extra"]);
    }

    #[test]
    fn a_plain_json_configuration_is_left_undecoded() {
        let body = " {\n\"_format_version\": \"3.0\"}";
        let load = load("application/json", "check_hash=1", body).unwrap();
        assert!(matches!(load.body, DeclarativeBody::Json(_)) && load.check_hash);
    }

    #[test]
    fn check_hash_is_on_for_1_only() {
        for (query, on) in [
            ("check_hash=1", true),
            ("check_hash=true", false),
            ("", false),
        ] {
            assert_eq!(
                load("text/yaml", query, "a: 1").unwrap().check_hash,
                on,
                "{query}"
            );
        }
    }

    #[test]
    fn a_body_without_a_configuration_is_refused() {
        for (kind, body) in [
            ("text/yaml", ""),
            ("application/x-www-form-urlencoded", ""),
            ("application/x-www-form-urlencoded", "config="),
            ("multipart/form-data; boundary=B", "--B--"),
        ] {
            let failure = load(kind, "", body).unwrap_err();
            let Failure::Message(status, text) = failure else {
                panic!("{failure:?}");
            };
            assert_eq!(
                (status.as_u16(), &*text),
                (400, "expected a declarative configuration")
            );
        }
    }
}
