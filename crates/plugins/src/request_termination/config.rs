//! The configuration of request-termination, as its schema completes it.

use compact_str::CompactString;
use serde::Deserialize;

#[derive(Debug, Deserialize)]
pub(super) struct Config {
    /// Default: 503.
    pub(super) status_code: u16,
    /// The text of `{"message": …}`. Default: that of the status, where it has one.
    pub(super) message: Option<String>,
    /// The type of `body`.
    pub(super) content_type: Option<String>,
    /// Sent as it is, instead of a message.
    pub(super) body: Option<String>,
    /// Answer with the request as JSON. Default: false.
    pub(super) echo: bool,
    /// Only requests with a header or query argument of this name. Default: all requests.
    pub(super) trigger: Option<CompactString>,
}
