//! The contexts of TCP, TLS and UDP sessions, and of TLS handshakes. Kong calls a session of any of these a stream.

use crate::configured::{Configured, Scope};
use crate::log::{Latencies, Reason, Try};
use crate::node::Node;
use crate::request::{Client, EntityRef};
use crate::route_slot::RouteSlot;
use crate::{ConfiguredName, PluginError};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::SystemTime;

/// The context of `certificate`: a TLS connection whose client hello has arrived.
pub struct CertificateCx<'c> {
    pub client: Client,
    pub peer: SocketAddr,
    /// Port of the listener, mapped by `port_maps`.
    pub port: u16,
    pub sni: Option<&'c str>,
    /// Whether the client offers HTTP/2.
    pub offers_http2: bool,
    /// The configured plugin for which the handler is called.
    pub configured: Configured<'c>,
    pub node: &'c Arc<Node>,
}

/// The context of `preread`.
pub struct StreamCx<'c> {
    pub session: &'c StreamSession<'c>,
    pub configured: StreamConfigured<'c>,
    pub node: &'c Arc<Node>,
}

/// TLS between the client and the gateway. The connection owns it, so that a request only borrows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TlsInfo {
    /// For instance `TLSv1.3` (nginx's `$ssl_protocol`).
    pub version: &'static str,
    /// OpenSSL's name of the cipher suite, for instance `TLS_AES_256_GCM_SHA384` (`$ssl_cipher`).
    pub cipher: &'static str,
    /// `SUCCESS` if the client has shown a valid certificate, `NONE` if it has shown none (`$ssl_client_verify`).
    pub client_verify: &'static str,
}

/// A TCP, TLS or UDP session. In `preread` its route is known. In the log phase it is not known if the session ended
/// before `preread`.
#[derive(Debug, Clone, Copy)]
pub struct StreamSession<'c> {
    pub protocol: StreamProtocol,
    /// Client address; the one of the PROXY protocol header if its sender is trusted.
    pub client: Client,
    pub peer: SocketAddr,
    /// Port of the listener, mapped by `port_maps`. Kong's log records show it only if TLS is not involved, because
    /// Kong relays TLS sessions inside.
    pub port: u16,
    pub sni: Option<&'c str>,
    /// `None` if the gateway does not terminate TLS, or if the handshake has not ended.
    pub tls: Option<&'c TlsInfo>,
    pub route: Option<EntityRef<'c>>,
    pub service: Option<EntityRef<'c>>,
    /// The place of the route for what a plugin has prepared for it.
    pub slot: Option<&'c RouteSlot>,
}

/// The configured plugin for which a handler is called in a session.
#[derive(Debug, Clone, Copy)]
pub struct StreamConfigured<'c> {
    pub scope: Scope,
    pub name: Option<ConfiguredName<'c>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamProtocol {
    Tcp,
    /// TLS that the gateway terminates.
    Tls,
    /// TLS that the upstream terminates.
    TlsPassthrough,
    Udp,
}

/// The result of `preread` and `certificate`.
pub enum StreamStep<'a> {
    Continue,
    /// Closes the session. The log shows the status. The plugins after this one do not run, but they log.
    Close(StreamEnd),
    /// The result needs a wait. The plugin finishes what it does also if the client leaves, as in Kong.
    Wait(StreamWait<'a>),
}

impl<'a> StreamStep<'a> {
    /// Waits for a future.
    pub fn wait(future: impl Future<Output = Result<StreamFlow, PluginError>> + Send + 'a) -> Self {
        Self::Wait(Box::pin(future))
    }
}

/// The future in [`StreamStep::Wait`].
pub type StreamWait<'a> =
    Pin<Box<dyn Future<Output = Result<StreamFlow, PluginError>> + Send + 'a>>;

/// The result of a [`StreamStep::Wait`].
#[derive(Debug, Clone)]
pub enum StreamFlow {
    Continue,
    Close(StreamEnd),
}

/// How a plugin ends a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamEnd {
    /// Status for the log. Kong allows 200, 400, 403, 500, 502 and 503.
    pub status: u16,
    /// Text for the client. As in Kong, it is sent only if the status is below 400, and otherwise logged. It is not
    /// sent during a handshake.
    pub message: String,
}

impl StreamEnd {
    /// Ends a session without a message.
    pub fn silent(status: u16) -> Self {
        Self {
            status,
            message: String::new(),
        }
    }
}

/// The context of the log phase of a session.
pub struct EndedStreamCx<'c> {
    pub session: &'c StreamSession<'c>,
    pub configured: StreamConfigured<'c>,
    pub node: &'c Arc<Node>,
    pub entry: &'c StreamEntry<'c>,
}

/// A finished session.
#[derive(Debug, Clone, Copy)]
pub struct StreamEntry<'c> {
    /// The status that Kong logs: 200 if the session was forwarded, otherwise the reason why it was not. A session that
    /// was cut off before it reached an upstream has status 500.
    pub status: u16,
    pub started_at: SystemTime,
    /// `request` is the duration of the session. `upstream` and `receive` are not measured.
    pub latencies: Latencies,
    /// All tries in order. Empty if no upstream was contacted. A try that has succeeded has the end
    /// [`TryEnd::Answered`](crate::TryEnd::Answered) with status 200.
    pub tries: &'c [Try],
    /// Bytes received from the client.
    pub received: u64,
    /// Bytes sent to the client.
    pub sent: u64,
    /// Bytes received from the upstream. Kong's log records show this and the next field only if there is a try.
    pub upstream_received: u64,
    /// Bytes sent to the upstream.
    pub upstream_sent: u64,
    /// Why the gateway has ended the session. `None` if the client or the upstream ended it.
    pub reason: Option<Reason>,
}
