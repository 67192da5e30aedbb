//! Answers: those that plugins and the gateway produce, and what the filter phases see of any answer.

use crate::edits::{HeaderEdits, HeaderName, HeaderValue};
use crate::request::RequestCx;
use bytes::Bytes;
use net::http1::ResponseHead;
use serde::Serialize;
use std::borrow::Cow;

/// An answer that ends a request.
#[derive(Debug, Clone)]
pub struct Response {
    pub status: u16,
    /// Content-Length, Server and the like are added when it is written.
    pub headers: HeaderEdits,
    pub body: ResponseBody,
}

#[derive(Debug, Clone)]
pub enum ResponseBody {
    /// Sent as it is ("exit" style): no request id, whatever Accept says.
    Bytes(Bytes),
    /// "Exit" style with a table, as JSON. It has the type of JSON unless the answer names another.
    Json(Bytes),
    /// The gateway's error body ("error" style): JSON, HTML, XML or text, as Accept says, with the request id. Without a
    /// message, the status has one.
    Error(Option<Cow<'static, str>>),
}

impl Response {
    /// "Exit" style with a text, or with nothing: no Content-Type of its own.
    pub fn new(status: u16, body: impl Into<Bytes>) -> Self {
        Self {
            status,
            headers: HeaderEdits::new(),
            body: ResponseBody::Bytes(body.into()),
        }
    }

    /// "Exit" style with a table: compact JSON.
    pub fn json<T: Serialize + ?Sized>(status: u16, body: &T) -> Self {
        let text = serde_json::to_vec(body).unwrap_or_else(|error| {
            debug_assert!(false, "an answer cannot be written as JSON: {error}");
            b"{}".to_vec()
        });
        Self {
            status,
            headers: HeaderEdits::new(),
            body: ResponseBody::Json(text.into()),
        }
    }

    /// `{"message":"…"}` in "exit" style.
    pub fn message(status: u16, message: &str) -> Self {
        #[derive(Serialize)]
        struct Message<'a> {
            message: &'a str,
        }
        Self::json(status, &Message { message })
    }

    /// "Error" style.
    pub fn error(status: u16, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            status,
            headers: HeaderEdits::new(),
            body: ResponseBody::Error(Some(message.into())),
        }
    }

    /// "Error" style with the message of the status.
    pub fn status_error(status: u16) -> Self {
        Self {
            status,
            headers: HeaderEdits::new(),
            body: ResponseBody::Error(None),
        }
    }

    /// The answer to a request that a plugin fails on. It has the form that the client accepts, and the request id. Source:
    /// kong/init.lua execute_collecting_plugins_iterator().
    pub fn unexpected_error() -> Self {
        Self::error(500, "An unexpected error occurred")
    }

    pub fn with_header(mut self, name: impl HeaderName, value: impl Into<HeaderValue>) -> Self {
        self.headers.set(name, value);
        self
    }
}

/// Who made an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    Upstream,
    /// A plugin ended the request.
    Plugin,
    /// The gateway itself: no route, no upstream, bad request.
    Gateway,
}

/// An answer on its way to the client, as the filter phases see it.
pub struct ResponseCx<'r> {
    pub request: &'r RequestCx<'r>,
    pub origin: Origin,
    pub status: u16,
    /// The head as the upstream sent it; of an answer produced here, none: its headers are all in `headers`.
    pub upstream: Option<&'r ResponseHead>,
    /// Changes to the upstream's headers, or all headers of an answer produced here.
    pub headers: HeaderEdits,
}

impl ResponseCx<'_> {
    /// The first line of a header, changes included.
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

/// A piece of an answer's body.
#[derive(Debug, Clone, Default)]
pub struct Chunk {
    pub data: Bytes,
    pub last: bool,
}
