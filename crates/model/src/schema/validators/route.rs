//! Validates paths of routes. Under `traditional_compatible` and `expressions`, which compile routes to expressions, it
//! validates whole routes too.

use super::text::percent_encoding;
use crate::schema::{Context, RouterFlavor};
use crate::uri::{Slashes, normalize};
use crate::value::Value;
use expr::{Dialect, Regex, RegexError, Subsystem};
use std::sync::LazyLock;

/// Validates a path: a literal path must be in normal form, a regular expression (`~/…`) must compile.
/// Source: kong/db/schema/typedefs.lua (validate_path_with_regexes).
pub(super) fn router_path(text: &str) -> Result<(), String> {
    let Some(pattern) = text.strip_prefix('~') else {
        percent_encoding(text)?;
        let normal = normalize(text.as_bytes(), Slashes::Merge);
        if *normal == *text.as_bytes() {
            return Ok(());
        }
        return Err(format!(
            "non-normalized path, consider use '{}' instead",
            String::from_utf8_lossy(&normal)
        ));
    };
    if is_plainly_valid(pattern) {
        return Ok(());
    }
    expr::check_pcre(pattern)
        .map_err(|error| format!("invalid regex: '{pattern}' (PCRE returned: {error})"))
}

/// Whether a pattern is certainly valid in every dialect. This only parses the pattern, which costs a tenth of
/// compiling it. It returns `false` for long patterns and for repetition counts, because these may exceed the size
/// limit.
fn is_plainly_valid(pattern: &str) -> bool {
    const LENGTH_LIMIT: usize = 256;
    pattern.len() <= LENGTH_LIMIT
        && !pattern.contains('{')
        && regex_syntax::Parser::new().parse(pattern).is_ok()
}

const PREFIX: &str = "Router Expression failed validation: ";

/// Positions of the fields in the rule's `field_sources`.
const PROTOCOLS: usize = 1;
const SNIS: usize = 2;
const SOURCES: usize = 3;
const DESTINATIONS: usize = 4;
const PATHS: usize = 7;
const HEADERS: usize = 8;
const EXPRESSION: usize = 9;
const REGEX_PRIORITY: usize = 10;
const PRIORITY: usize = 11;
/// `snis`, `sources`, `destinations`, `methods`, `hosts`, `paths`, `headers`.
const CLASSIC: std::ops::RangeInclusive<usize> = SNIS..=HEADERS;
const CLASSIC_NAMES: &str =
    "'methods', 'hosts', 'paths', 'headers', 'snis', 'sources' or 'destinations'";

/// Checks the expression of a route: its own, or the one that its other fields are compiled to.
/// Source: kong/db/schema/entities/routes.lua (validate_route).
pub(super) fn router_expression(values: &[&Value], context: &Context) -> Result<(), String> {
    if context.flavor == RouterFlavor::Expressions {
        exclusive_fields(values)?;
    }
    let checked = match values[EXPRESSION].as_str() {
        Some(text) => expression(text, subsystem(values[PROTOCOLS])),
        None => classic(values),
    };
    checked.map_err(|problem| format!("{PREFIX}{problem}"))
}

/// The subsystem of a route. It is that of the first protocol, because a route cannot mix protocols of both.
fn subsystem(protocols: &Value) -> Subsystem {
    let first = protocols.as_array().and_then(<[Value]>::first);
    match first.and_then(Value::as_str) {
        Some("tcp" | "tls" | "tls_passthrough" | "udp") => Subsystem::Stream,
        _ => Subsystem::Http,
    }
}

fn expression(text: &str, subsystem: Subsystem) -> Result<(), String> {
    let present = expr::modernized(text);
    let text = present.as_deref().unwrap_or(text);
    expr::read(text, subsystem, &mut regex)
        .map(drop)
        .map_err(|error| error.to_string())
}

/// Checks the classic fields whose compiled expression could be invalid.
fn classic(values: &[&Value]) -> Result<(), String> {
    for at in [SOURCES, DESTINATIONS] {
        let entries = values[at].as_array().unwrap_or_default().iter();
        for ip in entries.filter_map(|entry| entry.as_object()?.str("ip")) {
            block_of_addresses(ip)?;
        }
    }
    for path in values[PATHS].as_array().unwrap_or_default() {
        if let Some(pattern) = path.as_str().and_then(|path| path.strip_prefix('~')) {
            compiles(pattern)?;
        }
    }
    let headers = values[HEADERS].as_object();
    for (_, accepted) in headers.into_iter().flat_map(|headers| headers.iter()) {
        let accepted = accepted.as_array().unwrap_or_default();
        if accepted.is_empty() {
            return Err(empty_group());
        }
        // Header values are matched in lower case, so the router compiles the pattern in ASCII lower case.
        let texts = accepted.iter().filter_map(Value::as_str);
        for pattern in texts.filter_map(|text| text.strip_prefix("~*")) {
            compiles(&pattern.to_ascii_lowercase())?;
        }
    }
    Ok(())
}

