//! Responses that plugins or the gateway produce: the body and content type of errors, Kong's headers, and the bytes of
//! the head. Callers decide which response to send. This module determines its form.
//! Sources: kong/pdk/response.lua, kong/error_handlers.lua, kong/runloop/handler.lua header_filter.

mod grpc;
mod injected;
mod negotiate;
pub(crate) mod page;
pub mod status;

pub use injected::{Injection, inject};
pub use negotiate::{Format, Templates};

use bytes::Bytes;
use net::http1::RequestHead;
use plugin::{HeaderEdits, HeaderValue, Response, ResponseBody, Stored};
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

const JSON: HeaderValue = HeaderValue::from_static("application/json; charset=utf-8");

/// The product name in responses. It is Kong's, because clients and dashboards look for it.
pub const SERVER: &str = "kong/3.9.1";

/// The settings that responses depend on.
#[derive(Debug, Clone, Default)]
pub struct ResponseSettings {
    pub headers: HeaderSet,
    pub templates: Templates,
    /// `error_default_type`. `None` means plain text.
    pub error_default_type: Option<Format>,
    /// Header changes that the operator has configured for all responses.
    pub injections: Vec<Injection>,
}

/// The Kong headers to send to clients (the setting `headers`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeaderSet {
    pub server: bool,
    pub via: bool,
    pub upstream_latency: bool,
    pub proxy_latency: bool,
    pub response_latency: bool,
    pub upstream_status: bool,
    pub request_id: bool,
    /// Whether text content types without a charset get one, as with `charset UTF-8` in nginx.
    pub charset: bool,
}

impl Default for HeaderSet {
    fn default() -> Self {
        Self::from_names(["server_tokens", "latency_tokens", "X-Kong-Request-Id"])
    }
}

impl HeaderSet {
    pub const OFF: HeaderSet = HeaderSet {
        server: false,
        via: false,
        upstream_latency: false,
        proxy_latency: false,
        response_latency: false,
        upstream_status: false,
        request_id: false,
        charset: true,
    };

    /// Builds the set from the items of the setting. `off` and unknown names are ignored.
    pub fn from_names<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let mut set = Self::OFF;
        for name in names {
            match name.to_ascii_lowercase().as_str() {
                "server_tokens" => (set.server, set.via) = (true, true),
                "latency_tokens" => {
                    set.upstream_latency = true;
                    set.proxy_latency = true;
                    set.response_latency = true;
                }
                "server" => set.server = true,
                "via" => set.via = true,
                "x-kong-upstream-latency" => set.upstream_latency = true,
                "x-kong-proxy-latency" => set.proxy_latency = true,
                "x-kong-response-latency" => set.response_latency = true,
                "x-kong-upstream-status" => set.upstream_status = true,
                "x-kong-request-id" => set.request_id = true,
                _ => {}
            }
        }
        set
    }
}

/// A response that is ready for the filter phases and for writing.
#[derive(Debug, Clone)]
pub struct GatewayResponse {
    pub status: u16,
    pub headers: HeaderEdits,
    pub body: Bytes,
    /// Further pieces of the body. The caller sends them after the head and `body`.
    pub more: Vec<Bytes>,
    /// Whether the body is to be sent in chunks. [`Self::frame`] makes them.
    pub chunked: bool,
    /// Further headers and the start of the body, as a plugin keeps them. `body` is empty then.
    pub stored: Option<Arc<Stored>>,
}

/// Properties of the exchange that the head of a response depends on.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    pub request_id: &'a str,
    /// Value of the `Date` header.
    pub date: &'a str,
    pub latency: Latency,
    /// Whether the connection stays open after this response.
    pub keep_alive: bool,
    /// Whether the request was HEAD: the response then has a length but no body.
    pub head_only: bool,
}

/// Latencies in milliseconds, for the headers.
#[derive(Debug, Clone, Copy)]
pub enum Latency {
    /// No upstream was tried.
    Produced { total: u64 },
    /// An upstream was tried and failed.
    Tried { upstream: u64, proxy: u64 },
}

