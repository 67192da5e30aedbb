//! Plugins' changes to the request for the upstream.

use super::HeaderEdits;
use super::value::escape;
use crate::request::Scheme;
use bytes::Bytes;
use compact_str::CompactString;
use std::time::Duration;

/// Plugins' changes to the request for the upstream. Reused for all requests of a connection.
#[derive(Debug, Clone, Default)]
pub struct UpstreamEdits {
    pub headers: HeaderEdits,
    /// Method that replaces the client's.
    pub method: Option<CompactString>,
    /// Query string that replaces the client's, without `?`. If it is empty, the request has no query.
    pub query: Option<Vec<u8>>,
    /// Path that replaces the one from routing.
    pub path: Option<String>,
    /// Body that replaces the client's. It is sent with its length, whatever framing the client used.
    pub body: Option<Bytes>,
    /// Target, time limits and retries that replace the service's. Boxed because they are rare.
    pub target: Option<Box<TargetEdits>>,
    /// Whether the whole response is read into memory before the filter phases (`enable_buffering`).
    pub buffer_response: bool,
}

/// Changes to where a request goes. A field that is `None` leaves the service's value.
#[derive(Debug, Clone, Default)]
pub struct TargetEdits {
    /// Host and port of the upstream server (`kong.service.set_target`).
    pub address: Option<(CompactString, u16)>,
    /// Name of an upstream entity whose targets are used (`kong.service.set_upstream`).
    pub upstream: Option<CompactString>,
    /// Whether the connection to the upstream uses TLS (`kong.service.request.set_scheme`).
    pub scheme: Option<Scheme>,
    /// Whether the certificate of the upstream is verified (`kong.service.set_tls_verify`).
    pub tls_verify: Option<bool>,
    /// Maximum chain depth of that certificate (`kong.service.set_tls_verify_depth`).
    pub tls_verify_depth: Option<u8>,
    pub retries: Option<u16>,
    pub connect_timeout: Option<Duration>,
    pub write_timeout: Option<Duration>,
    pub read_timeout: Option<Duration>,
}

impl TargetEdits {
    /// Leads the request to this server. `Host` is then `host` without the port, also on routes that preserve it.
    /// A service whose own host is an address cannot be led to a name: such a request gets status 500, as in Kong.
    pub fn set_address(&mut self, host: impl Into<CompactString>, port: u16) {
        self.address = Some((host.into(), port));
        self.upstream = None;
    }

    /// Leads the request to the targets of an upstream entity. The plugin must know that it exists
    /// ([`crate::Configured::has_upstream`]), and the service's own host must be a name. Otherwise the request gets
    /// status 500.
    pub fn set_upstream(&mut self, name: impl Into<CompactString>) {
        self.upstream = Some(name.into());
        self.address = None;
    }
}

impl UpstreamEdits {
    /// Percent-encodes what would end the request line: spaces and control characters in path, query and method come
    /// from a client's data that a plugin has inserted.
    pub fn escape_request_line(&mut self) {
        if let Some(path) = &mut self.path
            && let Some(escaped) = escape(path.as_bytes(), ends_request_line)
        {
            *path = String::from_utf8_lossy(&escaped).into_owned();
        }
        if let Some(query) = &mut self.query
            && let Some(escaped) = escape(query, ends_request_line)
        {
            *query = escaped;
        }
        if let Some(method) = &self.method
            && (method.is_empty()
                || !method
                    .bytes()
                    .all(|byte| byte.is_ascii_alphabetic() || byte == b'-'))
        {
            self.method = None;
        }
    }

    pub fn target_mut(&mut self) -> &mut TargetEdits {
        self.target.get_or_insert_default()
    }

    /// Removes all changes but keeps the memory of the header list.
    pub fn clear(&mut self) {
        let Self {
            headers,
            method,
            query,
            path,
            body,
            target,
            buffer_response,
        } = self;
        headers.clear();
        *method = None;
        *query = None;
        *path = None;
        *body = None;
        *target = None;
        *buffer_response = false;
    }
}

fn ends_request_line(byte: u8) -> bool {
    byte <= b' ' || byte == 0x7f
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_end_the_request_line_is_escaped() {
        let mut edits = UpstreamEdits {
            path: Some("/a b\r\nX: é\u{7f}".to_owned()),
            query: Some(b"a=%20b\t\xe4".to_vec()),
            method: Some("GET /".into()),
            ..UpstreamEdits::default()
        };
        edits.escape_request_line();
        assert_eq!(edits.path.as_deref(), Some("/a%20b%0D%0AX:%20é%7F"));
        assert_eq!(edits.query.as_deref(), Some(&b"a=%20b%09\xe4"[..]));
        assert_eq!(edits.method, None);
    }
}
