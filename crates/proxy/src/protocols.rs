//! The gateway's responses to requests over a protocol that their route does not serve.
//! Source: kong/runloop/handler.lua access.before.

use crate::snapshot::RouteInfo;
use model::entities::Protocol;
use plugin::{HeaderValue, Response};

/// The properties of a request that show its protocol.
#[derive(Debug, Clone, Copy)]
pub struct Spoken<'a> {
    /// Scheme of the client's connection, or the scheme that a trusted proxy in front reports.
    pub scheme: &'a [u8],
    /// Host for the URL of a redirect.
    pub host: &'a [u8],
    /// The request target as received, with its query string.
    pub target: &'a [u8],
    pub http2: bool,
    /// Whether the content type is that of gRPC.
    pub grpc_type: bool,
}

impl RouteInfo {
    /// Whether the route's protocols exclude some requests, so that [`Self::refuses`] has to be called.
    #[inline]
    pub fn is_particular(&self) -> bool {
        let serves = |protocol| self.protocols.contains(protocol);
        let is_grpc = serves(Protocol::Grpc) || serves(Protocol::Grpcs);
        is_grpc || serves(Protocol::Https) && !serves(Protocol::Http)
    }

    /// Returns the response for a request over a wrong protocol, or `None` if the route serves the request.
    pub fn refuses(&self, spoken: &Spoken<'_>) -> Option<Response> {
        let serves = |protocol| self.protocols.contains(protocol);
        let is_secure = spoken.scheme == b"https";
        if serves(Protocol::Grpc) || serves(Protocol::Grpcs) {
            return refuse_without_grpc(spoken).or_else(|| {
                let is_fine = serves(Protocol::Grpc) || is_secure;
                (!is_fine).then(grpc_without_tls)
            });
        }
        if serves(Protocol::Http) || !serves(Protocol::Https) || is_secure {
            return None;
        }
        Some(redirect_to_https(self.https_redirect_status_code, spoken))
    }
}

fn redirect_to_https(status: u16, spoken: &Spoken<'_>) -> Response {
    if status == 426 {
        return Response::error(426, "Please use HTTPS protocol")
            .with_header("Connection", "Upgrade")
            .with_header("Upgrade", "TLS/1.2, HTTP/1.1");
    }
    let location = [b"https://", spoken.host, spoken.target].concat();
    let redirect = if spoken.grpc_type && spoken.http2 {
        Response::new(status, "")
    } else {
        Response::page(status)
    };
    redirect.with_header("Location", HeaderValue::from_untrusted(&location))
}

fn refuse_without_grpc(spoken: &Spoken<'_>) -> Option<Response> {
    match (spoken.grpc_type, spoken.http2) {
        (true, true) => None,
        (true, false) => Some(
            Response::error(426, "Please use HTTP2 protocol")
                .with_header("connection", "Upgrade")
                .with_header("upgrade", "HTTP/2"),
        ),
        (false, _) => Some(Response::error(415, "Non-gRPC request matched gRPC route")),
    }
}

fn grpc_without_tls() -> Response {
    Response::new(200, "")
        .with_header("content-type", "application/grpc")
        .with_header("grpc-status", "1")
        .with_header("grpc-message", "gRPC request matched gRPCs route")
}
