//! The configuration of session, after its schema has set the defaults. Times are in seconds, and 0 means no limit.

use compact_str::CompactString;
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    /// What the keys of the sessions are derived from. Default: a random text of the process.
    pub(super) secret: Option<String>,
    /// Where the data of sessions is kept. Default: in the cookie.
    pub(super) storage: Option<Storage>,
    /// The application that a session is for. One cookie holds the sessions of several. Default: `default`.
    pub(super) audience: Option<CompactString>,
    /// Time without a request after which a session ends. Default: 900.
    pub(super) idling_timeout: Option<f64>,
    /// Time after which a session must have been renewed. Default: 3600.
    pub(super) rolling_timeout: Option<f64>,
    /// Time after which a session ends, however often it was renewed. Default: 86400.
    pub(super) absolute_timeout: Option<f64>,
    /// Time for which the stored data of a renewed session is still accepted. Default: 10.
    pub(super) stale_ttl: Option<f64>,
    /// Default: `session`.
    pub(super) cookie_name: Option<CompactString>,
    /// Default: `/`.
    pub(super) cookie_path: Option<CompactString>,
    /// Default: the host of the request.
    pub(super) cookie_domain: Option<CompactString>,
    /// Default: `Strict`.
    pub(super) cookie_same_site: Option<CompactString>,
    /// Default: true.
    pub(super) cookie_http_only: Option<bool>,
    /// Default: true.
    pub(super) cookie_secure: Option<bool>,
    /// Whether a second cookie, which the browser keeps, begins a session again. Default: false.
    pub(super) remember: Option<bool>,
    /// Default: `remember`.
    pub(super) remember_cookie_name: Option<CompactString>,
    /// Default: 604800.
    pub(super) remember_rolling_timeout: Option<f64>,
    /// Default: 2592000.
    pub(super) remember_absolute_timeout: Option<f64>,
    /// The properties of a session that the client gets as headers. Default: none.
    pub(super) response_headers: Option<Vec<Property>>,
    /// The properties of a session that the upstream gets as headers. Default: none.
    pub(super) request_headers: Option<Vec<Property>>,
    /// Whether the body of a request may ask for the end of the session. Default: false.
    pub(super) read_body_for_logout: Option<bool>,
    /// The methods with which a request may ask for the end of the session. Default: POST and DELETE.
    pub(super) logout_methods: Option<Vec<CompactString>>,
    /// Query argument that ends the session. Default: `session_logout`.
    pub(super) logout_query_arg: Option<CompactString>,
    /// Field of the body that ends the session. Default: `session_logout`.
    pub(super) logout_post_arg: Option<CompactString>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Storage {
    Cookie,
    Kong,
}

/// A property of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Property {
    Id,
    Audience,
    Subject,
    Timeout,
    IdlingTimeout,
    RollingTimeout,
    AbsoluteTimeout,
}

impl Property {
    pub(super) fn header(self) -> &'static str {
        match self {
            Self::Id => "Session-Id",
            Self::Audience => "Session-Audience",
            Self::Subject => "Session-Subject",
            Self::Timeout => "Session-Timeout",
            Self::IdlingTimeout => "Session-Idling-Timeout",
            Self::RollingTimeout => "Session-Rolling-Timeout",
            Self::AbsoluteTimeout => "Session-Absolute-Timeout",
        }
    }
}
