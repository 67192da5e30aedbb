//! What a request has led to.

use crate::edits::TargetEdits;
use crate::log::{Latencies, LogEntry, Try};
use crate::request::RequestState;
use crate::response::Origin;
use bytes::Bytes;
use std::time::SystemTime;

/// The outcome of a request.
#[derive(Debug)]
pub struct Outcome {
    /// The request that the upstream got. `None` if it got none.
    pub upstream: Option<Sent>,
    pub client: Received,
    /// What plugins have found out, after the log phase.
    pub state: RequestState,
    /// What the log phase saw.
    pub log: Logged,
    /// The failures that the data plane would log.
    pub failures: Vec<Failure>,
    /// The plugin that ended the request, or failed.
    pub answered_by: Option<String>,
}

/// The request for the upstream, without the headers that the data plane adds and those of the connection.
#[derive(Debug, Clone)]
pub struct Sent {
    pub method: String,
    /// The path without query.
    pub path: String,
    pub query: Option<String>,
    pub headers: Headers,
    pub body: Bytes,
    /// Changes to where the request goes.
    pub target: Option<TargetEdits>,
}

/// The response to the client, without the headers that the data plane adds and those of the connection.
#[derive(Debug, Clone, Default)]
pub struct Received {
    /// The status, or 0 if the client got no response.
    pub status: u16,
    pub headers: Headers,
    /// The length that was sent before the body. `None` if the body was sent in chunks.
    pub length: Option<u64>,
    pub body: Bytes,
    /// The pieces of the body, in the order in which they were sent.
    pub pieces: Vec<Bytes>,
    pub trailers: Headers,
    /// Whether the connection was closed before the end of the response: a filter has failed, the upstream's response
    /// breaks off, or the body does not have the length that was sent.
    pub is_cut: bool,
    /// Whether a response of a plugin counts as one of the upstream's, as that of a cache does.
    pub counts_as_proxied: bool,
}

/// Header lines. Bytes that are not UTF-8 are replaced.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Headers(pub Vec<(String, String)>);

/// A finished request, as the log phase saw it.
#[derive(Debug, Clone)]
pub struct Logged {
    pub status: u16,
    pub origin: Origin,
    pub reason: Option<crate::Reason>,
    pub upstream_status: Option<u16>,
    pub started_at: SystemTime,
    pub latencies: Latencies,
    pub tries: Vec<Try>,
    pub request_size: u64,
    pub response_size: u64,
    pub response_head: Vec<u8>,
    pub upstream_path: Vec<u8>,
    pub upstream_body: Option<Bytes>,
}

/// A phase that has failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub plugin: String,
    pub phase: &'static str,
    /// The error with its causes.
    pub error: String,
}

impl Outcome {
    /// Returns the request for the upstream. Panics if there is none.
    pub fn sent(&self) -> &Sent {
        match &self.upstream {
            Some(sent) => sent,
            None => panic!("the request did not reach the upstream: {:?}", self.client),
        }
    }

    /// The username of the request's consumer.
    pub fn consumer(&self) -> Option<&str> {
        self.state.consumer.as_ref()?.username.as_deref()
    }
}

impl Sent {
    /// The first value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)
    }

    /// The body as text.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("the body is text")
    }
}

impl Received {
    /// The first value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)
    }

    /// The body as text.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("the body is text")
    }

    /// The body as JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).expect("the body is JSON")
    }

    /// The field `message` of a body in JSON.
    pub fn message(&self) -> String {
        let body = self.json();
        let message = body["message"].as_str();
        message.expect("the body has a message").to_owned()
    }
}

impl Headers {
    /// The first value of a header.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.all(name).next()
    }

    /// All values of a header, in order.
    pub fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        let lines = self.0.iter();
        let same = lines.filter(move |(other, _)| other.eq_ignore_ascii_case(name));
        same.map(|(_, value)| value.as_str())
    }

    pub(super) fn collect<'l>(lines: impl Iterator<Item = (&'l str, &'l [u8])>) -> Self {
        let text = |value| String::from_utf8_lossy(value).into_owned();
        Self(
            lines
                .map(|(name, value)| (name.to_owned(), text(value)))
                .collect(),
        )
    }

    /// Removes the headers of the connection and of the framing of a message.
    pub(super) fn without_framing(mut self) -> Self {
        const FRAMING: [&str; 4] = [
            "connection",
            "content-length",
            "keep-alive",
            "transfer-encoding",
        ];
        let is_framing = |name: &str| FRAMING.iter().any(|one| one.eq_ignore_ascii_case(name));
        self.0.retain(|(name, _)| !is_framing(name));
        self
    }
}

impl Logged {
    /// The entry as log phases get it.
    pub fn entry(&self) -> LogEntry<'_> {
        LogEntry {
            status: self.status,
            origin: self.origin,
            upstream_status: self.upstream_status,
            reason: self.reason,
            started_at: self.started_at,
            latencies: self.latencies,
            tries: &self.tries,
            request_size: self.request_size,
            response_size: self.response_size,
            response_head: &self.response_head,
            response_head_size: self.response_head.len() as u64,
            upstream_path: &self.upstream_path,
            upstream_body: self.upstream_body.as_ref(),
        }
    }
}
