//! Shorthand fields: input fields that are converted to other fields before the entity is validated.

use super::constraint::{display, same};
use super::definition::{Effect, Shorthand};
use super::source::Conversion;
use super::{Context, engine};
use crate::value::{Object, Value};
use compact_str::CompactString;

/// Validates the shorthands of the input and converts them to the fields that they represent.
pub(crate) fn expand_shorthands(
    shorthands: &[Shorthand],
    input: &mut Object,
    context: &Context,
) -> Result<(), Object> {
    let mut errors = Object::new();
    for shorthand in shorthands {
        let name = &shorthand.field.name;
        let Some(value) = input.get(name) else {
            continue;
        };
        if let Err(problem) = engine::check(&shorthand.field, value, context) {
            errors.insert(name.clone(), problem);
            continue;
        }
        if let Err(problem) = expand(shorthand, input) {
            errors.insert(name.clone(), problem.into());
        }
    }
    if errors.is_empty() {
        Ok(())
    } else {
        Err(errors)
    }
}

fn expand(shorthand: &Shorthand, input: &mut Object) -> Result<(), String> {
    let name = &shorthand.field.name;
    // The field is removed first, because a function may set a field of the same name.
    let value = input.remove(name).unwrap_or_default();
    match &shorthand.effect {
        Effect::Function(function) => {
            (function.apply)(value, input);
            Ok(())
        }
        Effect::Into(path) => {
            set_path(input, path, value);
            Ok(())
        }
        Effect::ReplacedBy(path) => match get_path(input, path) {
            Some(newer) if newer.is_null() || value.is_null() => {
                if newer.is_null() && !value.is_null() {
                    set_path(input, path, value);
                }
                Ok(())
            }
            Some(newer) if !same(newer, &value) => Err(format!(
                "both deprecated and new field are used but their values mismatch: {name} = {} vs {} = {}",
                display(&value),
                path.join("."),
                display(newer),
            )),
            Some(_) => Ok(()),
            None => {
                set_path(input, path, value);
                Ok(())
            }
        },
    }
}

pub(crate) fn get_path<'a>(object: &'a Object, path: &[CompactString]) -> Option<&'a Value> {
    let (first, rest) = path.split_first()?;
    let value = object.get(first)?;
    if rest.is_empty() {
        return Some(value);
    }
    get_path(value.as_object()?, rest)
}

/// Sets a field of a nested record and creates the records on the path. A value on the path that is not a record is
/// kept, and validation reports it.
fn set_path(object: &mut Object, path: &[CompactString], value: Value) {
    let Some((first, rest)) = path.split_first() else {
        return;
    };
    if rest.is_empty() {
        object.insert(first.clone(), value);
        return;
    }
    if object.get(first).is_none_or(Value::is_null) {
        object.insert(first.clone(), Value::Object(Object::new()));
    }
    if let Some(Value::Object(inner)) = object.get_mut(first) {
        set_path(inner, rest, value);
    }
}

impl Shorthand {
    /// Whether the shorthand may set this field of the record.
    pub(crate) fn fills(&self, field: &str) -> bool {
        match &self.effect {
            Effect::Function(function) => function.fills.contains(&field),
            Effect::Into(path) | Effect::ReplacedBy(path) => {
                path.first().is_some_and(|first| first == field)
            }
        }
    }
}

/// The conversions of this crate's entities, and `ignored`, which any schema can name.
pub(super) const CONVERSIONS: &[Conversion] = &[
    Conversion {
        name: "service_url",
        fills: &["protocol", "host", "port", "path"],
        apply: |value, input| {
            if let Some(url) = value.as_str() {
                service_url(url, input);
            }
        },
    },
    Conversion {
        name: "upstream_algorithm",
        fills: &["algorithm", "hash_on"],
        apply: |value, input| {
            if matches!(value.as_str(), Some("least-connections" | "latency")) {
                input.insert("hash_on", Value::Null);
            }
            input.insert("algorithm", value);
        },
    },
    Conversion {
        name: "upstream_hash_on",
        fills: &["algorithm", "hash_on"],
        apply: upstream_hash_on,
    },
    Conversion {
        name: "ignored",
        fills: &[],
        apply: |_, _| {},
    },
];

