//! A plugin's view of a request: the request itself, and what plugins have found out about it.

use crate::args;
use crate::body::{ParsedBody, RequestBody};
use crate::configured::Configured;
use crate::edits::{HeaderEdits, UpstreamEdits};
use crate::node::Node;
use crate::response::Response;
use crate::route_slot::RouteSlot;
use crate::stream::TlsInfo;
use crate::trace::Trace;
use bytes::Bytes;
use compact_str::CompactString;
pub use model::entities::Consumer;
use model::{Object, Value};
use net::http1::{KnownHeader, RequestHead};
use std::any::Any;
use std::borrow::Cow;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;
use uuid::Uuid;

/// Maximum number of header lines that plugins see (`lua_max_req_headers` in Kong).
pub(crate) const MAX_HEADERS: usize = 100;

/// The context of `rewrite` and `access`.
pub struct RequestCx<'c, 'r> {
    pub request: &'c mut Request<'r>,
    pub state: &'c mut RequestState,
    pub configured: Configured<'c>,
    pub node: &'c Arc<Node>,
}

/// A request: as the client sent it, its route, and the changes that plugins have made. It is created when its head has
/// arrived and dropped after the log phase. It does not change after `access`.
///
/// Headers, method, query and body are one request for all plugins: the methods include the changes, so that a plugin
/// sees the request as earlier plugins have left it. Path and target stay as they were received.
pub struct Request<'r> {
    pub head: &'r RequestHead,
    /// Client address after real-IP processing.
    pub client: Client,
    /// Address of the peer that opened the connection.
    pub peer: SocketAddr,
    /// Address that the client connected to. `None` if it is not known.
    pub local: Option<IpAddr>,
    /// Number of requests on the connection, with this one.
    pub connection_requests: u32,
    pub scheme: Scheme,
    /// Whether the client uses HTTP/2. `head` then has the request in its HTTP/1.1 form.
    pub http2: bool,
    /// Whether the request is a gRPC call: HTTP/2 with gRPC's content type. This determines the form of responses to
    /// the client, so it is taken from the request as it was received.
    pub is_grpc: bool,
    /// Host from the Host header, in lower case and without port.
    pub host: &'r str,
    /// Port of the listener, mapped by `port_maps`.
    pub port: u16,
    /// The request id: 32 hex digits.
    pub request_id: &'r str,
    /// When the request began.
    pub started: Instant,
    /// Server name from the TLS handshake.
    pub sni: Option<&'r str>,
    /// TLS of the connection, if the client uses it.
    pub tls: Option<&'r TlsInfo>,
    /// The route. `None` before routing, and if no route matches.
    pub route: Option<EntityRef<'r>>,
    pub service: Option<EntityRef<'r>>,
    /// The first path of the route, for plugins that show it. Empty if it has none.
    pub route_path: &'r str,
    /// The place of the route for what a plugin has prepared for it.
    pub slot: Option<&'r RouteSlot>,
    /// The captures of the route's path regex.
    pub captures: Vec<Capture>,
    /// The upstream path that routing has determined. Empty before routing.
    pub routed: RoutedUri,
    /// The client's body, if it was read. Plugins use [`Request::body_bytes`], which includes changes.
    pub body: RequestBody,
    pub upstream: UpstreamEdits,
}

/// A limit for the body of a request. The gateway counts the payload as it arrives, so that the plugin need not read the
/// body into memory. It sends the response as soon as there is too much. A request whose body streams to the upstream may
/// have reached it by then, but incomplete.
#[derive(Debug, Clone)]
pub struct BodyLimit {
    /// Maximum payload in bytes.
    pub most: u64,
    pub refusal: Response,
}

/// The upstream path that routing has determined, and the prefix that the route stripped from it.
#[derive(Debug, Clone, Default)]
pub struct RoutedUri {
    /// The path, followed by the prefix.
    pub bytes: Vec<u8>,
    pub path_length: usize,
    pub strips: bool,
}

impl RoutedUri {
    #[inline]
    pub fn path(&self) -> &[u8] {
        &self.bytes[..self.path_length]
    }

    /// The stripped prefix. `None` if the route strips nothing.
    #[inline]
    pub fn stripped(&self) -> Option<&[u8]> {
        self.strips.then(|| &self.bytes[self.path_length..])
    }
}

