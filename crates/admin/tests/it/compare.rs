//! Compares responses with recorded responses. The recording contains placeholders. `<uuid-N>` matches the same UUID
//! wherever it occurs, and other names, such as `<key>`, match the same text. `<ts>` matches any timestamp, and `<any>`
//! matches any value. The order of lists is ignored.

use regex::Regex;
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::sync::LazyLock;
use uuid::Uuid;

pub(crate) type Bound = HashMap<String, String>;

static HOLDER: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"<(uuid-\d+|ts|[a-z]+-\d+|random|key|secret|hash)>").unwrap());

/// The text after these prefixes comes from a library (OpenSSL or PCRE), so it is not compared.
const ENGINE_TEXTS: [&str; 3] = ["invalid certificate:", "invalid key:", "invalid regex:"];

const UUID: &str = r"([0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12})";

/// Fills the placeholders in a recorded request.
pub(crate) fn fill(value: &Value, bound: &mut Bound) -> Value {
    match value {
        Value::String(text) if text == "<ts>" => Value::from(1_700_000_000),
        Value::String(text) => Value::String(fill_text(text, bound)),
        Value::Array(values) => values.iter().map(|one| fill(one, bound)).collect(),
        Value::Object(object) => Value::Object(
            object
                .iter()
                .map(|(key, one)| (fill_text(key, bound), fill(one, bound)))
                .collect(),
        ),
        other => other.clone(),
    }
}

pub(crate) fn fill_text(text: &str, bound: &mut Bound) -> String {
    let stands_for = |holder: &regex::Captures<'_>| match &holder[1] {
        "ts" => "1700000000".to_owned(),
        name if name.starts_with("uuid") => bound
            .entry(name.to_owned())
            .or_insert_with(|| Uuid::new_v5(&Uuid::NAMESPACE_OID, name.as_bytes()).to_string())
            .clone(),
        name => bound.get(name).cloned().unwrap_or(holder[0].to_owned()),
    };
    HOLDER.replace_all(text, stands_for).into_owned()
}

/// Whether `actual` matches `wanted`. If so, binds new placeholders to the values that they match.
pub(crate) fn text_matches(wanted: &str, actual: &str, bound: &mut Bound) -> bool {
    for prefix in ENGINE_TEXTS {
        if let Some((before, _)) = wanted.split_once(prefix) {
            return actual
                .split_once(prefix)
                .is_some_and(|(found, _)| found == before);
        }
    }
    if wanted == actual || !HOLDER.is_match(wanted) {
        return wanted == actual;
    }
    let (mut pattern, mut names, mut at) = (String::from("(?s)^"), Vec::new(), 0);
    for holder in HOLDER.captures_iter(wanted) {
        let whole = holder.get(0).unwrap();
        pattern.push_str(&regex::escape(&wanted[at..whole.start()]));
        match bound.get(&holder[1]) {
            Some(value) => pattern.push_str(&regex::escape(value)),
            None => {
                pattern.push_str(match &holder[1] {
                    "ts" => r"(\d+(?:\.\d+)?)",
                    name if name.starts_with("uuid") => UUID,
                    _ => "(.+?)",
                });
                names.push(holder[1].to_owned());
            }
        }
        at = whole.end();
    }
    pattern.push_str(&regex::escape(&wanted[at..]));
    pattern.push('$');
    let Some(found) = Regex::new(&pattern).unwrap().captures(actual) else {
        return false;
    };
    for (name, value) in names.into_iter().zip(found.iter().skip(1).flatten()) {
        if name != "ts" {
            bound.insert(name, value.as_str().to_owned());
        }
    }
    true
}

/// Compares two values. The error describes the first difference.
pub(crate) fn differ(
    wanted: &Value,
    actual: &Value,
    bound: &mut Bound,
    at: &str,
) -> Result<(), String> {
    let fits = match (wanted, actual) {
        (Value::String(text), _) if text == "<any>" => true,
        (Value::String(text), actual) if text == "<ts>" => actual.is_number(),
        (Value::String(wanted), Value::String(actual)) => text_matches(wanted, actual, bound),
        (Value::Object(wanted), Value::Object(actual)) => {
            return objects(wanted, actual, bound, at);
        }
        (Value::Array(wanted), Value::Array(actual)) => return lists(wanted, actual, bound, at),
        (Value::Number(wanted), Value::Number(actual)) => wanted.as_f64() == actual.as_f64(),
        _ => wanted == actual,
    };
    if fits {
        Ok(())
    } else {
        Err(format!("{at}: {actual}, not {wanted}"))
    }
}

fn objects(
    wanted: &Map<String, Value>,
    actual: &Map<String, Value>,
    bound: &mut Bound,
    at: &str,
) -> Result<(), String> {
    let mut rest: Vec<&String> = actual.keys().collect();
    for (key, value) in wanted {
        let mut problem = Err(format!("{at}.{key}: missing"));
        let candidates: Vec<usize> = (0..rest.len())
            .filter(|&index| text_matches(key, rest[index], &mut bound.clone()))
            .collect();
        for index in candidates {
            let mut trial = bound.clone();
            text_matches(key, rest[index], &mut trial);
            problem = differ(
                value,
                &actual[rest[index]],
                &mut trial,
                &format!("{at}.{key}"),
            );
            if problem.is_ok() {
                *bound = trial;
                rest.remove(index);
                break;
            }
        }
        problem?;
    }
    if rest.is_empty() {
        Ok(())
    } else {
        Err(format!("{at}: unexpected {rest:?}"))
    }
}

fn lists(wanted: &[Value], actual: &[Value], bound: &mut Bound, at: &str) -> Result<(), String> {
    if wanted.len() != actual.len() {
        return Err(format!(
            "{at}: {} elements, not {}: {actual:?}",
            actual.len(),
            wanted.len()
        ));
    }
    let mut rest: Vec<&Value> = actual.iter().collect();
    for (index, one) in wanted.iter().enumerate() {
        let at = format!("{at}[{index}]");
        let found = (0..rest.len()).find(|&index| {
            let mut trial = bound.clone();
            let fits = differ(one, rest[index], &mut trial, &at).is_ok();
            if fits {
                *bound = trial;
            }
            fits
        });
        match found {
            Some(index) => drop(rest.remove(index)),
            None => return differ(one, rest[0], bound, &at),
        }
    }
    Ok(())
}
