//! The configuration of correlation-id, after its schema has set the defaults.

use compact_str::CompactString;
use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Config {
    /// Name of the header with the id. Default: `Kong-Request-ID`. Without a name, nothing is done.
    pub(super) header_name: Option<CompactString>,
    /// Default: `uuid#counter`.
    pub(super) generator: Generator,
    /// Whether the response gets the header too. Default: false.
    pub(super) echo_downstream: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(super) enum Generator {
    #[serde(rename = "uuid")]
    Uuid,
    /// The UUID of the worker, `#`, and a number that grows.
    #[serde(rename = "uuid#counter")]
    Counter,
    /// Server address and port, process, connection, request on the connection, and time.
    #[serde(rename = "tracker")]
    Tracker,
}
