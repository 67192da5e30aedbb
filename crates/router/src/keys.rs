//! What an expression demands of a request so plainly that it can be looked up. Sound for any structure: a request that
//! satisfies the expression has one of the keys found here. What cannot be looked up yields no keys, and the candidate
//! is then found by every request.

use crate::Flavor;
use crate::host::{self, Host};
use expr::{Expression, TextField, TextPredicate, TextTest, Transform};

/// A demand on the host without its port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum HostKey<'e> {
    Exact(&'e str),
    /// What it begins with, up to and with a dot.
    Prefix(&'e str),
    /// What it ends with, from a dot on.
    Suffix(&'e str),
}

/// The hosts that an expression accepts; `None` when it may accept any.
pub(crate) fn hosts(expression: &Expression, flavor: Flavor) -> Option<Vec<HostKey<'_>>> {
    alternatives(expression, &|predicate| host_key(predicate, flavor))
}

/// What the paths that an expression accepts begin with; `None` when it may accept any.
pub(crate) fn paths(expression: &Expression) -> Option<Vec<&[u8]>> {
    alternatives(expression, &path_key)
}

/// The methods that an expression accepts; `None` when it may accept any.
pub(crate) fn methods(expression: &Expression) -> Option<Vec<&str>> {
    alternatives(
        expression,
        &|predicate| match (&predicate.field, &predicate.test) {
            (TextField::Method, TextTest::Equals(method)) => Some(&**method),
            _ => None,
        },
    )
}

/// Of parts that must all be true the one with the fewest keys is enough; of alternatives each must have keys; a
/// negation has none.
fn alternatives<'e, K>(
    expression: &'e Expression,
    key: &impl Fn(&'e TextPredicate) -> Option<K>,
) -> Option<Vec<K>> {
    match expression {
        Expression::All(parts) => parts
            .iter()
            .filter_map(|part| alternatives(part, key))
            .min_by_key(Vec::len),
        Expression::Any(parts) => {
            let mut keys = Vec::new();
            for part in parts {
                keys.extend(alternatives(part, key)?);
            }
            Some(keys)
        }
        Expression::Text(predicate) if predicate.transform == Transform::None => {
            key(predicate).map(|key| vec![key])
        }
        Expression::Text(_)
        | Expression::Number(_)
        | Expression::Address(_)
        | Expression::Not(_) => None,
    }
}

/// Whether nothing is left to ask when a request has the keys of an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rest {
    /// The expression must be evaluated.
    Open,
    /// It is true. With a path key, that is also the part of the path it locates.
    Decided { by_path: bool },
}

/// What an index must be asked by so that a part of an expression needs no evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dimension {
    Host,
    Path,
    Method,
}

/// Only conjunctions of at most one part per dimension can be decided: of two parts the index knows one.
pub(crate) fn rest(expression: &Expression) -> Rest {
    let parts = match expression {
        Expression::All(parts) => parts,
        other => std::slice::from_ref(other),
    };
    let mut seen = Vec::with_capacity(parts.len());
    for part in parts {
        match dimension(part) {
            Some(dimension) if !seen.contains(&dimension) => seen.push(dimension),
            _ => return Rest::Open,
        }
    }
    Rest::Decided {
        by_path: seen.contains(&Dimension::Path),
    }
}

/// The one dimension that decides a part.
fn dimension(part: &Expression) -> Option<Dimension> {
    let alternatives = match part {
        Expression::Any(alternatives) => alternatives,
        other => std::slice::from_ref(other),
    };
    let mut decided = alternatives.iter().map(predicate_dimension);
    let first = decided.next()??;
    if !decided.all(|other| other == Some(first)) {
        return None;
    }
    // Of prefixes of several lengths the first that is true is the located one, which the index does not know.
    let lengths = alternatives.iter().filter_map(prefix_length);
    let mut lengths = lengths.collect::<Vec<_>>();
    lengths.dedup();
    (lengths.len() <= 1).then_some(first)
}

fn predicate_dimension(expression: &Expression) -> Option<Dimension> {
    let Expression::Text(predicate) = expression else {
        return None;
    };
    if predicate.transform != Transform::None {
        return None;
    }
    match (&predicate.field, &predicate.test) {
        (TextField::Host, TextTest::Equals(_)) => Some(Dimension::Host),
        (TextField::Host, TextTest::StartsWith(start)) if start.ends_with('.') => {
            Some(Dimension::Host)
        }
        (TextField::Host, TextTest::EndsWith(end)) if end.starts_with('.') => Some(Dimension::Host),
        (TextField::Path, TextTest::StartsWith(start)) if !start.is_empty() => {
            Some(Dimension::Path)
        }
        (TextField::Method, TextTest::Equals(_)) => Some(Dimension::Method),
        _ => None,
    }
}

fn prefix_length(expression: &Expression) -> Option<usize> {
    match expression {
        Expression::Text(predicate) => match &predicate.test {
            TextTest::StartsWith(start) if predicate.field == TextField::Path => Some(start.len()),
            _ => None,
        },
        _ => None,
    }
}

fn host_key(predicate: &TextPredicate, flavor: Flavor) -> Option<HostKey<'_>> {
    match (&predicate.field, &predicate.test) {
        (TextField::SentHost, TextTest::Equals(sent)) => {
            let name = match flavor {
                Flavor::Traditional => Host::parse(sent.as_bytes()).name,
                Flavor::TraditionalCompatible | Flavor::Expressions => {
                    host::split(sent.as_bytes()).0
                }
            };
            std::str::from_utf8(name).ok().map(HostKey::Exact)
        }
        (TextField::Host, TextTest::Equals(host)) => Some(HostKey::Exact(host)),
        (TextField::Host | TextField::WildcardHost, TextTest::StartsWith(start)) => {
            start.ends_with('.').then_some(HostKey::Prefix(start))
        }
        (TextField::Host | TextField::WildcardHost, TextTest::EndsWith(end)) => {
            end.starts_with('.').then_some(HostKey::Suffix(end))
        }
        _ => None,
    }
}

fn path_key(predicate: &TextPredicate) -> Option<&[u8]> {
    if predicate.field != TextField::Path {
        return None;
    }
    let start = match &predicate.test {
        TextTest::Equals(text) | TextTest::StartsWith(text) => text.as_bytes(),
        TextTest::Matches(regex) => regex.prefix(),
        _ => b"",
    };
    (!start.is_empty()).then_some(start)
}
