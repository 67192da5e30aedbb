//! Accepts connections for the Admin API and the Status API, on the runtime that calls [`serve`]. The program uses a
//! separate runtime, so that admin requests take no time from a worker. hyper implements HTTP; the limits on clients
//! are enforced here.

use crate::pace::{Pace, Paced};
use crate::peer::{Connection, Peer, Permit, Permits, Remote};
use crate::receive;
use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header::{CONNECTION, CONTENT_TYPE};
use axum::response::IntoResponse;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use net::listen::{Keepalive, accept_loop};
use net::peek::first_byte;
use net::tls::{PLAIN_HTTP_PAGE, ServerTls, ServerTlsStream, client_subject};
use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tower::ServiceExt;

/// Maximum time that a client may take for its TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Time after a stop during which open connections may still send requests. Without it, a connection that was accepted
/// just before the stop would be reset, and its first request would be lost.
const FAREWELL: Duration = Duration::from_millis(300);

/// Pause after a failed accept on the local socket.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Minimum time between two log lines about refused connections.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Maximum concurrent requests on an HTTP/2 connection.
const MAX_STREAMS: u32 = 32;

/// A listening socket of the Admin API or the Status API.
#[derive(Debug)]
pub enum Listener {
    Plain(TcpListener),
    /// Cleartext HTTP/1 and HTTP/2; the first bytes of a connection show which one the client uses.
    PlainHttp2(TcpListener),
    /// Clients can choose HTTP/2 in the TLS handshake if `ServerTls` offers it.
    Tls(TcpListener, ServerTls),
    /// A Unix socket for programs on this machine that may open its file. They act as the operator.
    Local(UnixListener),
}

/// Limits on the resources that clients use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Maximum time for the head of a request, counted from its first byte. For the first request of a connection, it
    /// is counted from the accept or the end of the TLS handshake.
    pub head: Duration,
    /// Maximum time between two pieces of a request body.
    pub body: Duration,
    /// Maximum time between a response and the next request.
    pub idle: Duration,
    /// Maximum time without progress while a response is sent.
    pub send: Duration,
    /// Maximum concurrent TCP connections. The same number applies separately to the local socket, so that TCP clients
    /// cannot lock out the operator.
    pub connections: usize,
    /// Maximum concurrent requests, from the end of a request to the start of its response. TCP and the local socket
    /// have separate limits.
    pub requests: usize,
    /// Maximum bytes of request bodies in memory. TCP and the local socket have separate limits.
    pub body_memory: usize,
}

/// Twice the maximum size of a configuration, because one body may use at most half of the budget.
const DEFAULT_BODY_MEMORY: usize = 512 << 20;

impl Default for Limits {
    fn default() -> Self {
        Self {
            head: Duration::from_secs(60),
            body: Duration::from_secs(60),
            idle: Duration::from_secs(75),
            send: Duration::from_secs(60),
            connections: 1024,
            requests: 512,
            body_memory: DEFAULT_BODY_MEMORY,
        }
    }
}

/// Serves [`crate::router()`] or [`crate::status_router`] until `stop` resolves, then waits for the requests in
/// progress.
pub async fn serve<F>(
    listeners: Vec<Listener>,
    router: Router,
    limits: Limits,
    stop: F,
) -> io::Result<()>
where
    F: Future<Output = ()>,
{
    let announce = watch::Sender::new(false);
    let (alive, mut ended) = mpsc::channel(1);
    let server = Server {
        router,
        limits,
        remote: Permits::new(&limits),
        local: Permits::new(&limits),
        told: Arc::default(),
        stopped: announce.subscribe(),
        _alive: alive,
    };
    let mut accepting = JoinSet::new();
    for listener in listeners {
        accepting.spawn(server.clone().accept(listener));
    }
    drop(server);
    let mut stop = pin!(stop);
    loop {
        tokio::select! {
            () = &mut stop, if !*announce.borrow() => drop(announce.send_replace(true)),
            accepted = accepting.join_next() => match accepted {
                Some(accepted) => accepted.map_err(io::Error::other)?,
                None => break,
            },
        }
    }
    // Wait for the last connection: each has a clone of the server.
    ended.recv().await;
    Ok(())
}

