//! The configuration of ip-restriction, after its schema has set the defaults.

use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Config {
    /// Addresses and blocks that are admitted. Default: all that are not denied.
    pub(super) allow: Option<Vec<String>>,
    /// Addresses and blocks that are refused, also if they are allowed.
    pub(super) deny: Option<Vec<String>>,
    /// Status of a refusal. Default: 403.
    pub(super) status: Option<f64>,
    /// Message of a refusal. Default: one that names the address.
    pub(super) message: Option<String>,
}
