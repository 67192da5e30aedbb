//! What is known of a finished request when its line is written.

use plugin::{Latencies, Try};
use std::net::SocketAddr;

/// A finished request.
pub struct Facts<'a> {
    /// After real-IP processing.
    pub client: SocketAddr,
    /// Who the connection is from.
    pub peer: SocketAddr,
    pub scheme: &'static str,
    /// Of the listener, mapped by `port_maps`.
    pub port: u16,
    /// Lower case, without port.
    pub host: &'a str,
    pub request: RequestLine<'a>,
    pub headers: &'a dyn Headers,
    pub request_id: &'a str,
    pub status: u16,
    pub upstream_status: Option<u16>,
    pub tries: &'a [Try],
    pub latencies: Latencies,
    /// Bytes of the request, head and body.
    pub request_size: u64,
    /// Bytes sent to the client,
    pub response_size: u64,
    /// and how many of them were heads.
    pub response_head: u64,
    /// Names, or ids where there is none.
    pub route: &'a str,
    pub service: &'a str,
    pub consumer: &'a str,
}

impl Default for Facts<'_> {
    /// Nothing is known of the request.
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
    /// Of a request that was refused: what there is of it.
    Raw(&'a [u8]),
    /// None at all, of a stream.
    Stream { protocol: &'static str },
}

/// The header lines of a request.
pub trait Headers {
    /// The first of a name, in any case.
    fn first(&self, name: &str) -> Option<&[u8]>;
}

impl Headers for net::http1::RequestHead {
    fn first(&self, name: &str) -> Option<&[u8]> {
        self.header(name)
    }
}

/// Of a request that was not understood.
impl Headers for () {
    fn first(&self, _: &str) -> Option<&[u8]> {
        None
    }
}