/// Checks an IPv6 block with the expression parser, which refuses host bits. IPv4 blocks are not checked, because Kong
/// clears their host bits in the expression.
fn block_of_addresses(ip: &str) -> Result<(), String> {
    if !(ip.contains(':') && ip.contains('/')) {
        return Ok(());
    }
    let predicate = format!("net.src.ip in {ip}");
    expr::parse(&predicate)
        .map(drop)
        .map_err(|error| error.to_string())
}

fn compiles(pattern: &str) -> Result<(), String> {
    regex(pattern).map(drop).map_err(|error| error.to_string())
}

/// The regex that stands in for every plainly valid pattern. The checked expression is never run, so the pattern need
/// not be compiled.
static VALID: LazyLock<Result<Regex, RegexError>> = LazyLock::new(|| Regex::new("", Dialect::Rust));

fn regex(pattern: &str) -> Result<Regex, RegexError> {
    match &*VALID {
        Ok(valid) if is_plainly_valid(pattern) => Ok(valid.clone()),
        _ => Regex::new(pattern, Dialect::Rust),
    }
}

/// Refuses an expression together with classic fields or `regex_priority`, and `priority` together with classic fields.
fn exclusive_fields(values: &[&Value]) -> Result<(), String> {
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::Array(values) => values.is_empty(),
        Value::Object(object) => object.is_empty(),
        // The default value of a number counts as not given.
        value => value.as_int() == Some(0),
    };
    let has_classic = values[CLASSIC].iter().any(|value| !is_empty(value));
    let clash = if !values[EXPRESSION].is_null() {
        if has_classic {
            format!("'expression' with {CLASSIC_NAMES}")
        } else if !is_empty(values[REGEX_PRIORITY]) {
            "'regex_priority' with 'expression'".to_owned()
        } else {
            return Ok(());
        }
    } else if has_classic && !is_empty(values[PRIORITY]) {
        format!("'priority' with {CLASSIC_NAMES}")
    } else {
        return Ok(());
    };
    Err(format!("{PREFIX}cannot set {clash} simultaneously"))
}

/// The error that Kong's parser returns for a header without values, which becomes `()` in the expression. The position
/// in the text is the position in `()` alone, because the position in the whole expression depends on the other fields.
fn empty_group() -> String {
    " --> 1:2\n  |\n1 | ()\n  |  ^---\n  |\n  = expected term".to_owned()
}

#[cfg(test)]
mod tests {
    use super::{HEADERS, classic, router_path};
    use crate::value::Value;

    #[test]
    fn a_regex_that_doubles_itself_is_refused() {
        let calls = (1..22).map(|group| format!(r"(\g<{group}>\g<{group}>)"));
        let path = format!(r"~/(a\1?){}", calls.collect::<String>());
        let problem = router_path(&path).unwrap_err();
        assert!(problem.ends_with("written out)"), "{problem}");
    }

    #[test]
    fn regexes_of_bytes_and_of_characters_are_taken() {
        for path in [
            r"~/a(?=b)\w{500}$",
            "~/[é]+$",
            r"~/\p{L}+(?!x)",
            r"~/\((?:[^()]|(?R))*\)",
        ] {
            assert_eq!(router_path(path), Ok(()), "{path}");
        }
    }

    #[test]
    fn header_regexes_are_checked_in_the_lower_case_that_the_router_compiles() {
        // Only ASCII letters change. In the lower case of Unicode the second range would not be reversed.
        for (pattern, is_valid) in [("~*[A-Z]", true), ("~*[à-Ö]", false)] {
            let mut fields = vec![&Value::Null; HEADERS + 1];
            let headers = serde_json::from_value(serde_json::json!({"x-a": [pattern]}));
            let headers: Value = headers.expect("headers");
            fields[HEADERS] = &headers;
            fields.resize(32, &Value::Null);
            assert_eq!(classic(&fields).is_ok(), is_valid, "{pattern}");
        }
    }
}
