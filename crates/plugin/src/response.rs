//! Responses that plugins and the gateway produce, and the filter phases' view of all responses.

use crate::edits::{HeaderEdits, HeaderName, HeaderValue};
use crate::request::RequestCx;
use bytes::Bytes;
use net::http1::ResponseHead;
use serde::Serialize;
use std::borrow::Cow;

/// A response that ends a request.
#[derive(Debug, Clone)]
pub struct Response {
    pub status: u16,
    /// Headers of the response. Content-Length, Server and the like are added when it is written.
    pub headers: HeaderEdits,
    pub body: ResponseBody,
}

#[derive(Debug, Clone)]
pub enum ResponseBody {
    /// A body to send unchanged ("exit" style): it has no request id, and the Accept header does not matter.
    Bytes(Bytes),
    /// "Exit" style with JSON. Its content type is that of JSON unless the headers set another.
    Json(Bytes),
    /// The gateway's error body ("error" style) with the request id: JSON, HTML, XML or text, depending on the Accept
    /// header. Without a message, that of the status is used.
    Error(Option<Cow<'static, str>>),
}

impl Response {
    /// Creates a response in "exit" style with the given body, which may be empty, and without a Content-Type.
    pub fn new(status: u16, body: impl Into<Bytes>) -> Self {
        Self {
            status,
            headers: HeaderEdits::new(),
            body: ResponseBody::Bytes(body.into()),
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
        }
    }

    /// Creates a response in "error" style with the message of the status.
    pub fn status_error(status: u16) -> Self {
        Self {
            status,
            headers: HeaderEdits::new(),
            body: ResponseBody::Error(None),
        }
    }

    /// Creates the response for a request on which a plugin failed. It is in "error" style.
    /// Source: kong/init.lua execute_collecting_plugins_iterator().
    pub fn unexpected_error() -> Self {
        Self::error(500, "An unexpected error occurred")
    }

    pub fn with_header(mut self, name: impl HeaderName, value: impl Into<HeaderValue>) -> Self {
        self.headers.set(name, value);
        self
    }
}

/// The producer of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    Upstream,
    /// A plugin, which ended the request.
    Plugin,
    /// The gateway itself, for instance if there is no route or no upstream, or the request is invalid.
    Gateway,
}

/// A response before it is sent to the client, as the filter phases see it.
pub struct ResponseCx<'r> {
    pub request: &'r RequestCx<'r>,
    pub origin: Origin,
    pub status: u16,
    /// The head that the upstream sent. `None` for a response produced by a plugin or the gateway: `headers` then has
    /// all headers.
    pub upstream: Option<&'r ResponseHead>,
    /// Changes to the upstream's headers, or all headers of a response without an upstream.
    pub headers: HeaderEdits,
}

impl ResponseCx<'_> {
    /// Returns the first value of a header, after changes.
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        if let Some(value) = self.headers.value(name) {
            return Some(value);
        }
        if self.headers.drops(name) {
            return None;
        }
        self.upstream.and_then(|head| head.header(name))
    }
}

/// A piece of a response body.
#[derive(Debug, Clone, Default)]
pub struct Chunk {
    pub data: Bytes,
    pub last: bool,
}
