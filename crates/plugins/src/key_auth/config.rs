//! The configuration of key-auth, after its schema has set the defaults.

use compact_str::CompactString;
use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    /// Names of headers, query arguments and body fields that may have the key, in order. Default: `apikey`.
    pub(super) key_names: Vec<CompactString>,
    /// Whether to search headers. Default: true.
    pub(super) key_in_header: bool,
    /// Whether to search the query. Default: true.
    pub(super) key_in_query: bool,
    /// Whether to search form, JSON and multipart bodies. Default: false.
    pub(super) key_in_body: bool,
    /// Whether to remove the key from the request for the upstream. Default: false.
    pub(super) hide_credentials: bool,
    /// Id or username of the consumer for requests without a valid key. Default: such requests are refused.
    pub(super) anonymous: Option<CompactString>,
    /// Whether OPTIONS requests need a key too. Default: true.
    pub(super) run_on_preflight: bool,
    /// Realm in the WWW-Authenticate header. Default: none.
    pub(super) realm: Option<CompactString>,
}
