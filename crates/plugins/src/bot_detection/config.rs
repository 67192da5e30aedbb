//! The configuration of bot-detection, after its schema has set the defaults.

use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Config {
    /// Regexes for user agents that pass, whatever the other lists say.
    pub(super) allow: Option<Vec<String>>,
    /// Regexes for user agents that are refused.
    pub(super) deny: Option<Vec<String>>,
}
