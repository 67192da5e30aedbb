//! The configuration of cors, after its schema has set the defaults.

use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Config {
    /// Origins that may read responses: `*`, origins, hosts, or regexes. Default: every origin.
    pub(super) origins: Option<Vec<String>>,
    /// Headers that requests may have. Default: those that the preflight request asks for.
    pub(super) headers: Option<Vec<String>>,
    /// Headers of responses that scripts may read.
    pub(super) exposed_headers: Option<Vec<String>>,
    /// Methods that requests may have. Default: all nine.
    pub(super) methods: Option<Vec<String>>,
    /// For how many seconds browsers may keep the response to a preflight request.
    pub(super) max_age: Option<f64>,
    /// Whether requests may have cookies and other credentials. Default: false.
    pub(super) credentials: bool,
    /// Whether public sites may send requests to a private network. Default: false.
    pub(super) private_network: bool,
    /// Whether preflight requests go to the upstream. Default: false.
    pub(super) preflight_continue: bool,
}
