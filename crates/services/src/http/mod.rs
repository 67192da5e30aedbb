//! An HTTP client of the gateway's own, for plugins that call other services.
//!
//! The contract:
//!
//! - Requests run in the background, so a request can be sent from any thread, and its connection outlives the worker that
//!   asked for it. Dropping the future of [`Client::send`] cancels the request.
//! - HTTP/1.1, or HTTP/2 for servers that are known to speak it, such as those of gRPC ([`Options::http2`]). Redirects are
//!   responses like all others and are never followed.
//! - Connections are reused for requests with equal scheme, host, port, protocol, TLS settings, connect timeout and
//!   keepalive time.
//!   A request that meets a pooled connection which the server has closed meanwhile is sent on another one, if nothing of
//!   it was sent yet.
//! - [`Options::timeout`] limits the whole request, from the resolution of the name to the last byte of the body.
//! - At most `MAX_INTERIM` interim responses (1xx) come before a response, or 128 over HTTP/2, where the limit is that of
//!   our copy of h2 (`vendor/README.md`). A server that sends more would keep the background busy until the time limit.
//! - A connection is closed when its server has sent 8 MiB without payload, such as the zeros of an endless size of a chunk
//!   or frames of HTTP/2 without data. The head of a response and the bytes of its body fill this allowance again.
//! - A response body is read up to [`Options::max_body`] bytes. The rest is discarded with its connection.
//! - Names are resolved by the gateway's resolver. Certificates are verified with the authorities of its settings.
//! - Neither errors nor logs contain the user information of a URL, headers or bodies.

mod body;
pub(crate) mod connect;
mod meter;
mod pools;
#[cfg(test)]
mod tests;
mod url;

pub use body::Body;
pub use connect::ConnectError;
pub use url::{Url, UrlError, without_userinfo};

use crate::background::Background;
use ::http::header::{CONTENT_LENGTH, HeaderMap, TRANSFER_ENCODING};
use ::http::{Method, StatusCode};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper_util::client::legacy;
use meter::Allowance;
use net::dns::Resolver;
use net::tls::{CertificateError, ClientTls, Trust};
use pools::{PoolKey, Pools};
use std::error::Error as _;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, oneshot};
use tokio::time::timeout;

/// Number of payload bytes for which the head of a response counts.
const HEAD_WORTH: usize = 4 * 1024;

/// Maximum number of interim responses (1xx) before a response.
const MAX_INTERIM: usize = 32;

/// Sends requests. Clones share their connections.
#[derive(Clone)]
pub struct Client(Arc<Inner>);

struct Inner {
    pools: Pools,
    background: Background,
}

/// A request. The client sets Content-Length, and Host if it is missing.
#[derive(Debug, Clone)]
pub struct Request {
    pub method: Method,
    pub url: Url,
    pub headers: HeaderMap,
    pub body: Body,
    pub options: Options,
}

/// How a request is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Maximum time of the whole request. Default: 10 seconds.
    pub timeout: Duration,
    /// Maximum time until a new connection can be used, name resolution and TLS handshake included. Default: 10 seconds.
    pub connect_timeout: Duration,
    /// Whether the server's certificate is verified. Default: yes.
    pub verify: bool,
    /// The name that TLS asks for and verifies, instead of the URL's host.
    pub server_name: Option<Box<str>>,
    /// Maximum time that a connection waits for the next request; zero closes it after the response. Default: 60 seconds.
    pub keepalive: Duration,
    /// Maximum size of a response body. Default: 1 MiB.
    pub max_body: usize,
    /// Whether the request is sent by HTTP/2, also without TLS. Default: no.
    pub http2: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(10),
            verify: true,
            server_name: None,
            keepalive: Duration::from_secs(60),
            max_body: 1024 * 1024,
            http2: false,
        }
    }
}

#[derive(Debug, Clone)]
pub struct Response {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// Whether the body is longer than `max_body`, and `body` only its beginning.
    pub truncated: bool,
    /// The headers after the body. They are empty if the body is truncated.
    pub trailers: HeaderMap,
}

/// Why a request has no response.
#[derive(Debug, thiserror::Error)]
#[error("{place}: {kind}")]
pub struct HttpError {
    /// The host and the port that the request was for.
    place: Box<str>,
    #[source]
    pub kind: HttpErrorKind,
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HttpErrorKind {
    /// The name cannot be resolved, or no connection can be opened in time.
    #[error(transparent)]
    Connect(ConnectError),
    #[error("no response within {0:?}")]
    Timeout(Duration),
    /// The server closed the connection before the end of its response.
    #[error("the server closed the connection early")]
    Closed,
    /// The response is not valid HTTP.
    #[error("the response is malformed: {0}")]
    Malformed(Box<str>),
    /// Another failure of the connection.
    #[error("the connection failed: {0}")]
    Failed(Box<str>),
    #[error("the gateway is shutting down")]
    Stopped,
}

impl Request {
    /// Makes a request without headers and body, with the default options.
    pub fn new(method: Method, url: Url) -> Self {
        Self {
            method,
            url,
            headers: HeaderMap::new(),
            body: Body::default(),
            options: Options::default(),
        }
    }
}

impl Client {
    /// Makes a client that trusts the certificates of these authorities. Fails if they cannot be read.
    pub fn new(
        trust: Trust,
        resolver: Resolver,
        background: Background,
    ) -> Result<Self, CertificateError> {
        let verifying = ClientTls::new(trust, None)?;
        let trusting = ClientTls::new(Trust::Anyone, None)?;
        let pools = Pools::new(resolver, verifying, trusting, background.clone());
        Ok(Self(Arc::new(Inner { pools, background })))
    }

