//! The configuration of acl, after its schema has set the defaults. Exactly one of the two lists is not empty.

use compact_str::CompactString;
use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    /// Groups of which the client must have at least one.
    pub(super) allow: Option<Vec<CompactString>>,
    /// Groups of which the client must have none.
    pub(super) deny: Option<Vec<CompactString>>,
    /// Whether to keep the client's groups from the upstream. Default: false.
    pub(super) hide_groups_header: bool,
    /// Whether groups that another plugin has found precede those of the consumer, even if the request has a credential.
    /// Default: false.
    pub(super) always_use_authenticated_groups: bool,
}