/// What plugins have found out about a request, and what they tell each other. It may change up to the log phase, in
/// the order of the plugins.
#[derive(Debug, Default)]
pub struct RequestState {
    /// The consumer, set by authentication plugins.
    pub consumer: Option<Arc<Consumer>>,
    /// The credential, set by authentication plugins. `None` for the anonymous consumer.
    pub credential: Option<Credential>,
    /// What Lua code has told about the credential. It counts only as long as `credential` has its id.
    pub told_credential: Option<ToldCredential>,
    /// Groups of the client that an authentication plugin has found, for instance in a directory.
    pub groups: Vec<CompactString>,
    /// Values that plugins share (`kong.ctx.shared`). Lua code has a table of its own: when it reads it, it takes all
    /// values out of here. A null removes the value of its name there.
    pub shared: Object,
    /// Headers for the response, set before there is one. They come before the upstream's headers with the same names.
    pub headers: HeaderEdits,
    /// Fields for the log record (`kong.log.set_serialize_value`), in the order in which they were set.
    pub log_fields: Vec<LogField>,
    /// Whether no plugin of the request logs, so that nobody will read `log_fields`.
    pub is_unlogged: bool,
    /// Addresses of the upstream servers that were contacted for the request so far.
    pub tried: Vec<SocketAddr>,
    /// What an interpreter keeps for the request, such as its tables, for all plugins that it runs.
    pub interpreter: Option<Box<dyn Any + Send>>,
    /// The path of the last internal redirect.
    pub internal_path: Option<Bytes>,
    /// A limit for the client's body that a plugin has set. Boxed because it is rare.
    pub body_limit: Option<Box<BodyLimit>>,
    /// The trace id and the recorded spans.
    pub trace: Trace,
    /// Set by a plugin whose `access` responds although it wants the upstream's response, too. When the client has its
    /// response, the request goes on without the client, as if the plugin had not responded: the later plugins run, and
    /// the filters see the upstream's response, which nobody gets. `log` does not run again. Requests with a body do not
    /// go on, and the gateway may end a request that does at any time.
    pub goes_on: bool,
}

/// Where a request goes on within the gateway (`ngx.exec`). Kong routes by the target that the client has sent, so the
/// path does not lead to another route; only Lua code sees it. What plugins have set in the request stays, except for
/// its upstream; what they have found out about it is forgotten.
/// Source: nginx, ngx_http_internal_redirect; kong/router/init.lua (`request_uri`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InternalRedirect {
    pub path: Bytes,
    /// The query that takes the place of the request's, without `?`.
    pub query: Vec<u8>,
}

/// A change to the log record of a request.
#[derive(Debug, Clone, PartialEq)]
pub struct LogField {
    /// Path of the field, with dots between the names of nested objects.
    pub key: CompactString,
    /// `None` removes the field.
    pub value: Option<Value>,
    pub mode: LogFieldMode,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFieldMode {
    Set,
    /// Only if the field is absent.
    Add,
    /// Only if the field is present.
    Replace,
}

impl RequestState {
    /// Sets the consumer. If there was another one, its groups are forgotten, and the result is true.
    pub fn set_consumer(&mut self, consumer: Option<Arc<Consumer>>) -> bool {
        let id = |consumer: &Option<Arc<Consumer>>| consumer.as_ref().map(|consumer| consumer.id);
        let (former, new) = (id(&self.consumer), id(&consumer));
        self.consumer = consumer;
        let forgets = former.is_some() && former != new && !self.groups.is_empty();
        if forgets {
            self.groups.clear();
        }
        forgets
    }

    /// Returns what Lua code has told about the credential, unless another plugin has found another one since then.
    pub fn told_credential(&self) -> Option<&ToldCredential> {
        let id = self.credential.as_ref()?.id;
        self.told_credential.as_ref().filter(|told| told.id == id)
    }

    /// Forgets the request but keeps the memory of the lists.
    #[inline]
    pub fn clear(&mut self) {
        self.trace.clear();
        self.headers.clear();
        self.tried.clear();
        (self.goes_on, self.is_unlogged) = (false, false);
        if !self.has_nothing_to_drop() {
            self.clear_rest();
        }
    }

    /// Whether plugins have found out nothing that must be dropped. One comparison for all fields takes less code than one
    /// for each.
    #[inline]
    fn has_nothing_to_drop(&self) -> bool {
        self.consumer.is_none()
            & self.credential.is_none()
            & self.told_credential.is_none()
            & self.groups.is_empty()
            & self.shared.is_empty()
            & self.log_fields.is_empty()
            & self.interpreter.is_none()
            & self.internal_path.is_none()
            & self.body_limit.is_none()
    }

