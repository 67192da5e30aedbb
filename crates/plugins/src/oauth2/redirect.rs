//! Adds parameters to redirect URIs, as Kong does. Sources: kong/plugins/oauth2/access.lua authorize(),
//! kong/tools/http.lua encode_args().

use model::Value;
use plugin::{args, body};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Where the parameters go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Query,
    Fragment,
}

/// Returns the URI with parameters in place of those with the same names. All are sorted by name.
pub(super) fn with_parameters(uri: &str, part: Part, parameters: &[(&str, Value)]) -> String {
    let (rest, fragment) = split(uri, '#');
    let (base, query) = split(rest, '?');
    let existing = match part {
        Part::Query => query,
        Part::Fragment => fragment,
    };
    let existing: Vec<_> = args::parse(existing.unwrap_or_default().as_bytes()).collect();
    let existing = existing.iter().map(|arg| {
        let value = arg.value.as_deref();
        (
            &*arg.name,
            value.map_or(Value::Bool(true), body::text_value),
        )
    });
    let mut all: BTreeMap<String, Value> = match body::collect_values(existing) {
        Value::Object(existing) => existing
            .iter()
            .map(|(name, value)| (name.to_string(), value.clone()))
            .collect(),
        _ => BTreeMap::new(),
    };
    for (name, value) in parameters {
        all.insert((*name).to_owned(), value.clone());
    }
    let mut encoded = String::new();
    for (name, value) in &all {
        write(&mut encoded, name, value, 0);
    }
    let (query, fragment) = match part {
        Part::Query => (Some(encoded.as_str()), fragment),
        Part::Fragment => (query, Some(encoded.as_str())),
    };
    let mut out = base.to_owned();
    for (sign, text) in [('?', query), ('#', fragment)] {
        if let Some(text) = text {
            out.push(sign);
            out.push_str(text);
        }
    }
    out
}

/// Returns the URI with parameters after those that it has. Those with the same names are removed; the others stay as they
/// are (RFC 6749 section 3.1.2).
pub(super) fn with_appended(uri: &str, parameters: &[(&str, Value)]) -> String {
    let (rest, fragment) = split(uri, '#');
    let (base, query) = split(rest, '?');
    let is_replaced = |piece: &str| {
        let arg = args::parse(piece.as_bytes()).next();
        let is_same = |(name, _): &(&str, Value)| {
            arg.as_ref()
                .is_some_and(|arg| *arg.name == *name.as_bytes())
        };
        parameters.iter().any(is_same)
    };
    let pieces = query.into_iter().flat_map(|query| query.split('&'));
    let kept: Vec<_> = pieces
        .filter(|piece| !piece.is_empty() && !is_replaced(piece))
        .collect();
    let mut query = kept.join("&");
    for (name, value) in parameters {
        write(&mut query, name, value, 0);
    }
    let fragment = fragment.map(|text| format!("#{text}"));
    format!("{base}?{query}{}", fragment.unwrap_or_default())
}

/// Adds a state as a client sends it, for the fuzz target.
pub fn with_state(uri: &str, state: &str) -> String {
    with_parameters(uri, Part::Query, &[("state", Value::from(state))])
}

fn split(text: &str, at: char) -> (&str, Option<&str>) {
    match text.split_once(at) {
        Some((before, after)) => (before, Some(after)),
        None => (text, None),
    }
}

/// Depth from which nested values are left out. JSON that plugins read may be nested.
const MAX_DEPTH: usize = 16;
/// Maximum length of a state, with the names of all its parts. Each element of a list repeats the names of what it is in.
const MAX_STATE: usize = 256 * 1024;

/// Whether a state is short enough for a URI.
pub(super) fn is_short(state: &Value) -> bool {
    let mut left = MAX_STATE;
    write_within(&mut String::new(), &mut left, "state", state, 0).is_some()
}

fn write(out: &mut String, name: &str, value: &Value, depth: usize) {
    // This much is never used up.
    let mut left = usize::MAX;
    let _ = write_within(out, &mut left, name, value, depth);
}

/// Writes a parameter. Returns `None` if there is too much to write: then a part of it was written.
fn write_within(
    out: &mut String,
    left: &mut usize,
    name: &str,
    value: &Value,
    depth: usize,
) -> Option<()> {
    // Names count also where nothing is written, because making them takes time.
    *left = left.checked_sub(name.len())?;
    if depth > MAX_DEPTH {
        return Some(());
    }
    match value {
        Value::Array(values) => {
            for (at, value) in values.iter().enumerate() {
                let name = format!("{name}[{}]", at + 1);
                write_within(out, left, &name, value, depth + 1)?;
            }
        }
        Value::Object(object) => {
            let mut members: Vec<_> = object.iter().collect();
            members.sort_unstable_by_key(|(member, _)| member.to_string());
            for (member, value) in members {
                let name = format!("{name}.{member}");
                write_within(out, left, &name, value, depth + 1)?;
            }
        }
        Value::Null => pair(out, name, ""),
        Value::String(text) => {
            *left = left.checked_sub(text.len())?;
            pair(out, name, text);
        }
        other => pair(out, name, &serde_json::to_string(other).unwrap_or_default()),
    }
    Some(())
}

fn pair(out: &mut String, name: &str, value: &str) {
    if !out.is_empty() {
        out.push('&');
    }
    escape(out, name);
    out.push('=');
    escape(out, value);
}

/// Encodes everything but letters, digits and underscores, with small hex digits.
fn escape(out: &mut String, text: &str) {
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'_' => out.push(char::from(byte)),
            _ => {
                let _ = write!(out, "%{byte:02x}");
            }
        }
    }
}