impl GatewayResponse {
    /// Builds the response of a plugin or the gateway to a gRPC call. If a plugin sets a content type other than
    /// gRPC's, its response is sent unchanged, as in Kong.
    pub fn to_grpc(
        response: Response,
        request: Option<&RequestHead>,
        request_id: &str,
        settings: &ResponseSettings,
    ) -> Self {
        let response = response.open();
        match response.headers.value("content-type") {
            Some(named) if !named.starts_with(grpc::TYPE.as_bytes()) => {
                Self::new(response, request, request_id, settings)
            }
            _ => Self::of_grpc(response),
        }
    }

    /// Builds the response of a plugin or the gateway. Errors get the format that the Accept header asks for. `request`
    /// is `None` if the request head could not be read.
    pub fn new(
        response: Response,
        request: Option<&RequestHead>,
        request_id: &str,
        settings: &ResponseSettings,
    ) -> Self {
        let Response {
            status,
            mut headers,
            body,
            counts_as_proxied: _,
        } = response;
        let of = |headers, body| Self {
            status,
            headers,
            body,
            more: Vec::new(),
            chunked: false,
            stored: None,
        };
        match body {
            ResponseBody::Bytes(body) => of(headers, body),
            ResponseBody::Stored(stored) => Self {
                more: stored.more_pieces().to_vec(),
                stored: Some(stored),
                ..of(headers, Bytes::new())
            },
            ResponseBody::Written(body) => Self {
                chunked: true,
                ..of(headers, body)
            },
            ResponseBody::Pieces(pieces) => {
                let mut pieces = pieces.into_iter();
                Self {
                    body: pieces.next().unwrap_or_default(),
                    more: pieces.collect(),
                    ..of(headers, Bytes::new())
                }
            }
            ResponseBody::Json(body) => {
                if headers.value("content-type").is_none() {
                    headers.set("Content-Type", JSON);
                }
                of(headers, body)
            }
            ResponseBody::Page if !page::is_kongs(status) => match page::of(status) {
                Some(page) => {
                    headers.set("Content-Type", page::TYPE);
                    of(headers, page.into())
                }
                None => of(headers, Bytes::new()),
            },
            ResponseBody::ServerError | ResponseBody::Page => {
                let mut page = Self::server_error(status, None, request, request_id, settings);
                headers.apply(page.headers);
                page.headers = headers;
                page
            }
            ResponseBody::Error(_) if !(400..=599).contains(&status) => {
                tracing::error!(
                    status,
                    "a plugin responded with an error body, but its status is not an error"
                );
                Self::new(Response::unexpected_error(), request, request_id, settings)
            }
            ResponseBody::Error(message) => {
                let format = Format::accepted(request.and_then(|head| head.header("accept")));
                let message = message.unwrap_or_else(|| default_message(status));
                if format == Format::Grpc {
                    // Kong has no content type for this format, and nginx sends the header without a value.
                    headers.set("Content-Type", "");
                }
                Self::error(status, headers, format, &message, request_id, settings)
            }
        }
    }

    /// Builds the response for an error that nginx handles in Kong: bad requests, timeouts, failing upstreams. Its
    /// format also depends on the request's content type. The default format is `error_default_type`. Without
    /// `message`, the usual message of the status is used.
    pub fn server_error(
        status: u16,
        message: Option<&str>,
        request: Option<&RequestHead>,
        request_id: &str,
        settings: &ResponseSettings,
    ) -> Self {
        let message =
            message.map_or_else(|| default_message(status), |text| text.to_owned().into());
        let format = Format::accepted_or(
            request.and_then(|head| head.header("accept")),
            request.and_then(|head| head.header("content-type")),
            settings.error_default_type.unwrap_or(Format::Plain),
        );
        let mut headers = HeaderEdits::new();
        if format == Format::Grpc {
            headers.set("Content-Type", grpc::TYPE);
            headers.set("grpc-status", status::grpc_status(status).to_string());
            headers.set("grpc-message", &*message);
        }
        // 494 is an internal status of nginx for oversized headers; clients get 400.
        let status = if status == 494 { 400 } else { status };
        Self::error(status, headers, format, &message, request_id, settings)
    }

