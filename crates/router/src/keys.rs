//! What an expression demands of a request so plainly that it can be looked up. Sound for any structure: a request that
//! satisfies the expression has one of the keys found here. What cannot be looked up yields no keys, and the candidate
//! is then found by every request.

use crate::Flavor;
use crate::host::{self, Host};
use expr::{Expression, TextField, TextPredicate, TextTest, Transform};

/// A demand on the host without its port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum HostKey<'e> {
    Exact(&'e [u8]),
    /// What it begins with, up to and with a dot.
    Prefix(&'e [u8]),
    /// What it ends with, from a dot on.
    Suffix(&'e [u8]),
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
        Expression::Text(_) | Expression::Number(_) | Expression::Not(_) => None,
    }
}

fn host_key(predicate: &TextPredicate, flavor: Flavor) -> Option<HostKey<'_>> {
    match (&predicate.field, &predicate.test) {
        (TextField::SentHost, TextTest::Equals(sent)) => {
            let sent = sent.as_bytes();
            Some(HostKey::Exact(match flavor {
                Flavor::Traditional => Host::parse(sent).name,
                Flavor::TraditionalCompatible => host::split(sent).0,
            }))
        }
        (TextField::Host, TextTest::Equals(host)) => Some(HostKey::Exact(host.as_bytes())),
        (TextField::Host | TextField::WildcardHost, TextTest::StartsWith(start)) => start
            .ends_with('.')
            .then_some(HostKey::Prefix(start.as_bytes())),
        (TextField::Host | TextField::WildcardHost, TextTest::EndsWith(end)) => end
            .starts_with('.')
            .then_some(HostKey::Suffix(end.as_bytes())),
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
