//! Converts YAML scalars by the rules of YAML 1.1, as lyaml does: `yes` and `on` are booleans, `010` is eight and
//! `1:30` is ninety. Source: lyaml's lib/lyaml/implicit.lua and explicit.lua.

use crate::value::{Value, whole};

/// The error for a scalar that does not have the type of its tag, such as `!!int x`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mismatch;

/// Converts an unquoted scalar.
pub(super) fn plain(text: String) -> Value {
    // Nearly every scalar of a configuration is a word or begins with `/`. `implicit` recognises most of these by their
    // first byte.
    match implicit(&text) {
        Some(value) => value,
        None => Value::from(text),
    }
}

/// Whether an unquoted scalar would be converted to a value other than its text.
pub(super) fn is_special(text: &str) -> bool {
    implicit(text).is_some()
}

/// Converts a scalar with a tag. Returns `None` for a tag that lyaml does not convert.
pub(super) fn tagged(tag: &str, text: &str) -> Option<Result<Value, Mismatch>> {
    let value = match tag {
        "str" => Some(Value::from(text)),
        "null" => Some(Value::Null),
        "bool" => boolean(text)
            .or(match text {
                "y" | "Y" => Some(true),
                "n" | "N" => Some(false),
                _ => None,
            })
            .map(Value::Bool),
        "int" => integer(text).or_else(|| sexagesimal(text)).map(number),
        "float" => float(text)
            .or_else(|| special_float(text))
            .or_else(|| integer(text))
            .or_else(|| sexagesimal_float(text))
            .map(Value::Float),
        _ => return None,
    };
    Some(value.ok_or(Mismatch))
}

fn implicit(text: &str) -> Option<Value> {
    match text.as_bytes().first() {
        None | Some(b'~' | b'n' | b'N') if is_null(text) => Some(Value::Null),
        Some(b'+' | b'-' | b'.' | b'0'..=b'9' | b'_') => numeric(text),
        Some(b't' | b'T' | b'f' | b'F' | b'y' | b'Y' | b'n' | b'N' | b'o' | b'O') => {
            boolean(text).map(Value::Bool)
        }
        _ => None,
    }
}

fn is_null(text: &str) -> bool {
    matches!(text, "" | "~" | "null" | "Null" | "NULL")
}

fn boolean(text: &str) -> Option<bool> {
    match text {
        "true" | "True" | "TRUE" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => Some(true),
        "false" | "False" | "FALSE" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => Some(false),
        _ => None,
    }
}

fn numeric(text: &str) -> Option<Value> {
    if let Some(value) = exact(text) {
        return Some(Value::Int(value));
    }
    if let Some(value) = decimal_or_octal(text) {
        return Some(number(value));
    }
    if let Some(value) = float(text).or_else(|| special_float(text)) {
        return Some(Value::Float(value));
    }
    integer(text)
        .or_else(|| sexagesimal(text))
        .map(number)
        .or_else(|| sexagesimal_float(text).map(Value::Float))
}

/// Parses a decimal integer exactly, while Lua rounds integers beyond 2^53.
fn exact(text: &str) -> Option<i64> {
    let digits = text.trim_start_matches(['+', '-']);
    let is_decimal = digits.bytes().all(|byte| byte.is_ascii_digit());
    if !is_decimal || (digits.starts_with('0') && digits.len() > 1) {
        return None;
    }
    text.parse().ok()
}

/// Converts a number to an integer if it is whole and in range. lyaml does not distinguish these types, because Lua has
/// only one type of number.
fn number(value: f64) -> Value {
    whole(value).map_or(Value::Float(value), Value::Int)
}

fn integer(text: &str) -> Option<f64> {
    decimal_or_octal(text).or_else(|| based(text))
}

fn decimal_or_octal(text: &str) -> Option<f64> {
    let (sign, digits) = signed(text);
    let digits = match digits.strip_prefix('0') {
        Some(rest) if rest.bytes().all(|byte| matches!(byte, b'0'..=b'7' | b'_')) => {
            let octal: Vec<u8> = rest.bytes().filter(|&byte| byte != b'_').collect();
            if octal.is_empty() {
                return rest.is_empty().then_some(0.0);
            }
            return Some(sign * fold(octal.into_iter(), 8.0));
        }
        _ => digits.trim_start_matches('_'),
    };
    let digital = digits
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'_');
    if !digital || !digits.starts_with(|first: char| first.is_ascii_digit()) {
        return None;
    }
    // The decimal parser rounds only once. Adding up the digits would round at each digit of a long number.
    let plain: String = digits.chars().filter(|&digit| digit != '_').collect();
    plain.parse().ok().map(|value: f64| sign * value)
}