/// The protocols that a listener accepts.
#[derive(Clone)]
enum Opening {
    Http1,
    Either,
    Tls(ServerTls),
}

/// A new connection to a TLS port: encrypted, or plain HTTP by mistake.
enum Opened {
    Tls(Box<ServerTlsStream<TcpStream>>),
    Plain(TcpStream),
}

/// The HTTP versions that a connection may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    Http1,
    Http2,
    Either,
}

impl Version {
    fn builder(self) -> auto::Builder<TokioExecutor> {
        let mut builder = auto::Builder::new(TokioExecutor::new());
        // `Paced` enforces this timeout instead.
        builder.http1().header_read_timeout(None);
        builder.http2().max_concurrent_streams(MAX_STREAMS);
        match self {
            Self::Http1 => builder.http1_only(),
            Self::Http2 => builder.http2_only(),
            Self::Either => builder,
        }
    }
}

/// State that all connections of the listeners share.
#[derive(Clone)]
struct Server {
    router: Router,
    limits: Limits,
    remote: Permits,
    local: Permits,
    /// Time of the last log line about refused connections.
    told: Arc<Mutex<Option<Instant>>>,
    stopped: watch::Receiver<bool>,
    /// Nothing is sent over this channel; it closes when the last clone is dropped.
    _alive: mpsc::Sender<()>,
}

impl Server {
    /// Accepts connections until the server stops. During an upgrade, the new process accepts later connections.
    async fn accept(self, listener: Listener) {
        match listener {
            Listener::Plain(listener) => self.accept_tcp(&listener, Opening::Http1).await,
            Listener::PlainHttp2(listener) => self.accept_tcp(&listener, Opening::Either).await,
            Listener::Tls(listener, tls) => self.accept_tcp(&listener, Opening::Tls(tls)).await,
            Listener::Local(listener) => self.accept_local(listener).await,
        }
    }

    async fn accept_tcp(&self, listener: &TcpListener, opening: Opening) {
        let address = listener.local_addr();
        let on_loopback = address.is_ok_and(|address| address.ip().to_canonical().is_loopback());
        let admit = |stream, address| {
            let remote = Remote {
                address,
                on_loopback,
                certificate: None,
            };
            self.admit(stream, remote, opening.clone());
        };
        tokio::select! {
            biased;
            () = self.told_to_stop() => {}
            () = accept_loop(listener, Keepalive::Unset, admit, |_| {}) => {}
        }
    }

    fn admit(&self, stream: TcpStream, remote: Remote, opening: Opening) {
        let Some(permit) = self.permit(&self.remote) else {
            return;
        };
        let server = self.clone();
        let peer = Peer::Remote(remote.clone());
        match opening {
            Opening::Http1 => drop(tokio::spawn(server.exchange(
                stream,
                peer,
                permit,
                Version::Http1,
            ))),
            Opening::Either => drop(tokio::spawn(server.exchange(
                stream,
                peer,
                permit,
                Version::Either,
            ))),
            Opening::Tls(tls) => drop(tokio::spawn(
                server.exchange_over_tls(tls, stream, remote, permit),
            )),
        }
    }

    /// Serves a connection to a TLS port. As in nginx, a client that sends a request without TLS gets an error page.
    async fn exchange_over_tls(
        mut self,
        tls: ServerTls,
        stream: TcpStream,
        remote: Remote,
        permit: Permit,
    ) {
        let address = remote.address;
        let handshake = async {
            // A TLS handshake never starts with a letter, and an HTTP request always does.
            if first_byte(&stream).await?.is_ascii_alphabetic() {
                return Ok(Opened::Plain(stream));
            }
            let shaken = tls.accept(stream).await;
            shaken.map(|stream| Opened::Tls(Box::new(stream)))
        };
        let opened = tokio::select! {
            opened = timeout(HANDSHAKE_TIMEOUT, handshake) => opened,
            () = self.told_to_go() => return,
        };
        match opened {
            Ok(Ok(Opened::Tls(stream))) => {
                let certificate = client_subject(&stream);
                let version = match stream.get_ref().1.alpn_protocol() {
                    Some(b"h2") => Version::Http2,
                    _ => Version::Http1,
                };
                let peer = Peer::Remote(Remote {
                    certificate,
                    ..remote
                });
                self.exchange(stream, peer, permit, version).await;
            }
            Ok(Ok(Opened::Plain(stream))) => {
                self.router = Router::new().fallback(refuse_plain_http);
                let peer = Peer::Remote(remote);
                self.exchange(stream, peer, permit, Version::Http1).await;
            }
            Ok(Err(error)) => tracing::debug!(%error, %address, "a TLS handshake failed"),
            Err(_) => tracing::debug!(%address, "a TLS handshake took too long"),
        }
    }

