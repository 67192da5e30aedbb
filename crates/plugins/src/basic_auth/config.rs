//! The configuration of basic-auth, after its schema has set the defaults.

use compact_str::CompactString;
use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    /// Whether to remove the credentials from the request for the upstream. Default: false.
    pub(super) hide_credentials: bool,
    /// Id or username of the consumer for requests without valid credentials. Default: such requests are refused.
    pub(super) anonymous: Option<CompactString>,
    /// Realm in the WWW-Authenticate header. Default: `service`.
    pub(super) realm: CompactString,
}