/// Sets `hash_on` and the algorithm that fits it. Source: kong/db/schema/entities/upstreams.lua (`shorthand_fields`).
fn upstream_hash_on(value: Value, input: &mut Object) {
    match value.as_str() {
        None => {
            input.insert("hash_on", "none".into());
        }
        Some("none") => {
            input.insert("hash_on", value);
            input.insert("algorithm", "round-robin".into());
        }
        Some(_) => {
            input.insert("hash_on", value);
            input.insert("algorithm", "consistent-hashing".into());
        }
    }
}

/// Expands `url` to protocol, host, port and path. Splits as LuaSocket does. The fields are validated afterwards, not
/// here.
fn service_url(url: &str, input: &mut Object) {
    let parts = UrlParts::split(url);
    let number = parts.port.map(|port| port.parse::<i64>());
    let protocol = match (parts.scheme, &number) {
        (Some(scheme), _) => scheme,
        (None, Some(Ok(443))) => "https",
        _ => "http",
    };
    let port = match (number, parts.port) {
        (Some(Ok(number)), _) => Value::Int(number),
        (_, Some(text)) => text.into(),
        _ if protocol == "https" => Value::Int(443),
        _ => Value::Int(80),
    };
    input.insert("protocol", protocol.into());
    input.insert("host", parts.host.map_or(Value::Null, Value::from));
    input.insert("port", port);
    input.insert("path", parts.path.map_or(Value::Null, Value::from));
}

/// The parts of a URL, split as leniently as LuaSocket's `url.parse` does.
#[derive(Debug, Default, PartialEq)]
pub struct UrlParts<'a> {
    pub scheme: Option<&'a str>,
    pub user_info: Option<&'a str>,
    pub host: Option<&'a str>,
    pub port: Option<&'a str>,
    pub path: Option<&'a str>,
}

impl<'a> UrlParts<'a> {
    pub fn split(url: &'a str) -> Self {
        let mut parts = Self::default();
        let mut rest = url.split_once('#').map_or(url, |(before, _)| before);
        if let Some((scheme, after)) = rest.split_once(':')
            && is_scheme(scheme)
        {
            parts.scheme = Some(scheme);
            rest = after;
        }
        if let Some(after) = rest.strip_prefix("//") {
            let end = after.find(['/', '?']).unwrap_or(after.len());
            parts.split_authority(&after[..end]);
            rest = &after[end..];
        }
        rest = rest.split_once('?').map_or(rest, |(before, _)| before);
        rest = rest.split_once(';').map_or(rest, |(before, _)| before);
        if !rest.is_empty() {
            parts.path = Some(rest);
        }
        parts
    }

    fn split_authority(&mut self, authority: &'a str) {
        let mut host = authority;
        if let Some((user_info, after)) = host.split_once('@') {
            self.user_info = Some(user_info);
            host = after;
        }
        if let Some((before, port)) = host.rsplit_once(':')
            && !port.contains(']')
        {
            self.port = Some(port);
            host = before;
        }
        if let Some(inner) = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'))
        {
            host = inner;
        }
        if !host.is_empty() {
            self.host = Some(host);
        }
    }
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_is_taken_apart() {
        let parts = UrlParts::split("http://user:pw@up.test:8080/a;p?b=c#d");
        assert_eq!(parts.scheme, Some("http"));
        assert_eq!(parts.user_info, Some("user:pw"));
        assert_eq!(parts.host, Some("up.test"));
        assert_eq!(parts.port, Some("8080"));
        assert_eq!(parts.path, Some("/a"));
    }

    #[test]
    fn ipv6_host_loses_its_brackets() {
        let parts = UrlParts::split("http://[::1]/");
        assert_eq!((parts.host, parts.port), (Some("::1"), None));
    }
}
