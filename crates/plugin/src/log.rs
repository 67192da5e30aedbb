//! What the log phase sees of a finished request.

use crate::request::RequestCx;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

/// A finished request. Log plugins copy what they need into a queue.
pub struct LogEntry<'a> {
    pub request: &'a RequestCx<'a>,
    pub status: u16,
    pub started_at: SystemTime,
    pub latencies: Latencies,
    pub tries: &'a [Try],
    pub request_size: u64,
    pub response_size: u64,
}

#[derive(Debug, Clone, Copy, Default)]
pub struct Latencies {
    pub request: Duration,
    /// Spent here.
    pub gateway: Duration,
    /// Spent waiting for the upstream.
    pub upstream: Duration,
}

/// One attempt at an upstream address.
#[derive(Debug, Clone, Copy)]
pub struct Try {
    pub address: SocketAddr,
    pub status: Option<u16>,
    pub took: Duration,
}