    fn error(
        status: u16,
        mut headers: HeaderEdits,
        format: Format,
        message: &str,
        request_id: &str,
        settings: &ResponseSettings,
    ) -> Self {
        if let Some(content_type) = format.content_type() {
            headers.set("Content-Type", content_type);
        }
        let body = format.body(&settings.templates, message, request_id);
        Self {
            status,
            headers,
            body: body.into(),
            more: Vec::new(),
            chunked: false,
            stored: None,
        }
    }

    /// Puts the whole body into chunks.
    pub fn frame(&mut self) {
        let mut framed = Vec::with_capacity(self.body.len() + 16);
        for piece in std::iter::once(&self.body).chain(&self.more) {
            if !piece.is_empty() {
                framed.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
                framed.extend_from_slice(piece);
                framed.extend_from_slice(b"\r\n");
            }
        }
        framed.extend_from_slice(b"0\r\n\r\n");
        (self.body, self.more) = (framed.into(), Vec::new());
    }

    /// Makes the headers and the body of a response that a plugin keeps those of this response, so that filters see and
    /// change them.
    pub fn open(&mut self) {
        if let Some(stored) = self.stored.take() {
            let mut headers = stored.edits();
            headers.apply(std::mem::take(&mut self.headers));
            (self.headers, self.body) = (headers, stored.first_piece().clone());
        }
    }

    /// Returns the part of the body that follows the head at once. It is empty if the response has no body.
    pub fn start_of_body(&self, head_only: bool) -> &[u8] {
        if head_only || status::is_bodiless(self.status) {
            return &[];
        }
        self.first_piece()
    }

    fn first_piece(&self) -> &Bytes {
        let stored = self.stored.as_ref();
        stored.map_or(&self.body, |stored| stored.first_piece())
    }

    /// Appends the head to `out`. [`Self::start_of_body`] follows. Returns the place of the line `Date`, which is empty if
    /// the response has a date of its own.
    pub fn write_head(
        &self,
        facts: &Facts<'_>,
        settings: &HeaderSet,
        out: &mut Vec<u8>,
    ) -> Range<usize> {
        out.extend_from_slice(b"HTTP/1.1 ");
        out.extend_from_slice(itoa::Buffer::new().format(self.status).as_bytes());
        out.push(b' ');
        out.extend_from_slice(status::reason(self.status).as_bytes());
        out.extend_from_slice(b"\r\n");
        let date = out.len();
        // A stored response keeps its date, from which clients compute its age (RFC 9111, section 4.2.3).
        let stored = self.stored.as_deref();
        let kept = self.headers.value("date");
        let date = match kept.or_else(|| stored?.date()) {
            Some(kept) => {
                line(out, "Date", kept);
                date..date
            }
            None => {
                line(out, "Date", facts.date.as_bytes());
                date..out.len()
            }
        };
        self.write_own_headers(settings, out);
        let connection = match (self.upgrades(), facts.keep_alive) {
            (false, true) => "keep-alive",
            (false, false) => "close",
            // HTTP/1.1 connections stay open by default, so that `keep-alive` is not needed.
            (true, true) => "Upgrade",
            (true, false) => "close, Upgrade",
        };
        line(out, "Connection", connection.as_bytes());
        if self.chunked {
            line(out, "Transfer-Encoding", b"chunked");
        } else if self.has_length() {
            let more: usize = self.more.iter().map(Bytes::len).sum();
            number(
                out,
                "Content-Length",
                (self.first_piece().len() + more) as u64,
            );
        }
        facts.write(settings, out);
        out.extend_from_slice(b"\r\n");
        date
    }

    /// Whether the head has a length. Like nginx, the gateway states that of a body which the status does not allow, as
    /// far as there is one.
    fn has_length(&self) -> bool {
        match self.status {
            100..=199 => false,
            204 => !self.first_piece().is_empty(),
            _ => true,
        }
    }

