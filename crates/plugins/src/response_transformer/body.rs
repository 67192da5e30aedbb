//! The rules for JSON bodies. Source: kong/plugins/response-transformer/body_transformer.lua.
//!
//! The rules concern only the names of the outermost object. Its values stay as they were written, so that nesting costs
//! no stack and numbers keep their digits.

use super::config::{Config, Type, Values, split};
use crate::json_text;
use indexmap::IndexMap;
use serde_json::value::RawValue;
use std::borrow::Cow;

#[derive(Debug, Default)]
pub(super) struct Rules {
    remove: Box<[String]>,
    rename: Box<[(String, String)]>,
    replace: Box<[Rule]>,
    add: Box<[Rule]>,
    append: Box<[Rule]>,
}

#[derive(Debug)]
struct Rule {
    name: String,
    /// The value as JSON.
    value: String,
}

/// The outermost object of a body: names, and values as JSON.
type Members<'b> = IndexMap<String, Cow<'b, str>>;

impl Rules {
    pub(super) fn compile(config: &Config) -> Self {
        let removed = config.remove.json.iter();
        let renamed = config.rename.json.iter().filter_map(|entry| split(entry));
        let renamed = renamed.filter(|(_, new)| !new.is_empty());
        Self {
            remove: removed
                .filter_map(|entry| Some(split(entry)?.0.to_owned()))
                .collect(),
            rename: renamed
                .map(|(old, new)| (old.to_owned(), new.to_owned()))
                .collect(),
            replace: rules(&config.replace),
            add: rules(&config.add),
            append: rules(&config.append),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.remove.is_empty()
            && self.rename.is_empty()
            && self.replace.is_empty()
            && self.add.is_empty()
            && self.append.is_empty()
    }

    /// Returns the new body. `None` if the body is no JSON object, which stays as it is.
    pub(super) fn transform(&self, body: &[u8]) -> Option<Vec<u8>> {
        let mended;
        let members: IndexMap<String, &RawValue> = match serde_json::from_slice(body) {
            Ok(members) => members,
            Err(_) => {
                mended = json_text::mended(body);
                serde_json::from_str(&mended).ok()?
            }
        };
        let members = members.into_iter();
        let mut members: Members<'_> = members
            .map(|(name, value)| (name, Cow::Borrowed(value.get())))
            .collect();
        self.apply(&mut members);
        Some(written(&members))
    }

    fn apply(&self, members: &mut Members<'_>) {
        for name in &self.remove {
            members.shift_remove(name);
        }
        for (old, new) in &self.rename {
            if let Some(value) = members.shift_remove(old) {
                members.insert(new.clone(), value);
            }
        }
        for rule in &self.replace {
            if counts_as_present(members, &rule.name) {
                members.insert(rule.name.clone(), rule.value.clone().into());
            }
        }
        for rule in &self.add {
            if !counts_as_present(members, &rule.name) {
                members.insert(rule.name.clone(), rule.value.clone().into());
            }
        }
        for rule in &self.append {
            let value = appended(members.get(&rule.name), &rule.value);
            members.insert(rule.name.clone(), value.into());
        }
    }
}

fn rules(values: &Values) -> Box<[Rule]> {
    let entries = values.json.iter().enumerate();
    let rule = |(at, entry): (usize, &String)| {
        let (name, value) = split(entry)?;
        let kind = values.json_types.get(at).copied().unwrap_or(Type::String);
        Some(Rule {
            name: name.to_owned(),
            value: converted(value, kind)?,
        })
    };
    entries.filter_map(rule).collect()
}

/// Returns a configured value as JSON. `None` if it is empty or no number.
fn converted(value: &str, kind: Type) -> Option<String> {
    if value.is_empty() {
        return None;
    }
    match kind {
        Type::String => serde_json::to_string(value).ok(),
        Type::Boolean => Some((value == "true").to_string()),
        Type::Number => number(value.trim()),
    }
}

/// Reads a number as Lua does, also in hexadecimal.
fn number(text: &str) -> Option<String> {
    let hex = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let value = match hex {
        Some(digits) => u32::from_str_radix(digits, 16).ok()?.into(),
        None => text.parse::<f64>().ok().filter(|value| value.is_finite())?,
    };
    // Larger numbers have no exact integers.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if value.fract() == 0.0 && value.abs() < EXACT {
        return Some((value as i64).to_string());
    }
    serde_json::to_string(&value).ok()
}

/// Whether a name counts as present. As in Lua, `false` does not; `null` does.
fn counts_as_present(members: &Members<'_>, name: &str) -> bool {
    members.get(name).is_some_and(|value| value != "false")
}

/// Returns the old value with a further one. Numbers, booleans and `null` are lost, as in Kong. An object gets the value
/// under the first free number.
fn appended(old: Option<&Cow<'_, str>>, value: &str) -> String {
    let old = old.map(|old| old.trim()).unwrap_or_default();
    let inner = |open: char, close: char| {
        let inner = old.strip_prefix(open)?.strip_suffix(close)?.trim();
        (!inner.is_empty()).then_some(inner)
    };
    if old.starts_with('"') {
        format!("[{old},{value}]")
    } else if let Some(inner) = inner('[', ']') {
        format!("[{inner},{value}]")
    } else if let Some(inner) = inner('{', '}') {
        let names = serde_json::from_str(old).unwrap_or_default();
        format!("{{{inner},\"{}\":{value}}}", free_number(&names))
    } else {
        format!("[{value}]")
    }
}

/// Returns the smallest number from 1 that is no name of the object.
fn free_number(names: &IndexMap<String, &RawValue>) -> usize {
    // There are not more numbers among the names than names.
    let is_taken = |number: &usize| names.contains_key(&*number.to_string());
    (1..=names.len())
        .find(|number| !is_taken(number))
        .unwrap_or(names.len() + 1)
}

fn written(members: &Members<'_>) -> Vec<u8> {
    let length: usize = members
        .iter()
        .map(|(name, value)| name.len() + value.len() + 4)
        .sum();
    let mut out = Vec::with_capacity(length + 2);
    out.push(b'{');
    for (at, (name, value)) in members.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        // Writing to a Vec cannot fail.
        let _ = serde_json::to_writer(&mut out, name);
        out.push(b':');
        out.extend_from_slice(value.as_bytes());
    }
    out.push(b'}');
    out
}

#[cfg(test)]
#[path = "body_tests.rs"]
mod tests;
