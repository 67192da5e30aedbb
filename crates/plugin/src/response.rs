//! Responses that plugins and the gateway produce, and the filter phases' view of all responses.

use crate::configured::Configured;
use crate::edits::{HeaderEdits, HeaderValue, LineValue};
use crate::node::Node;
use crate::request::{Request, RequestState};
use crate::stored::Stored;
use bytes::Bytes;
use compact_str::CompactString;
use net::http1::ResponseHead;
use serde::Serialize;
use std::borrow::Cow;
use std::sync::Arc;

/// A response that ends a request.
#[derive(Debug, Clone)]
pub struct Response {
    pub status: u16,
    /// Headers of the response. Content-Length, Server and the like are added when it is written.
    pub headers: HeaderEdits,
    pub body: ResponseBody,
    /// Whether the response counts as one of the upstream's in the latency headers, as that of a cache does.
    pub counts_as_proxied: bool,
}

#[derive(Debug, Clone)]
pub enum ResponseBody {
    /// A body in pieces, sent unchanged.
    Pieces(Vec<Bytes>),
    /// A response that is kept, with its own headers, which the headers of [`Response`] must not name. If no other plugin
    /// filters it, it is copied as it is. No later phase of the plugin that responds with it runs.
    Stored(Arc<Stored>),
    /// A body to send unchanged ("exit" style): it has no request id, and the Accept header does not matter.
    Bytes(Bytes),
    /// "Exit" style with JSON. Its content type is that of JSON unless the headers set another.
    Json(Bytes),
    /// The gateway's error body ("error" style) with the request id: JSON, HTML, XML or text, depending on the Accept
    /// header. Without a message, that of the status is used.
    Error(Option<Cow<'static, str>>),
    /// The error page of nginx, which Kong sends when a plugin exits with the status of an error and nothing else. It is
    /// like `Error`, but a text unless the request asks for another format.
    ServerError,
    /// Kong's exit with a status and without a body. nginx sends its page for the status: `ServerError` for the statuses
    /// that Kong handles, HTML for others, and nothing for those that have no page.
    Page,
    /// A body that was written piece by piece, so that its length was not known when it began: HTTP/1.1 clients get it in
    /// chunks.
    Written(Bytes),
}

impl Response {
    /// Creates a response in "exit" style with the given body, which may be empty, and without a Content-Type.
    pub fn new(status: u16, body: impl Into<Bytes>) -> Self {
        Self {
            status,
            headers: HeaderEdits::new(),
            body: ResponseBody::Bytes(body.into()),
            counts_as_proxied: false,
        }
    }

    /// Creates a response in "exit" style with compact JSON.
    pub fn json<T: Serialize + ?Sized>(status: u16, body: &T) -> Self {
        let text = serde_json::to_vec(body).unwrap_or_else(|error| {
            debug_assert!(false, "a response cannot be written as JSON: {error}");
            b"{}".to_vec()
        });
        Self {
            status,
            headers: HeaderEdits::new(),
            body: ResponseBody::Json(text.into()),
            counts_as_proxied: false,
        }
    }

    /// Creates a response in "exit" style with the body `{"message":"…"}`.
    pub fn message(status: u16, message: &str) -> Self {
        #[derive(Serialize)]
        struct Message<'a> {
            message: &'a str,
        }
        Self::json(status, &Message { message })
    }

