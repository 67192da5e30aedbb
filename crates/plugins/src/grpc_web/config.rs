//! The configuration of grpc-web, after its schema has set the defaults.

use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Config {
    /// Path of the `.proto` file that defines the service. Only requests in JSON need it.
    pub(super) proto: Option<String>,
    /// Whether the method is looked up by the path for the upstream, without the stripped prefix. Default: false.
    pub(super) pass_stripped_path: Option<bool>,
    /// Value of Access-Control-Allow-Origin. Default: `*`.
    pub(super) allow_origin_header: Option<String>,
}
