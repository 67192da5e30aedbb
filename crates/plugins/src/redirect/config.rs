//! The configuration of redirect, after its schema has set the defaults.

use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Config {
    /// Status of the response. Default: 301.
    pub(super) status_code: u16,
    /// The URL that clients are led to.
    pub(super) location: String,
    /// Whether path and query of the request take the place of those of `location`. Default: false.
    pub(super) keep_incoming_path: Option<bool>,
}
