//! Constraints on a single field, with Kong's texts. Source: kong/db/schema/init.lua (validators, validation_errors).

use super::Context;
use super::pattern::Pattern;
use super::validators::Validator;
use crate::value::Value;
use std::fmt::Write;

/// A constraint on a value. The variants are in the order in which Kong checks them.
#[derive(Debug, Clone)]
pub(crate) enum Constraint {
    Eq(Value),
    Ne(Value),
    NotOneOf(Vec<Value>),
    OneOf(Vec<Value>),
    Gt(f64),
    Timestamp,
    Uuid,
    IsRegex,
    Between(f64, f64),
    LenEq(usize),
    LenMin(usize),
    LenMax(usize),
    StartsWith(String),
    NotMatch(Pattern),
    MatchNone(Vec<(Pattern, String)>),
    Match(Pattern),
    MatchAll(Vec<(Pattern, String)>),
    MatchAny(Vec<Pattern>, Option<String>),
    Contains(Value),
    Custom(Validator),
    ExclusiveSubsets(Vec<Vec<Value>>),
}

impl Constraint {
    /// Checks a value that is not null. The problem is a text. A validator of a record may return a tree of texts.
    #[inline]
    pub(crate) fn check(&self, value: &Value, context: &Context) -> Result<(), Value> {
        let fine = match self {
            Self::Eq(wanted) => same(value, wanted),
            Self::Ne(unwanted) => !same(value, unwanted),
            Self::NotOneOf(values) => !values.iter().any(|one| same(one, value)),
            Self::OneOf(values) => values.iter().any(|one| same(one, value)),
            Self::Gt(limit) => number(value).is_some_and(|number| number > *limit),
            Self::Timestamp => number(value).is_some_and(|number| number > 0.0),
            Self::Uuid => value.as_str().is_some_and(is_uuid),
            Self::IsRegex => value
                .as_str()
                .is_some_and(|text| expr::check_pcre(text).is_ok()),
            Self::Between(low, high) => {
                number(value).is_some_and(|number| (*low..=*high).contains(&number))
            }
            Self::LenEq(wanted) => length(value) == *wanted,
            Self::LenMin(least) => length(value) >= *least,
            Self::LenMax(most) => length(value) <= *most,
            Self::StartsWith(prefix) => text(value).starts_with(prefix.as_str()),
            Self::NotMatch(pattern) => !pattern.is_match(text(value)),
            Self::Match(pattern) => pattern.is_match(text(value)),
            Self::MatchAny(patterns, _) => patterns.iter().any(|one| one.is_match(text(value))),
            Self::Contains(wanted) => match value {
                Value::Array(values) => values.iter().any(|one| same(one, wanted)),
                _ => false,
            },
            Self::MatchNone(patterns) => return first_error(patterns, value, true),
            Self::MatchAll(patterns) => return first_error(patterns, value, false),
            Self::Custom(validator) => return validator.check(value, context),
            Self::ExclusiveSubsets(subsets) => return exclusive(subsets, value),
        };
        if fine {
            Ok(())
        } else {
            Err(self.problem(value))
        }
    }

    #[cold]
    fn problem(&self, value: &Value) -> Value {
        let text = match self {
            Self::Eq(wanted) => format!("value must be {}", display(wanted)),
            Self::Ne(unwanted) => format!("value must not be {}", display(unwanted)),
            Self::NotOneOf(values) => format!("must not be one of: {}", list(values)),
            Self::OneOf(values) => format!("expected one of: {}", list(values)),
            Self::Gt(limit) => format!("value must be greater than {limit}"),
            Self::Timestamp => "expected a valid timestamp".to_owned(),
            Self::Uuid => "expected a valid UUID".to_owned(),
            Self::IsRegex => format!("not a valid regex: {}", display(value)),
            Self::Between(low, high) => format!("value should be between {low} and {high}"),
            Self::LenEq(wanted) => format!("length must be {wanted}"),
            Self::LenMin(least) => format!("length must be at least {least}"),
            Self::LenMax(most) => format!("length must be at most {most}"),
            Self::StartsWith(prefix) => format!("should start with: {prefix}"),
            Self::MatchAny(_, Some(error)) => error.clone(),
            Self::Contains(wanted) => format!("expected to contain: {}", display(wanted)),
            _ => format!("invalid value: {}", display(value)),
        };
        text.into()
    }
}

/// Whether the text is a UUID of 36 characters: hexadecimal digits in upper or lower case, with dashes at four
/// positions.
pub(crate) fn is_uuid(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(index, byte)| match index {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

/// Compares values as Lua does: `1` and `1.0` are the same number.
pub(crate) fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::String(a), Value::String(b)) => a == b,
        (Value::Int(a), Value::Int(b)) => a == b,
        _ => match (number(a), number(b)) {
            (Some(a), Some(b)) => a == b,
            _ => a == b,
        },
    }
}

pub(crate) fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Int(value) => Some(*value as f64),
        Value::Float(value) => Some(*value),
        _ => None,
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn length(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(values) => values.len(),
        Value::Object(object) => object.len(),
        _ => 0,
    }
}

fn first_error(patterns: &[(Pattern, String)], value: &Value, refused: bool) -> Result<(), Value> {
    let text = text(value);
    match patterns
        .iter()
        .find(|(pattern, _)| pattern.is_match(text) == refused)
    {
        Some((_, error)) => Err(error.as_str().into()),
        None => Ok(()),
    }
}

/// Refuses a set that contains values of more than one subset.
fn exclusive(subsets: &[Vec<Value>], value: &Value) -> Result<(), Value> {
    let Some(values) = value.as_array() else {
        return Ok(());
    };
    let mut used = subsets
        .iter()
        .filter(|subset| values.iter().any(|value| subset.contains(value)));
    let (Some(first), Some(second)) = (used.next(), used.next()) else {
        return Ok(());
    };
    let mut text = String::from("these sets are mutually exclusive: ");
    let all: Vec<_> = [first, second].into_iter().chain(used).collect();
    for (index, subset) in all.into_iter().enumerate() {
        let separator = if index == 0 { "" } else { ", " };
        let names: Vec<_> = subset
            .iter()
            .map(|value| format!("'{}'", display(value)))
            .collect();
        let _ = write!(text, "{separator}({})", names.join(", "));
    }
    Err(text.into())
}

fn list(values: &[Value]) -> String {
    let texts: Vec<_> = values.iter().map(display).collect();
    texts.join(", ")
}

/// Prints a value as Lua's `tostring` does.
pub(crate) fn display(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::Float(value) => value.to_string(),
        Value::String(text) => text.to_string(),
        Value::Array(_) | Value::Object(_) => crate::error::brace_notation(value),
    }
}