    /// Sends a request and reads the response.
    pub async fn send(&self, request: Request) -> Result<Response, HttpError> {
        let place = format!("{}:{}", request.url.host(), request.url.port()).into();
        let sent = self.run(request).await;
        sent.map_err(|kind| HttpError { place, kind })
    }

    async fn run(&self, request: Request) -> Result<Response, HttpErrorKind> {
        let (mut report, response) = oneshot::channel();
        let inner = self.0.clone();
        self.0.background.spawn(async move {
            let limit = request.options.timeout;
            let exchange = timeout(limit, exchange(&inner.pools, request));
            tokio::select! {
                outcome = exchange => {
                    let outcome = outcome.unwrap_or(Err(HttpErrorKind::Timeout(limit)));
                    let _ = report.send(outcome);
                }
                // The caller no longer waits.
                () = report.closed() => {}
            }
        });
        response.await.unwrap_or(Err(HttpErrorKind::Stopped))
    }
}

async fn exchange(pools: &Pools, request: Request) -> Result<Response, HttpErrorKind> {
    let Request {
        method,
        url,
        headers,
        body,
        options,
    } = request;
    let pool = pools.of(PoolKey::new(&url, &options));
    let mut message = ::http::Request::new(body);
    *message.method_mut() = method;
    *message.uri_mut() = url.uri();
    *message.headers_mut() = headers;
    // The length is that of the body, whatever the caller says.
    message.headers_mut().remove(CONTENT_LENGTH);
    message.headers_mut().remove(TRANSFER_ENCODING);
    let (excess, interim) = count_interim(&mut message);
    let response = tokio::select! {
        response = pool.request(message) => response.map_err(failure)?,
        // This drops the request, which closes the connection.
        () = excess.notified() => {
            let reason = format!("more than {MAX_INTERIM} interim responses");
            return Err(HttpErrorKind::Malformed(reason.into()));
        }
    };
    let (mut parts, body) = response.into_parts();
    let allowance: Option<Allowance> = parts.extensions.remove();
    if let Some(allowance) = &allowance {
        allowance.refill(HEAD_WORTH * (1 + interim.load(Ordering::Relaxed)));
    }
    let mut response = Response {
        status: parts.status,
        headers: parts.headers,
        body: Bytes::new(),
        truncated: false,
        trailers: HeaderMap::new(),
    };
    response.read(body, options.max_body, allowance).await?;
    Ok(response)
}

/// Counts the interim responses to this message. Returns what is notified when there are more than [`MAX_INTERIM`], and
/// their number.
fn count_interim(message: &mut ::http::Request<Body>) -> (Arc<Notify>, Arc<AtomicUsize>) {
    let (excess, count) = (Arc::new(Notify::new()), Arc::new(AtomicUsize::new(0)));
    let (notify, counted) = (Arc::clone(&excess), Arc::clone(&count));
    hyper::ext::on_informational(message, move |_| {
        if counted.fetch_add(1, Ordering::Relaxed) == MAX_INTERIM {
            notify.notify_one();
        }
    });
    (excess, count)
}

impl Response {
    /// Reads the body up to a maximum size, and the trailers after it. Its bytes fill the allowance of the connection.
    async fn read(
        &mut self,
        mut body: Incoming,
        max: usize,
        allowance: Option<Allowance>,
    ) -> Result<(), HttpErrorKind> {
        let mut all = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| of_hyper(&error))?;
            let data = match frame.into_data() {
                Ok(data) => data,
                Err(frame) => {
                    self.trailers = frame.into_trailers().unwrap_or_default();
                    continue;
                }
            };
            if let Some(allowance) = &allowance {
                allowance.refill(data.len());
            }
            let room = max - all.len();
            // The pieces are copied, because each could keep a much larger buffer in memory.
            all.extend_from_slice(&data[..data.len().min(room)]);
            if data.len() > room {
                self.truncated = true;
                break;
            }
        }
        self.body = all.freeze();
        Ok(())
    }
}

fn failure(error: legacy::Error) -> HttpErrorKind {
    let mut cause = error.source();
    while let Some(current) = cause {
        if let Some(connect) = current.downcast_ref::<ConnectError>() {
            return HttpErrorKind::Connect(connect.clone());
        }
        if let Some(hyper) = current.downcast_ref::<hyper::Error>() {
            return of_hyper(hyper);
        }
        cause = current.source();
    }
    HttpErrorKind::Failed(error.to_string().into())
}

fn of_hyper(error: &hyper::Error) -> HttpErrorKind {
    let is_reset = |error: &hyper::Error| {
        let io = error.source().and_then(|cause| cause.downcast_ref());
        io.is_some_and(|io: &std::io::Error| {
            use std::io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
            matches!(io.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
        })
    };
    if error.is_incomplete_message() || error.is_canceled() || is_reset(error) {
        HttpErrorKind::Closed
    } else if error.is_parse() {
        HttpErrorKind::Malformed(error.to_string().into())
    } else {
        let cause = error.source().map(ToString::to_string);
        HttpErrorKind::Failed(cause.unwrap_or_else(|| error.to_string()).into())
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pools = self.0.pools.len();
        formatter
            .debug_struct("Client")
            .field("pools", &pools)
            .finish()
    }
}
