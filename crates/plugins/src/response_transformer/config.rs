//! The configuration of response-transformer, after its schema has set the defaults.

use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Config {
    /// Names to remove.
    pub(super) remove: Names,
    /// Pairs `old:new`.
    pub(super) rename: Names,
    /// Pairs `name:value`, for names that are present.
    pub(super) replace: Values,
    /// Pairs `name:value`, for names that are absent.
    pub(super) add: Values,
    /// Pairs `name:value`, for a further value of a name.
    pub(super) append: Values,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Names {
    pub(super) headers: Vec<String>,
    pub(super) json: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Values {
    pub(super) headers: Vec<String>,
    pub(super) json: Vec<String>,
    /// Types of the values in `json`, by position. Default: string.
    pub(super) json_types: Vec<Type>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Type {
    Boolean,
    Number,
    String,
}

/// Splits `name:value` at its first colons. Returns `None` if there is no name.
pub(super) fn split(entry: &str) -> Option<(&str, &str)> {
    let (name, value) = entry.split_once(':').unwrap_or((entry, ""));
    (!name.is_empty()).then(|| (name, value.trim_start_matches(':')))
}
