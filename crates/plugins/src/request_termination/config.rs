//! The configuration of request-termination, after its schema has set the defaults.

use compact_str::CompactString;
use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    /// Status of the response. Default: 503.
    pub(super) status_code: u16,
    /// Text of `{"message": …}`. Default: that of the status, if it has one.
    pub(super) message: Option<String>,
    /// Content type of `body`.
    pub(super) content_type: Option<String>,
    /// Body to send unchanged, instead of a message.
    pub(super) body: Option<String>,
    /// Whether to respond with the request as JSON. Default: false.
    pub(super) echo: bool,
    /// Name of a header or query argument. Only requests with it are terminated. Default: all requests.
    pub(super) trigger: Option<CompactString>,
}
