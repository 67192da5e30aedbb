//! The configuration of request-transformer, after its schema has set the defaults.

use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Config {
    /// Method of the request for the upstream. Default: the client's.
    pub(super) http_method: Option<String>,
    /// Names to remove.
    pub(super) remove: Entries,
    /// Pairs `old:new`.
    pub(super) rename: Entries,
    /// Pairs `name:value`, for names that are present.
    pub(super) replace: Replace,
    /// Pairs `name:value`, for names that are absent.
    pub(super) add: Entries,
    /// Pairs `name:value`, for a further value of a name.
    pub(super) append: Entries,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Entries {
    pub(super) body: Vec<String>,
    pub(super) headers: Vec<String>,
    pub(super) querystring: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Replace {
    pub(super) body: Vec<String>,
    pub(super) headers: Vec<String>,
    pub(super) querystring: Vec<String>,
    /// Path of the request for the upstream. Default: the path from routing.
    pub(super) uri: Option<String>,
}
