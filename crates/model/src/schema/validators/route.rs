//! Paths of routes, and the check that the two compiled flavours make of a whole route.

use super::text::percent_encoding;
use crate::schema::{Context, RouterFlavor};
use crate::uri::{Slashes, normalize};
use crate::value::Value;

/// A literal path must be in normal form, a regular expression (`~/…`) must compile.
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
    fancy_regex::Regex::new(pattern)
        .map(drop)
        .map_err(|error| format!("invalid regex: '{pattern}' (PCRE returned: {error})"))
}

/// Whether a pattern is valid in every dialect, which parsing it shows at a tenth of the cost of compiling it. Repetition
/// counts and length can make one too large, so those with either are compiled.
fn is_plainly_valid(pattern: &str) -> bool {
    const LENGTH_LIMIT: usize = 256;
    pattern.len() <= LENGTH_LIMIT
        && !pattern.contains('{')
        && regex_syntax::Parser::new().parse(pattern).is_ok()
}

const PREFIX: &str = "Router Expression failed validation: ";

/// Positions in `field_sources` of the rule.
const SNIS: usize = 2;
const PATHS: usize = 7;
const HEADERS: usize = 8;
const EXPRESSION: usize = 9;
const REGEX_PRIORITY: usize = 10;
const PRIORITY: usize = 11;
/// `snis`, `sources`, `destinations`, `methods`, `hosts`, `paths`, `headers`.
const CLASSIC: std::ops::RangeInclusive<usize> = SNIS..=HEADERS;
const CLASSIC_NAMES: &str =
    "'methods', 'hosts', 'paths', 'headers', 'snis', 'sources' or 'destinations'";

/// What would make the expression of the route fail to compile.
/// Source: kong/db/schema/entities/routes.lua (validate_route).
pub(super) fn router_expression(values: &[&Value], context: &Context) -> Result<(), String> {
    if context.flavor == RouterFlavor::Expressions {
        exclusive_fields(values)?;
    }
    if !values[EXPRESSION].is_null() {
        return Ok(());
    }
    for path in values[PATHS].as_array().unwrap_or_default() {
        if let Some(pattern) = path.as_str().and_then(|path| path.strip_prefix('~')) {
            compile(pattern)?;
        }
    }
    let headers = values[HEADERS].as_object();
    for (_, accepted) in headers.into_iter().flat_map(|headers| headers.iter()) {
        let accepted = accepted.as_array().unwrap_or_default();
        if accepted.is_empty() {
            return Err(empty_group());
        }
        let texts = accepted.iter().filter_map(Value::as_str);
        for pattern in texts.filter_map(|text| text.strip_prefix("~*")) {
            compile(&pattern.to_lowercase())?;
        }
    }
    Ok(())
}

fn compile(pattern: &str) -> Result<(), String> {
    if is_plainly_valid(pattern) {
        return Ok(());
    }
    regex::Regex::new(pattern)
        .map(drop)
        .map_err(|error| format!("{PREFIX}{error}"))
}

/// Routes are made of an expression or of the other fields.
fn exclusive_fields(values: &[&Value]) -> Result<(), String> {
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::Array(values) => values.is_empty(),
        Value::Object(object) => object.is_empty(),
        // What numbers are by default counts as not given.
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

/// A header without values becomes `()`, which is where the parser stops. Only the position of the group in the
/// expression depends on the rest of the route; it is given for the group alone.
fn empty_group() -> String {
    format!("{PREFIX} --> 1:2\n  |\n1 | ()\n  |  ^---\n  |\n  = expected term")
}
