//! The contexts of TCP, TLS and UDP sessions, and of TLS handshakes.

use crate::configured::Scope;
use crate::log::{Latencies, Try};
use crate::node::Node;
use crate::request::{Client, EntityRef};
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
    pub node: &'c Arc<Node>,
}

/// The context of `preread`.
pub struct StreamCx<'c> {
    pub session: &'c StreamSession<'c>,
    pub configured: StreamConfigured<'c>,
    pub node: &'c Arc<Node>,
}

/// A TCP, TLS or UDP session whose route is known.
#[derive(Debug, Clone, Copy)]
pub struct StreamSession<'c> {
    pub protocol: StreamProtocol,
    pub client: Client,
    pub peer: SocketAddr,
    /// Port of the listener, mapped by `port_maps`.
    pub port: u16,
    pub sni: Option<&'c str>,
    pub route: Option<EntityRef<'c>>,
    pub service: Option<EntityRef<'c>>,
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
    /// Closes the session. The log shows the status.
    Close(StreamEnd),
    /// The result needs a wait.
    Wait(StreamWait<'a>),
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
    /// Status for the log.
    pub status: u16,
    /// Bytes to send to the client before the session is closed. Not sent during a handshake.
    pub message: String,
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
    pub status: u16,
    pub started_at: SystemTime,
    pub latencies: Latencies,
    /// All tries in order. Empty if the session was not to be forwarded.
    pub tries: &'c [Try],
    /// Bytes received from the client.
    pub received: u64,
    /// Bytes sent to the client.
    pub sent: u64,
    /// Bytes received from the upstream.
    pub upstream_received: u64,
    /// Bytes sent to the upstream.
    pub upstream_sent: u64,
}
