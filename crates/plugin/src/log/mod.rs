//! The data about a finished request for the log phase, and the log record that Kong's log plugins share
//! (`LogCx`, `EndedStreamCx`).

mod draft;
mod entity;
mod fields;
mod headers;
mod json;
mod reason;
mod record;
mod stream;
#[cfg(test)]
mod tests;

pub use draft::Frame;
pub use entity::write_entity;
pub use fields::RecordError;
pub use reason::Reason;

use crate::configured::Configured;
use crate::node::Node;
use crate::request::{Request, RequestState};
use crate::response::Origin;
use bytes::Bytes;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// The context of the log phase. Log plugins copy what they need into a queue.
pub struct LogCx<'c, 'r> {
    pub request: &'c Request<'r>,
    pub state: &'c mut RequestState,
    pub configured: Configured<'c>,
    pub node: &'c Arc<Node>,
    pub entry: &'c LogEntry<'c>,
}

/// A finished request.
#[derive(Debug, Clone, Copy)]
pub struct LogEntry<'a> {
    /// Status of the response to the client, or 499 if the client disconnected before it.
    pub status: u16,
    /// Who produced the response.
    pub origin: Origin,
    /// Why the client did not get an upstream's complete response. `None` if it did.
    pub reason: Option<Reason>,
    /// Status of the upstream's response, if there was one.
    pub upstream_status: Option<u16>,
    pub started_at: SystemTime,
    pub latencies: Latencies,
    /// All tries in order. Empty if the request was not to be forwarded.
    pub tries: &'a [Try],
    /// Number of bytes received from the client: head, body with its framing, and tunnel data (nginx's
    /// `$request_length`).
    pub request_size: u64,
    /// Number of bytes sent to the client, heads included (nginx's `$bytes_sent`).
    pub response_size: u64,
    /// The response head as it was sent to the client, with its status line, but without a `Date` that the gateway has
    /// added. Empty if none was sent.
    pub response_head: &'a [u8],
    /// Number of bytes of the head, as it was sent.
    pub response_head_size: u64,
    /// Path that was sent to the upstream, without query.
    pub upstream_path: &'a [u8],
    /// The upstream's whole body, if the response was read into memory.
    pub upstream_body: Option<&'a Bytes>,
}

/// Latencies of a request. Kong's logs name them `request`, `kong`, `proxy` and `receive`. Source: kong/pdk/log.lua.
#[derive(Debug, Clone, Copy, Default)]
pub struct Latencies {
    /// Time from the first byte of the request to the end of the response.
    pub request: Duration,
    /// Time until the upstream was contacted, or until the response was produced if no upstream was contacted.
    pub gateway: Duration,
    /// Time from contacting the upstream to the head of its response. `None` if no upstream was contacted.
    pub upstream: Option<Duration>,
    /// Time from the head of the response to its end.
    pub receive: Duration,
}

/// One try to forward the request to an upstream address.
#[derive(Debug, Clone, Copy)]
pub struct Try {
    /// `None` if no address was found.
    pub address: Option<SocketAddr>,
    /// Start of the try, as the time since the start of the request.
    pub after: Duration,
    /// Time from the start of the try until the address was known.
    pub choosing: Duration,
    /// Duration of the try, to the end of the response.
    pub took: Duration,
    pub end: TryEnd,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TryEnd {
    /// The upstream responded with this status. For a stream, the status is 200.
    Answered(u16),
    /// The try failed with status 502, or with 504 after a timeout.
    Failed(u16),
    /// The client disconnected, or its body could not be forwarded.
    Abandoned,
}