    #[inline(never)]
    fn clear_rest(&mut self) {
        const KEPT: usize = 16;
        let Self {
            consumer,
            credential,
            told_credential,
            groups,
            shared,
            headers: _,
            log_fields,
            is_unlogged: _,
            tried: _,
            interpreter,
            internal_path,
            body_limit,
            trace: _,
            goes_on: _,
        } = self;
        *body_limit = None;
        *interpreter = None;
        *internal_path = None;
        *consumer = None;
        *credential = None;
        *told_credential = None;
        groups.clear();
        match shared.len() <= KEPT {
            true => shared.clear(),
            false => *shared = Object::new(),
        }
        log_fields.clear();
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Client {
    /// IP address after real-IP processing.
    pub ip: IpAddr,
    pub port: u16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    Http,
    Https,
}

impl Scheme {
    pub fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }
}

/// Reference to a route or a service, for plugins that show it.
#[derive(Debug, Clone, Copy)]
pub struct EntityRef<'r> {
    pub id: Uuid,
    pub name: Option<&'r str>,
}

/// Writes the name, or the id if the entity has no name.
impl fmt::Display for EntityRef<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name {
            Some(name) => formatter.write_str(name),
            None => self.id.fmt(formatter),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capture {
    pub name: Option<String>,
    /// Number of the group, counted from 1. 0 is the whole match if there is no `name`.
    pub number: usize,
    pub value: String,
}

/// The credential that identified the consumer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credential {
    pub id: Uuid,
}

/// The credential of `kong.client.authenticate`, which may be any table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToldCredential {
    /// The id of the credential. If the table's id is no UUID, an id that is made of its text. Nil if it has none.
    pub id: Uuid,
    /// The id as it is in the table.
    pub text: Option<CompactString>,
    /// `consumer_id` of the table, if it is a UUID.
    pub consumer: Option<Uuid>,
}

impl ToldCredential {
    pub fn new(text: Option<CompactString>, consumer: Option<Uuid>) -> Self {
        const NAMESPACE: Uuid = Uuid::from_u128(0x6a0e_7d53_94c1_4f0e_8b02_51c7_3de8_a96f);
        let id = match &text {
            None => Uuid::nil(),
            Some(text) => {
                Uuid::try_parse(text).unwrap_or_else(|_| Uuid::new_v5(&NAMESPACE, text.as_bytes()))
            }
        };
        Self { id, text, consumer }
    }
}

/// The value or values with one name in headers, query or body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Field<'a> {
    Absent,
    /// A value that is not a text, such as a query argument without `=` or a JSON number.
    Other,
    Text(Cow<'a, [u8]>),
    /// Several values, or a JSON list or object.
    Several,
}

impl<'a> Field<'a> {
    /// Combines all values with the same name.
    pub(crate) fn collect(values: impl Iterator<Item = Option<Cow<'a, [u8]>>>) -> Self {
        // A loop over a chain of iterators is slow if it asks them one by one.
        values.fold(Self::Absent, |field, value| match (field, value) {
            (Self::Absent, Some(text)) => Self::Text(text),
            (Self::Absent, None) => Self::Other,
            _ => Self::Several,
        })
    }
}

impl<'r> Request<'r> {
    /// Returns a plain request without a route, for tests and measurements.
    pub fn bare(head: &'r RequestHead) -> Self {
        let client = SocketAddr::from(([127, 0, 0, 1], 1));
        Self {
            head,
            client: Client {
                ip: client.ip(),
                port: client.port(),
            },
            peer: client,
            local: Some(client.ip()),
            connection_requests: 1,
            scheme: Scheme::Http,
            http2: false,
            is_grpc: false,
            host: "a",
            port: 80,
            request_id: "0123456789abcdef0123456789abcdef",
            started: Instant::now(),
            sni: None,
            tls: None,
            route: None,
            service: None,
            route_path: "",
            slot: None,
            captures: Vec::new(),
            routed: RoutedUri::default(),
            body: RequestBody::Unread,
            upstream: UpstreamEdits::default(),
        }
    }
}