/// Parses `0x1f` and `0b101`.
fn based(text: &str) -> Option<f64> {
    let (sign, rest) = signed(text);
    let (base, digits) = match rest.get(..2)? {
        "0x" => (16, rest.get(2..)?),
        "0b" => (2, rest.get(2..)?),
        _ => return None,
    };
    let digits = digits.trim_start_matches('_');
    // lyaml does not accept a single binary digit as a number.
    if digits.len() < if base == 2 { 2 } else { 1 } {
        return None;
    }
    let mut value = 0.0;
    for digit in digits.chars().filter(|&digit| digit != '_') {
        value = value * f64::from(base) + f64::from(digit.to_digit(base)?);
    }
    Some(sign * value)
}

fn fold(digits: impl Iterator<Item = u8>, base: f64) -> f64 {
    digits.fold(0.0, |value, digit| value * base + f64::from(digit - b'0'))
}

fn float(text: &str) -> Option<f64> {
    let first = text.trim_start_matches(['+', '-']).bytes().next()?;
    if !(first.is_ascii_digit() || first == b'.' || first == b'_') {
        return None;
    }
    let marked = text.bytes().any(|byte| matches!(byte, b'.' | b'e' | b'E'));
    if !marked {
        return None;
    }
    if text.contains('_') {
        return text.replace('_', "").parse().ok();
    }
    text.parse().ok()
}

fn special_float(text: &str) -> Option<f64> {
    match text {
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => Some(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => Some(f64::NEG_INFINITY),
        ".nan" | ".NaN" | ".NAN" => Some(f64::NAN),
        _ => None,
    }
}

/// Parses a number in base 60, such as `190:20:30`, which YAML 1.1 has for angles and times.
fn sexagesimal(text: &str) -> Option<f64> {
    let (sign, rest) = signed(text);
    let (first, others) = rest.split_once(':')?;
    if first.is_empty() || !first.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let tail_is_digits = others
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b':');
    if !tail_is_digits || !others.starts_with(|first: char| first.is_ascii_digit()) {
        return None;
    }
    let parts = rest.split(':').filter(|part| !part.is_empty());
    let mut value = 0.0;
    for part in parts {
        value = value * 60.0 + part.parse::<f64>().ok()?;
    }
    Some(sign * value)
}

fn sexagesimal_float(text: &str) -> Option<f64> {
    let at = text.rfind('.')?;
    let (whole, fraction) = text.split_at(at);
    if fraction.len() < 2 || !fraction[1..].bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let (sign, rest) = signed(whole);
    let value = sexagesimal(rest)? + fraction.parse::<f64>().ok()?;
    Some(sign * value)
}

fn signed(text: &str) -> (f64, &str) {
    match text.as_bytes().first() {
        Some(b'-') => (-1.0, &text[1..]),
        Some(b'+') => (1.0, &text[1..]),
        _ => (1.0, text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Value) {
        assert_eq!(plain(text.to_owned()), expected, "{text}");
    }

    #[test]
    fn scalars_are_read_as_yaml_1_1() {
        for (text, value) in [
            ("yes", true),
            ("On", true),
            ("FALSE", false),
            ("off", false),
        ] {
            check(text, Value::Bool(value));
        }
        for text in ["", "~", "null", "NULL"] {
            check(text, Value::Null);
        }
        for text in [
            "y", "n", "nULL", "hello", "/x", "1.2.3", "1e", "e1", "-", ".", "+", "0x", "_",
            "10.0.0.1",
        ] {
            check(text, Value::from(text));
        }
    }

    #[test]
    fn numbers_are_read_as_lyaml_does() {
        for (text, value) in [
            ("0", 0),
            ("-0", 0),
            ("010", 8),
            ("08", 8),
            ("1_000", 1000),
            ("+7", 7),
            ("0x1f", 31),
            ("0b101", 5),
            ("1:30", 90),
            ("10:80", 680),
            ("-1:00", -60),
            ("00", 0),
        ] {
            check(text, Value::Int(value));
        }
        for (text, value) in [
            ("3.0", 3.0),
            (".5", 0.5),
            ("1e3", 1000.0),
            ("-1.5", -1.5),
            ("1:30.5", 90.5),
            ("1.", 1.0),
        ] {
            check(text, Value::Float(value));
        }
        check(".inf", Value::Float(f64::INFINITY));
    }

    #[test]
    fn tags_decide_over_the_text() {
        assert_eq!(tagged("str", "1"), Some(Ok(Value::from("1"))));
        assert_eq!(tagged("bool", "y"), Some(Ok(Value::Bool(true))));
        assert_eq!(tagged("int", "x"), Some(Err(Mismatch)));
        assert_eq!(tagged("binary", "x"), None);
    }
}
