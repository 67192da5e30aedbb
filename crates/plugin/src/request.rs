//! A plugin's view of a request: head, client, route and service, consumer, and the changes made so far. The accessors
//! include the changes, so that a plugin sees the request as earlier plugins have left it.

use crate::args;
use crate::body::{ParsedBody, RequestBody};
use crate::edits::UpstreamEdits;
use crate::lookup::Lookup;
use bytes::Bytes;
use compact_str::CompactString;
pub use model::entities::Consumer;
use net::http1::{KnownHeader, RequestHead};
use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use uuid::Uuid;

/// Maximum number of header lines that plugins see (`lua_max_req_headers` in Kong).
const MAX_HEADERS: usize = 100;

/// The context of a request for plugins. It is created after routing and dropped after the log phase.
pub struct RequestCx<'r> {
    pub head: &'r RequestHead,
    pub client: Client,
    pub scheme: Scheme,
    /// Whether the client uses HTTP/2. `head` then has the request in its HTTP/1.1 form.
    pub http2: bool,
    /// Host from the Host header, in lower case and without port.
    pub host: &'r str,
    /// Port of the listener, mapped by `port_maps`.
    pub port: u16,
    /// The request id: 32 hex digits.
    pub request_id: &'r str,
    /// The route. `None` if no route matches.
    pub route: Option<EntityRef<'r>>,
    pub service: Option<EntityRef<'r>>,
    /// The captures of the route's path regex.
    pub captures: &'r [Capture<'r>],
    /// The client's body, if it was read. Plugins use [`RequestCx::body_bytes`], which includes changes.
    pub body: RequestBody,
    pub lookup: &'r dyn Lookup,
    /// The consumer, set by authentication plugins.
    pub consumer: Option<Consumer>,
    /// The credential, set by authentication plugins. `None` for the anonymous consumer.
    pub credential: Option<Credential>,
    pub upstream: UpstreamEdits,
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

impl RequestCx<'_> {
    /// Whether the request is a gRPC call: HTTP/2 with gRPC's content type. This determines the form of responses to
    /// the client, so that changes for the upstream do not count.
    pub fn is_grpc(&self) -> bool {
        self.http2 && self.has_grpc_type()
    }

    /// Whether the client's content type is that of gRPC.
    pub fn has_grpc_type(&self) -> bool {
        let mut types = self.head.known(KnownHeader::ContentType);
        types
            .next()
            .is_some_and(|content_type| content_type.starts_with(b"application/grpc"))
    }
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

#[derive(Debug, Clone, Copy)]
pub struct Capture<'r> {
    pub name: Option<&'r str>,
    /// Number of the group, counted from 1, or 0 if the capture is identified by `name`.
    pub number: usize,
    pub value: &'r str,
}

/// The credential that identified the consumer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credential {
    pub id: Uuid,
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
    pub(crate) fn collect(mut values: impl Iterator<Item = Option<Cow<'a, [u8]>>>) -> Self {
        match (values.next(), values.next()) {
            (None, _) => Self::Absent,
            (Some(_), Some(_)) => Self::Several,
            (Some(Some(text)), None) => Self::Text(text),
            (Some(None), None) => Self::Other,
        }
    }
}

impl RequestCx<'_> {
    /// Returns the first value of a header, after changes.
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

    fn header_field_exact(&self, name: &str) -> Field<'_> {
        Field::collect(self.header_lines(name).map(|line| Some(Cow::from(line))))
    }

    fn header_lines<'s, 'n>(
        &'s self,
        name: &'n str,
    ) -> impl Iterator<Item = &'s [u8]> + use<'s, 'n> {
        let edits = &self.upstream.headers;
        let looked_at = if edits.drops(name) { 0 } else { MAX_HEADERS };
        let read = self.head.header_values_among(looked_at, name);
        read.chain(edits.values(name))
    }

    /// The names and values of all header lines, after changes.
    pub fn header_pairs(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let edits = &self.upstream.headers;
        let read = self.head.headers().take(MAX_HEADERS);
        read.filter(|(name, _)| !edits.drops(name))
            .chain(edits.added())
    }

    /// The query string, after changes.
    pub fn query(&self) -> &str {
        match &self.upstream.query {
            Some(query) => query,
            None => self.head.query().unwrap_or_default(),
        }
    }

    pub fn query_field(&self, name: &str) -> Field<'_> {
        let args = args::parse(self.query().as_bytes());
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
            (None, RequestBody::Unread | RequestBody::TooLarge) => None,
        }
    }

    /// Parses the body according to its Content-Type. Returns `None` if that is not possible.
    pub fn parse_body(&self) -> Option<ParsedBody> {
        let body = self.body_bytes()?;
        ParsedBody::parse(self.header("content-type")?, body)
    }

    /// Removes all arguments with this name from the query for the upstream.
    pub fn remove_query_arg(&mut self, name: &str) {
        let query = args::without(self.query().as_bytes(), name.as_bytes());
        self.upstream.query = Some(query);
    }

    /// Removes a header by a configured name from the request for the upstream, in all spellings that
    /// [`RequestCx::header_field`] finds.
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

fn dash(letter: char) -> char {
    if letter == '_' { '-' } else { letter }
}