    /// Creates a response in "error" style.
    pub fn error(status: u16, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            status,
            headers: HeaderEdits::new(),
            body: ResponseBody::Error(Some(message.into())),
            counts_as_proxied: false,
        }
    }

    /// Creates a response in "error" style with the message of the status.
    pub fn status_error(status: u16) -> Self {
        Self {
            status,
            headers: HeaderEdits::new(),
            body: ResponseBody::Error(None),
            counts_as_proxied: false,
        }
    }

    /// Creates a response with nginx's error page for the status.
    pub fn server_error(status: u16) -> Self {
        Self {
            status,
            headers: HeaderEdits::new(),
            body: ResponseBody::ServerError,
            counts_as_proxied: false,
        }
    }

    /// Creates a response in "exit" style without a body, for which nginx's page of the status is sent.
    pub fn page(status: u16) -> Self {
        Self {
            status,
            headers: HeaderEdits::new(),
            body: ResponseBody::Page,
            counts_as_proxied: false,
        }
    }

    /// Creates the response for a request on which a plugin failed. It is in "error" style.
    /// Source: kong/init.lua execute_collecting_plugins_iterator().
    pub fn unexpected_error() -> Self {
        Self::error(500, "An unexpected error occurred")
    }

    /// Turns a response that is kept into one whose headers and body can be changed.
    pub fn open(mut self) -> Self {
        if let ResponseBody::Stored(stored) = &self.body {
            let mut headers = stored.edits();
            headers.apply(self.headers);
            (self.headers, self.body) = (headers, ResponseBody::Pieces(stored.pieces()));
        }
        self
    }

    pub fn with_header(mut self, name: impl AsRef<str>, value: impl LineValue) -> Self {
        self.headers.set(name, value);
        self
    }
}

/// The producer of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    Upstream,
    /// A plugin, which ended the request with [`crate::Step::Respond`].
    Plugin,
    /// The gateway itself, for instance if there is no route or no upstream, or the request is invalid. This includes
    /// requests that a plugin ended with [`crate::Step::Exit`].
    Gateway,
}

/// The context of `response`, `header_filter` and `body_filter`.
pub struct ResponseCx<'c, 'r> {
    pub request: &'c Request<'r>,
    pub state: &'c mut RequestState,
    pub configured: Configured<'c>,
    pub node: &'c Arc<Node>,
    /// The head that the upstream sent. `None` for a response produced by a plugin or the gateway: the answer then has
    /// all headers.
    pub upstream: Option<&'c ResponseHead>,
    /// The upstream's whole body, if the response was read into memory.
    pub upstream_body: Option<&'c Bytes>,
    pub answer: &'c mut Answer,
}

/// A response on its way to the client, without its body.
#[derive(Debug, Clone)]
pub struct Answer {
    pub origin: Origin,
    pub status: u16,
    /// Changes to the upstream's headers, or all headers of a response without an upstream. A body filter that changes
    /// the length of the body must have removed `Content-Length` in `header_filter`.
    pub headers: HeaderEdits,
    /// The upstream's trailers. They are known when the last piece of the body is filtered, and sent after it.
    pub trailers: Vec<(CompactString, HeaderValue)>,
}

impl Answer {
    pub fn new(origin: Origin, status: u16, headers: HeaderEdits) -> Self {
        Self {
            origin,
            status,
            headers,
            trailers: Vec::new(),
        }
    }
}

impl ResponseCx<'_, '_> {
    /// Returns the first value of a header, after changes.
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        self.header_lines(name).next()
    }

    /// Returns the values of all lines with this name, after changes.
    pub fn header_lines<'s, 'n>(
        &'s self,
        name: &'n str,
    ) -> impl Iterator<Item = &'s [u8]> + use<'s, 'n> {
        let edits = &self.answer.headers;
        let before = edits.before();
        let before = before.filter(move |(other, _)| other.eq_ignore_ascii_case(name));
        let kept = self.upstream.filter(|_| !edits.drops(name));
        let kept = kept
            .into_iter()
            .flat_map(move |head| head.header_values(name));
        let before = before.map(|(_, value)| value);
        before.chain(kept).chain(edits.values(name.as_bytes()))
    }

    /// The names and values of all header lines, after changes.
    pub fn header_pairs(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let edits = &self.answer.headers;
        let kept = self.upstream.into_iter().flat_map(ResponseHead::headers);
        let kept = kept.filter(|(name, _)| !edits.drops(name));
        edits.before().chain(kept).chain(edits.added())
    }

    /// Returns the value of a trailer. Trailers are known when the last piece of the body is filtered.
    pub fn trailer(&self, name: &str) -> Option<&[u8]> {
        let mut trailers = self.answer.trailers.iter();
        let found = trailers.find(|(other, _)| other.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_bytes())
    }
}

/// A piece of a body.
#[derive(Debug, Clone, Default)]
pub struct Chunk {
    pub data: Bytes,
    pub last: bool,
}
