//! The configuration of proxy-cache, after its schema has set the defaults.

use compact_str::CompactString;
use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Config {
    /// Statuses of responses that are stored. Default: 200, 301, 404.
    pub(super) response_code: Vec<u16>,
    /// Methods of requests whose responses are stored. Default: GET, HEAD.
    pub(super) request_method: Vec<CompactString>,
    /// Media types of responses that are stored. Parameters must be the same. Default: text/plain, application/json.
    pub(super) content_type: Vec<CompactString>,
    /// Seconds for which a stored response is sent. Default: 300. With `cache_control` the response itself decides.
    pub(super) cache_ttl: Option<u64>,
    /// The kind of storage. Only `memory` exists.
    #[expect(dead_code, reason = "it is read so that another kind is an error")]
    pub(super) strategy: Strategy,
    /// Whether Cache-Control of requests and responses counts. Default: false.
    pub(super) cache_control: bool,
    /// Whether paths that differ only in upper and lower case share responses. Default: false.
    pub(super) ignore_uri_case: Option<bool>,
    /// Seconds for which a response stays in the storage. Default: as long as it may be sent.
    pub(super) storage_ttl: Option<i64>,
    pub(super) memory: Memory,
    /// Names of the query arguments that distinguish responses. Default: all arguments.
    pub(super) vary_query_params: Option<Vec<CompactString>>,
    /// Names of the request headers that distinguish responses. Default: none.
    pub(super) vary_headers: Option<Vec<CompactString>>,
    pub(super) response_headers: ResponseHeaders,
    /// Whether RFC 9111 decides. Kong does not have this field. Default: false.
    pub(super) rfc9111: Option<bool>,
    /// Seconds for which a request waits for another one that fetches the same response. Kong does not have this field.
    /// Default: it does not wait.
    pub(super) collapse_timeout: Option<f64>,
    /// Maximum number of requests that wait for a storage at the same time. Kong does not have this field.
    /// Default: 1000.
    pub(super) collapse_max_waiting: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Strategy {
    Memory,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Memory {
    /// Name of the storage. Plugins with the same name share one. Default: `kong_db_cache`.
    pub(super) dictionary_name: CompactString,
}

/// The headers that responses get. A request with a header `Kong-Debug` gets all of them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ResponseHeaders {
    /// Default: true.
    pub(super) age: Option<bool>,
    /// Default: true.
    #[serde(rename = "X-Cache-Status")]
    pub(super) cache_status: Option<bool>,
    /// Default: true.
    #[serde(rename = "X-Cache-Key")]
    pub(super) cache_key: Option<bool>,
}
