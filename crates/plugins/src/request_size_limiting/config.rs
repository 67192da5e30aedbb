//! The configuration of request-size-limiting, after its schema has set the defaults.

use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Config {
    /// Maximum size of a body, in `size_unit`. Default: 128.
    pub(super) allowed_payload_size: Option<i64>,
    /// Default: megabytes.
    pub(super) size_unit: Unit,
    /// Whether requests must say how long they are. Default: false.
    pub(super) require_content_length: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Unit {
    Megabytes,
    Kilobytes,
    Bytes,
}

impl Config {
    /// Returns the limit in bytes. A negative one admits no body that has a length.
    pub(super) fn bytes(&self) -> i64 {
        let factor = match self.size_unit {
            Unit::Megabytes => 1 << 20,
            Unit::Kilobytes => 1 << 10,
            Unit::Bytes => 1,
        };
        self.allowed_payload_size
            .unwrap_or(128)
            .saturating_mul(factor)
    }
}
