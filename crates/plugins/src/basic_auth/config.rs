//! The configuration of basic-auth, as its schema completes it.

use compact_str::CompactString;
use serde::Deserialize;

#[derive(Debug, Deserialize)]
pub(super) struct Config {
    /// The upstream does not see the credentials. Default: false.
    pub(super) hide_credentials: bool,
    /// Id or username of the consumer that requests without good credentials belong to. Default: they are refused.
    pub(super) anonymous: Option<CompactString>,
    /// Named in WWW-Authenticate. Default: `service`.
    pub(super) realm: CompactString,
}
