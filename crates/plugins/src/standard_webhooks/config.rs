//! The configuration of standard-webhooks, after its schema has set the defaults.

use serde::Deserialize;
use std::fmt;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    /// The key of the signatures. It is used as it is, without a prefix and without base64.
    pub(super) secret_v1: String,
    /// Maximum age of a message in seconds. Default: 300.
    pub(super) tolerance_second: i64,
}

/// Leaves out the secret, so that it gets into no log.
impl fmt::Debug for Config {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Config")
            .field("tolerance_second", &self.tolerance_second)
            .finish_non_exhaustive()
    }
}