    /// Accepts local connections. No other process accepts on this socket, so queued connections are accepted even
    /// after the stop.
    async fn accept_local(&self, listener: UnixListener) {
        let mut stopped = pin!(self.told_to_stop());
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = &mut stopped => break,
            };
            match accepted {
                Ok((stream, _)) => self.admit_local(stream),
                Err(error) => {
                    tracing::warn!(%error, "a local connection cannot be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        // Ask the operating system directly, because the runtime may not know of the last connections yet.
        let Ok(listener) = listener.into_std() else {
            return;
        };
        while let Ok((stream, _)) = listener.accept() {
            let stream = stream.set_nonblocking(true).map(|()| stream);
            if let Ok(stream) = stream.and_then(UnixStream::from_std) {
                self.admit_local(stream);
            }
        }
    }

    fn admit_local(&self, stream: UnixStream) {
        if let Some(permit) = self.permit(&self.local) {
            let served = self.clone();
            tokio::spawn(served.exchange(stream, Peer::Local, permit, Version::Http1));
        }
    }

    /// Returns a slot for a new connection. Returns `None` if the limit is reached; the caller then closes the
    /// connection.
    fn permit(&self, permits: &Permits) -> Option<Permit> {
        let permit = permits.connection();
        if permit.is_none() {
            let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
            if told.is_none_or(|told| told.elapsed() > LOG_INTERVAL) {
                *told = Some(Instant::now());
                let limit = self.limits.connections;
                tracing::warn!(
                    limit,
                    "connections to the Admin API or the Status API are refused: there are too many"
                );
            }
        }
        permit
    }

    fn connection(&self, peer: Peer) -> Arc<Connection> {
        let permits = match peer {
            Peer::Local => &self.local,
            Peer::Remote(_) => &self.remote,
        };
        Arc::new(Connection {
            peer,
            limits: self.limits,
            permits: permits.clone(),
        })
    }

    /// Serves a connection until it ends.
    async fn exchange<S>(self, stream: S, peer: Peer, _place: Permit, version: Version)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let connection = self.connection(peer);
        let pace = Arc::new(Pace::new());
        let stream = Paced::new(stream, Arc::clone(&pace), self.limits);
        let (router, of_service) = (self.router.clone(), Arc::clone(&connection));
        let service = service_fn(move |mut request: hyper::Request<Incoming>| {
            request.extensions_mut().insert(Arc::clone(&of_service));
            let busy = pace.begin_answer(request.version());
            let answer = router.clone().oneshot(request);
            async move { Ok::<_, Infallible>(busy.until_sent(answer.await?)) }
        });
        let builder = version.builder();
        let mut served = pin!(builder.serve_connection(TokioIo::new(stream), service));
        let ended = tokio::select! {
            ended = served.as_mut() => ended,
            () = self.told_to_go() => {
                served.as_mut().graceful_shutdown();
                served.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, peer = ?connection.peer, "a connection to the Admin API or the Status API has failed");
        }
    }

    async fn told_to_stop(&self) {
        // An error means that the sender was dropped, which also means stop.
        let _ = self.stopped.clone().wait_for(|stopped| *stopped).await;
    }

    async fn told_to_go(&self) {
        self.told_to_stop().await;
        tokio::time::sleep(FAREWELL).await;
    }
}

/// Responds to a request without TLS on a TLS port, and closes the connection.
async fn refuse_plain_http(request: Request) -> impl IntoResponse {
    let (parts, body) = request.into_parts();
    receive::drain(&parts, body).await;
    let headers = [
        (CONTENT_TYPE, "text/html; charset=UTF-8"),
        (CONNECTION, "close"),
    ];
    (StatusCode::BAD_REQUEST, headers, PLAIN_HTTP_PAGE)
}
