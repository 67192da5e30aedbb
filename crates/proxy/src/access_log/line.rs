//! The properties of a finished request that a log line can show.

use plugin::{Latencies, Reason, TlsInfo, TraceId, Try};
use std::net::{IpAddr, SocketAddr};

/// A finished request.
pub struct Facts<'a> {
    /// The client's address, after real-IP processing.
    pub client: SocketAddr,
    /// The remote address of the connection.
    pub peer: SocketAddr,
    pub scheme: &'static str,
    /// Port of the listener, mapped by `port_maps`.
    pub port: u16,
    /// Host of the request in lower case, without port.
    pub host: &'a str,
    pub request: RequestLine<'a>,
    pub headers: &'a dyn Headers,
    pub request_id: &'a str,
    pub status: u16,
    pub upstream_status: Option<u16>,
    pub tries: &'a [Try],
    pub latencies: Latencies,
    /// Size of the request in bytes, head and body.
    pub request_size: u64,
    /// Number of bytes sent to the client, heads included.
    pub response_size: u64,
    /// Number of bytes of the heads sent to the client.
    pub response_head: u64,
    /// Name of the route, or its id if it has no name.
    pub route: &'a str,
    /// Name of the service, or its id if it has no name.
    pub service: &'a str,
    /// Username of the consumer, or its id if it has no username. Empty if there is no consumer.
    pub consumer: &'a str,
    /// The response head as it was sent, with its status line.
    pub sent_head: &'a [u8],
    /// Address of the gateway on the connection.
    pub local: Option<IpAddr>,
    pub tls: Option<&'a TlsInfo>,
    /// The server name that the client has asked for by TLS.
    pub sni: &'a str,
    /// Number of requests on the connection so far.
    pub connection_requests: u64,
    /// Name of the plugin that responded in the access phase, or failed there.
    pub plugin: &'a str,
    /// The trace that the request belongs to, if a plugin traces it.
    pub trace_id: Option<TraceId>,
    /// Why the response is not an upstream's complete one.
    pub reason: Option<Reason>,
}

impl Default for Facts<'_> {
    /// The facts of a request of which nothing is known.
    fn default() -> Self {
        let nobody = SocketAddr::from(([0, 0, 0, 0], 0));
        Self {
            client: nobody,
            peer: nobody,
            scheme: "",
            port: 0,
            host: "",
            request: RequestLine::Raw(b""),
            headers: &(),
            request_id: "",
            status: 0,
            upstream_status: None,
            tries: &[],
            latencies: Latencies::default(),
            request_size: 0,
            response_size: 0,
            response_head: 0,
            route: "",
            service: "",
            consumer: "",
            sent_head: b"",
            local: None,
            tls: None,
            sni: "",
            connection_requests: 0,
            plugin: "",
            trace_id: None,
            reason: None,
        }
    }
}

/// The first line of a request.
pub enum RequestLine<'a> {
    Parsed {
        method: &'a [u8],
        target: &'a [u8],
        version: &'static str,
    },
    /// The bytes received of a request line that could not be parsed.
    Raw(&'a [u8]),
    /// A stream, which has no request line.
    Stream { protocol: &'static str },
}

/// The header lines of a request.
pub trait Headers {
    /// Returns the first header with this name, ignoring case.
    fn first(&self, name: &str) -> Option<&[u8]>;
}

impl Headers for net::http1::RequestHead {
    fn first(&self, name: &str) -> Option<&[u8]> {
        self.header(name)
    }
}

/// The headers of a request that could not be parsed.
impl Headers for () {
    fn first(&self, _: &str) -> Option<&[u8]> {
        None
    }
}