impl Request<'_> {
    /// Whether the client's content type is that of gRPC.
    pub fn has_grpc_type(head: &RequestHead) -> bool {
        let mut types = head.known(KnownHeader::ContentType);
        types
            .next()
            .is_some_and(|content_type| content_type.starts_with(b"application/grpc"))
    }

    /// Whether the client's content type is that of gRPC-Web.
    pub fn has_grpc_web_type(head: &RequestHead) -> bool {
        let mut types = head.known(KnownHeader::ContentType);
        types
            .next()
            .is_some_and(|content_type| content_type.starts_with(b"application/grpc-web"))
    }

    /// The method, after changes.
    pub fn method(&self) -> &str {
        match &self.upstream.method {
            Some(method) => method,
            None => self.head.method(),
        }
    }

    /// The method as bytes, after changes. This saves the UTF-8 check of the client's method.
    #[inline]
    pub fn method_bytes(&self) -> &[u8] {
        match &self.upstream.method {
            Some(method) => method.as_bytes(),
            None => self.head.method_bytes(),
        }
    }

    /// Path for the upstream, without query, after changes.
    #[inline]
    pub fn upstream_path(&self) -> &[u8] {
        match &self.upstream.path {
            Some(path) => path.as_bytes(),
            None => self.routed.path(),
        }
    }

    /// Query for the upstream, after changes. A lone `?` is kept.
    #[inline]
    pub fn upstream_query(&self) -> Option<&[u8]> {
        match &self.upstream.query {
            Some(query) => Some(query.as_slice()).filter(|query| !query.is_empty()),
            None => self.head.query_bytes(),
        }
    }

    /// Returns the first value of a header, after changes. Like all methods that do not say otherwise, it looks at the
    /// first 100 header lines that the client sent, as Kong's header tables do.
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        self.header_lines(name).next()
    }

    /// Returns a header by a configured name. A `_` in the name also matches `-`, as in Kong's header tables.
    pub fn header_field(&self, name: &str) -> Field<'_> {
        match self.header_field_exact(name) {
            Field::Absent if name.contains('_') => {
                let dashed: CompactString = name.chars().map(dash).collect();
                // The lines borrow from the request, not from `dashed`.
                let mut lines = self.header_lines(&dashed).map(|line| Some(Cow::from(line)));
                Field::collect(&mut lines)
            }
            field => field,
        }
    }

    /// Returns the first value of a header by a configured name, as [`Request::header_field`] finds it.
    pub fn first_header_field(&self, name: &str) -> Option<&[u8]> {
        let dashed = || {
            let dashed: CompactString = name.chars().map(dash).collect();
            self.header(&dashed)
        };
        let found = self.header(name);
        match name.contains('_') {
            true => found.or_else(dashed),
            false => found,
        }
    }

    /// Returns the first cookie with this name, which may be empty. The case of names does not matter.
    /// Source: nginx, ngx_http_parse_multi_header_lines().
    pub fn cookie(&self, name: &str) -> Option<&[u8]> {
        let mut lines = self.every_header_line("cookie");
        lines.find_map(|line| cookie_in(line, name.as_bytes()))
    }

    fn header_field_exact(&self, name: &str) -> Field<'_> {
        Field::collect(self.header_lines(name).map(|line| Some(Cow::from(line))))
    }

    fn header_lines<'s, 'n>(
        &'s self,
        name: &'n str,
    ) -> impl Iterator<Item = &'s [u8]> + use<'s, 'n> {
        let edits = &self.upstream.headers;
        let looked_at = if edits.drops(name) { 0 } else { MAX_HEADERS };
        let read = self.head.header_values_among(looked_at, name.as_bytes());
        read.chain(edits.values(name.as_bytes()))
    }

    /// Returns the values of all lines with this name, after changes, however many lines the request has. For plugins
    /// that change headers: one that they did not see would stay.
    pub fn every_header_line<'s, 'n, N: AsRef<[u8]> + ?Sized>(
        &'s self,
        name: &'n N,
    ) -> impl Iterator<Item = &'s [u8]> + use<'s, 'n, N> {
        let name = name.as_ref();
        let edits = &self.upstream.headers;
        let looked_at = if edits.drops(name) { 0 } else { usize::MAX };
        let read = self.head.header_values_among(looked_at, name);
        read.chain(edits.values(name))
    }

    /// The names and values of all header lines, after changes, as the upstream sees them.
    pub fn header_pairs(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.header_pairs_among(usize::MAX)
    }

    /// The names and values of the first 100 header lines that the client sent, and of those that plugins have added.
    /// These are the headers that Kong shows to plugins. A client can hide a header from a plugin behind 100 others, so
    /// decisions use [`Request::header_pairs`].
    pub fn first_header_pairs(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.header_pairs_among(MAX_HEADERS)
    }

    fn header_pairs_among(&self, looked_at: usize) -> impl Iterator<Item = (&str, &[u8])> {
        let edits = &self.upstream.headers;
        let read = self.head.headers().take(looked_at);
        read.filter(|(name, _)| !edits.drops(name))
            .chain(edits.added())
    }

    /// The query string, after changes.
    pub fn query(&self) -> &[u8] {
        match &self.upstream.query {
            Some(query) => query,
            None => self.head.query_bytes().unwrap_or_default(),
        }
    }

    pub fn query_field(&self, name: &str) -> Field<'_> {
        let args = args::parse(self.query());
        Field::collect(
            args.filter(|arg| *arg.name == *name.as_bytes())
                .map(|arg| arg.value),
        )
    }

    /// Returns the whole body, after changes. Returns `None` if it was not read into memory or was too large.
    pub fn body_bytes(&self) -> Option<&Bytes> {
        match (&self.upstream.body, &self.body) {
            (Some(changed), _) => Some(changed),
            (None, RequestBody::Whole(bytes)) => Some(bytes),
            (None, RequestBody::Unread | RequestBody::TooLarge | RequestBody::Streamed) => None,
        }
    }

    /// Parses the body according to its Content-Type. Returns `None` if that is not possible.
    pub fn parse_body(&self) -> Option<ParsedBody> {
        let body = self.body_bytes()?;
        ParsedBody::parse(self.header("content-type")?, body)
    }

    /// Removes all arguments with this name from the query for the upstream.
    pub fn remove_query_arg(&mut self, name: &str) {
        let query = args::without(self.query(), name.as_bytes());
        self.upstream.query = Some(query.into_bytes());
    }

    /// Removes a header by a configured name from the request for the upstream, in all spellings that
    /// [`Request::header_field`] finds.
    pub fn remove_header_field(&mut self, name: &str) {
        if name.contains('_') {
            let dashed: CompactString = name.chars().map(dash).collect();
            self.upstream.headers.remove(dashed);
        }
        self.upstream.headers.remove(CompactString::from(name));
    }

    pub fn set_upstream_body(&mut self, body: impl Into<Bytes>) {
        self.upstream.body = Some(body.into());
    }
}