    /// Whether the response has an `Upgrade` header, as a 426 does. `Connection` must then name it (RFC 9110, section
    /// 7.8).
    fn upgrades(&self) -> bool {
        let connection = self.headers.value("connection");
        connection.is_some_and(|value| value.eq_ignore_ascii_case(b"upgrade"))
            && self.headers.value("upgrade").is_some()
    }

    /// Writes the headers that the plugin or gateway has set, except those that this module determines.
    fn write_own_headers(&self, settings: &HeaderSet, out: &mut Vec<u8>) {
        const DECIDED_HERE: [&str; 5] = [
            "connection",
            "content-length",
            "date",
            "server",
            "transfer-encoding",
        ];
        let adds_charset = settings.charset && may_have_charset(self.status);
        for (name, value) in self.headers.added() {
            if adds_charset && name.eq_ignore_ascii_case("content-type") {
                line(out, name, &with_charset(value));
            } else if !DECIDED_HERE
                .iter()
                .any(|own| name.eq_ignore_ascii_case(own))
            {
                line(out, name, value);
            }
        }
        let mut has_none = self.headers.value("content-type").is_none();
        if let Some(stored) = self.stored.as_deref() {
            if let Some(value) = stored.content_type() {
                has_none = false;
                let value = match adds_charset {
                    true => with_charset(value),
                    false => value.into(),
                };
                line(out, "Content-Type", &value);
            }
            out.extend_from_slice(stored.plain_lines());
        }
        // nginx's default type, for a body without a content type, unless a plugin wants none.
        if has_none && !self.first_piece().is_empty() && !self.headers.drops("content-type") {
            let usual: &[u8] = if adds_charset {
                b"text/plain; charset=UTF-8"
            } else {
                b"text/plain"
            };
            line(out, "Content-Type", usual);
        }
    }
}

impl Facts<'_> {
    fn write(&self, settings: &HeaderSet, out: &mut Vec<u8>) {
        match self.latency {
            Latency::Produced { total } => {
                if settings.response_latency {
                    number(out, "X-Kong-Response-Latency", total);
                }
            }
            Latency::Tried { upstream, proxy } => {
                if settings.upstream_latency {
                    number(out, "X-Kong-Upstream-Latency", upstream);
                }
                if settings.proxy_latency {
                    number(out, "X-Kong-Proxy-Latency", proxy);
                }
            }
        }
        if settings.server {
            line(out, "Server", SERVER.as_bytes());
        }
        if settings.request_id {
            line(out, "X-Kong-Request-Id", self.request_id.as_bytes());
        }
    }
}

fn default_message(status: u16) -> Cow<'static, str> {
    match status::message(status) {
        Some(message) => message.into(),
        None => format!("The upstream server responded with {status}").into(),
    }
}

/// Whether nginx adds a charset to the content type of a response with this status. It leaves redirects as they are.
/// Source: ngx_http_set_charset().
pub fn may_have_charset(status: u16) -> bool {
    !matches!(status, 301 | 302)
}

/// Adds a charset to text types without one, as nginx does under Kong (`charset UTF-8`). Other types stay unchanged.
pub fn with_charset(content_type: &[u8]) -> Cow<'_, [u8]> {
    const TEXTS: [&[u8]; 6] = [
        b"text/html",
        b"text/xml",
        b"text/plain",
        b"text/vnd.wap.wml",
        b"application/javascript",
        b"application/rss+xml",
    ];
    let media_type = content_type.split(|&byte| byte == b';').next();
    let media_type = media_type.unwrap_or_default().trim_ascii();
    let is_text = TEXTS
        .iter()
        .any(|text| media_type.eq_ignore_ascii_case(text));
    if !is_text {
        return Cow::Borrowed(content_type);
    }
    let lower = content_type.to_ascii_lowercase();
    match memchr::memmem::find(&lower, b"charset=") {
        None => Cow::Owned([content_type, b"; charset=UTF-8"].concat()),
        Some(_) => Cow::Borrowed(content_type),
    }
}

fn line(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

fn number(out: &mut Vec<u8>, name: &str, value: u64) {
    line(out, name, itoa::Buffer::new().format(value).as_bytes());
}
