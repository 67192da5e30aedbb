//! The rules for bodies: JSON objects, forms, and `multipart/form-data`.

use super::arguments;
use super::rules::{Failure, RuleSet};
use super::template::Environment;
use crate::json_text;
use model::{Object, Value};
use plugin::args;
use plugin::body::Multipart;
use std::borrow::Cow;

/// A content type whose bodies are transformed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Json,
    Multipart,
    Form,
}

impl Kind {
    /// The type may be anywhere in the header, as in Kong.
    pub(super) fn of(content_type: &[u8]) -> Option<Self> {
        let has = |name: &str| {
            let mut windows = content_type.windows(name.len());
            windows.any(|window| window.eq_ignore_ascii_case(name.as_bytes()))
        };
        if has("application/json") {
            Some(Self::Json)
        } else if has("multipart/form-data") {
            Some(Self::Multipart)
        } else if has("application/x-www-form-urlencoded") {
            Some(Self::Form)
        } else {
            None
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub(super) enum BodyError {
    #[error(transparent)]
    Render(#[from] Failure),
    #[error("a value for the body contains the boundary of its parts")]
    Boundary,
    #[error("it nests too deeply, has a number that is too large, or its last boundary is missing")]
    Unreadable,
}

/// Returns the new body, or `None` if it stays as it is, because no rule changes it or because it cannot be parsed.
pub(super) fn transform(
    rules: &RuleSet,
    kind: Kind,
    content_type: &[u8],
    body: &[u8],
    environment: &dyn Environment,
) -> Result<Option<Vec<u8>>, BodyError> {
    match kind {
        Kind::Json => transform_json(rules, body, environment),
        Kind::Form => Ok(transform_form(rules, body, environment)?),
        Kind::Multipart => transform_multipart(rules, content_type, body, environment),
    }
}

fn transform_form(
    rules: &RuleSet,
    body: &[u8],
    environment: &dyn Environment,
) -> Result<Option<Vec<u8>>, Failure> {
    let mut fields = args::parse_all(body).collect();
    let changed = arguments::transform(rules, &mut fields, body.is_empty(), environment)?;
    Ok(changed.then(|| arguments::encode(fields).into_bytes()))
}

fn transform_json(
    rules: &RuleSet,
    body: &[u8],
    environment: &dyn Environment,
) -> Result<Option<Vec<u8>>, BodyError> {
    let mended;
    let parsed = match serde_json::from_slice(body) {
        Ok(parsed) => Ok(parsed),
        Err(_) => {
            mended = json_text::mended(body);
            serde_json::from_str(&mended).map_err(|_| is_json(&mended))
        }
    };
    let mut object = match parsed {
        Ok(Value::Object(object)) => object,
        Err(_) if body.is_empty() => Object::new(),
        // Many upstreams read more than the parser here. A client could otherwise pass a field that the rules remove.
        Err(true) => return Err(BodyError::Unreadable),
        Ok(_) | Err(_) => return Ok(None),
    };
    let changed = transform_object(rules, &mut object, body.is_empty(), environment)?;
    // A value that was read from JSON can be written as JSON.
    Ok(changed.then(|| serde_json::to_vec(&object).ok()).flatten())
}

/// Whether a body is JSON, however deep it nests and however large its numbers are.
fn is_json(body: &str) -> bool {
    serde_json::from_str::<serde::de::IgnoredAny>(body).is_ok()
}

fn transform_object(
    rules: &RuleSet,
    object: &mut Object,
    only_new: bool,
    environment: &dyn Environment,
) -> Result<bool, Failure> {
    let mut changed = !rules.append.is_empty();
    if !only_new {
        changed |= !rules.remove.is_empty();
        for name in &rules.remove {
            object.remove(name);
        }
        for rule in &rules.rename {
            let new = rule.render_text(environment)?;
            if rule.name != new && is_true(object, &rule.name) {
                let value = object.remove(&rule.name).unwrap_or_default();
                object.insert(new, value);
                changed = true;
            }
        }
        for rule in &rules.replace {
            let value = rule.render_text(environment)?;
            if is_true(object, &rule.name) {
                object.insert(rule.name.clone(), Value::String(value));
                changed = true;
            }
        }
    }
    for rule in &rules.add {
        let value = rule.render_text(environment)?;
        if !is_true(object, &rule.name) {
            object.insert(rule.name.clone(), Value::String(value));
            changed = true;
        }
    }
    for rule in &rules.append {
        let value = Value::String(rule.render_text(environment)?);
        let old = object.get_mut(&rule.name).map(std::mem::take);
        object.insert(rule.name.clone(), appended(old, value));
    }
    Ok(changed)
}

/// Whether a field counts as present. As in Lua, `false` does not; `null` does.
fn is_true(object: &Object, name: &str) -> bool {
    object
        .get(name)
        .is_some_and(|value| *value != Value::Bool(false))
}

/// Returns the old value with a further one. An object gets it under the next free number, as in Kong. Numbers,
/// booleans and `null` are lost.
fn appended(old: Option<Value>, value: Value) -> Value {
    match old {
        Some(Value::String(text)) => Value::Array(vec![Value::String(text), value]),
        Some(Value::Array(mut values)) => {
            values.push(value);
            Value::Array(values)
        }
        Some(Value::Object(mut object)) if !object.is_empty() => {
            object.push(free_number(&object).to_string(), value);
            Value::Object(object)
        }
        _ => Value::Array(vec![value]),
    }
}

/// Returns the smallest number from 1 that is no name of the object. Looking up one number after the other would take
/// time that grows with the square of what the client sends.
fn free_number(object: &Object) -> usize {
    let mut is_taken = vec![false; object.len() + 1];
    for (name, _) in object
        .iter()
        .filter(|(name, _)| !name.starts_with(['0', '+']))
    {
        let number: Option<usize> = name.parse().ok();
        if let Some(taken) = number.and_then(|number| is_taken.get_mut(number - 1)) {
            *taken = true;
        }
    }
    let free = is_taken.iter().position(|taken| !taken);
    free.unwrap_or(object.len()) + 1
}

fn transform_multipart(
    rules: &RuleSet,
    content_type: &[u8],
    body: &[u8],
    environment: &dyn Environment,
) -> Result<Option<Vec<u8>>, BodyError> {
    let Some(mut parts) = Multipart::parse(content_type, body) else {
        // Kong and many upstreams read parts without the last boundary.
        let has_no_effect =
            rules.remove.is_empty() && rules.rename.is_empty() && rules.replace.is_empty();
        return match has_no_effect {
            true => Ok(None),
            false => Err(BodyError::Unreadable),
        };
    };
    let mut changed = false;
    if !body.is_empty() {
        for rule in &rules.rename {
            let new = rule.render(environment)?;
            if *rule.name.as_bytes() != *new
                && let Some(content) = parts.first(rule.name.as_bytes()).map(<[u8]>::to_vec)
            {
                parts.set(&new, content);
                parts.remove(rule.name.as_bytes());
                changed = true;
            }
        }
        changed |= !rules.remove.is_empty();
        for name in &rules.remove {
            parts.remove(name.as_bytes());
        }
        for rule in &rules.replace {
            let value = checked(&parts, rule.render(environment)?)?;
            if parts.first(rule.name.as_bytes()).is_some() {
                parts.remove(rule.name.as_bytes());
                parts.set(rule.name.as_bytes(), value);
                changed = true;
            }
        }
    }
    for rule in &rules.add {
        let value = checked(&parts, rule.render(environment)?)?;
        if parts.first(rule.name.as_bytes()).is_none() {
            parts.set(rule.name.as_bytes(), value);
            changed = true;
        }
    }
    Ok(changed.then(|| parts.encode()))
}

/// Refuses a value with the boundary in it. The upstream would read what follows as further parts.
fn checked(parts: &Multipart, value: Cow<'_, [u8]>) -> Result<Vec<u8>, BodyError> {
    if parts.may_contain(&value) {
        Ok(value.into_owned())
    } else {
        Err(BodyError::Boundary)
    }
}

#[cfg(test)]
#[path = "body_tests.rs"]
mod tests;