/// Returns the first cookie with this name in a line, as [`Request::cookie`]. A comma ends a cookie that has another name,
/// but is part of a value.
pub fn cookie_in<'l>(line: &'l [u8], name: &[u8]) -> Option<&'l [u8]> {
    let mut rest = line;
    while !rest.is_empty() {
        if let Some((start, after)) = rest.split_at_checked(name.len())
            && start.eq_ignore_ascii_case(name)
            && let Some(value) = after.trim_ascii_start().strip_prefix(b"=")
        {
            let end = memchr::memchr(b';', value).unwrap_or(value.len());
            return Some(value[..end].trim_ascii_start());
        }
        let end = memchr::memchr2(b';', b',', rest)?;
        rest = rest[end + 1..].trim_ascii_start();
    }
    None
}

fn dash(letter: char) -> char {
    if letter == '_' { '-' } else { letter }
}

#[cfg(test)]
mod tests {
    use super::cookie_in;

    #[test]
    fn cookies_are_found_as_by_nginx() {
        let cases = [
            ("jwt=a", Some("a")),
            ("x=1; jwt=a; jwt=b", Some("a")),
            ("x=1;JWT=a", Some("a")),
            ("x=1, jwt=a,b; y=2", Some("a,b")),
            ("jwt = a ;y=1", Some("a ")),
            ("jwt=", Some("")),
            ("jwt=a=b", Some("a=b")),
            ("x-jwt=a; jwtx=b; jwt", None),
            ("", None),
        ];
        for (line, wanted) in cases {
            let found = cookie_in(line.as_bytes(), b"jwt");
            assert_eq!(found, wanted.map(str::as_bytes), "{line}");
        }
    }

    #[test]
    fn a_cookie_costs_as_much_to_find_as_the_line_is_long() {
        testkit::cost::assert_linear(
            5_000,
            |size| ["jwt;", "jwt ", "jwt=,", ",", " "].map(|piece| piece.repeat(size)),
            |lines| {
                for line in &lines {
                    std::hint::black_box(cookie_in(line.as_bytes(), b"nope"));
                    std::hint::black_box(cookie_in(line.as_bytes(), b"jwt"));
                }
            },
        );
    }
}
