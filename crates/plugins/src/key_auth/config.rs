//! The configuration of key-auth, as its schema completes it.

use compact_str::CompactString;
use serde::Deserialize;

#[derive(Debug, Deserialize)]
pub(super) struct Config {
    /// Names to look for, in order. Default: `apikey`.
    pub(super) key_names: Vec<CompactString>,
    /// Look in headers. Default: true.
    pub(super) key_in_header: bool,
    /// Look in the query. Default: true.
    pub(super) key_in_query: bool,
    /// Look in form, JSON and multipart bodies. Default: false.
    pub(super) key_in_body: bool,
    /// The upstream does not see the key. Default: false.
    pub(super) hide_credentials: bool,
    /// Id or username of the consumer that requests without a good key belong to. Default: they are refused.
    pub(super) anonymous: Option<CompactString>,
    /// Whether OPTIONS requests need a key. Default: true.
    pub(super) run_on_preflight: bool,
    /// Named in WWW-Authenticate. Default: none.
    pub(super) realm: Option<CompactString>,
}
