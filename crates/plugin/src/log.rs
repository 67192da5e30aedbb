//! What the log phase sees of a finished request.

use crate::request::RequestCx;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

/// A finished request. Log plugins copy what they need into a queue.
pub struct LogEntry<'a> {
    pub request: &'a RequestCx<'a>,
    /// What the client was told; 499 when it had gone before that.
    pub status: u16,
    /// Of the upstream's answer, if there was one.
    pub upstream_status: Option<u16>,
    pub started_at: SystemTime,
    pub latencies: Latencies,
    /// In the order made; empty when no upstream was looked for.
    pub tries: &'a [Try],
    /// Bytes of the request: head, and body with its framing, as far as it was taken in (the web server's
    /// `$request_length`), and what came through a tunnel.
    pub request_size: u64,
    /// Bytes sent to the client, heads included (`$bytes_sent`).
    pub response_size: u64,
}

/// Kong's names of these in logs: `request`, `kong`, `proxy`, `receive`. Source: kong/pdk/log.lua.
#[derive(Debug, Clone, Copy, Default)]
pub struct Latencies {
    /// From the request's first byte to the end of the answer.
    pub request: Duration,
    /// Before the upstream was contacted, or until the answer was made where none was.
    pub gateway: Duration,
    /// From then to the head of the answer; `None` when no upstream was contacted.
    pub upstream: Option<Duration>,
    /// From the head of the answer to its end.
    pub receive: Duration,
}

/// One attempt at an upstream address.
#[derive(Debug, Clone, Copy)]
pub struct Try {
    /// `None` when none was found.
    pub address: Option<SocketAddr>,
    /// Since the start of the request.
    pub after: Duration,
    /// Until the address was known.
    pub choosing: Duration,
    /// In all, to the end of the answer.
    pub took: Duration,
    pub end: TryEnd,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TryEnd {
    /// With this status of the upstream.
    Answered(u16),
    /// 502 or, when it took too long, 504.
    Failed(u16),
    /// The client went away, or what it sent could not be passed on.
    Abandoned,
}
