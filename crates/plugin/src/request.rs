//! What a plugin sees of a request: its head as it was read, who sent it, where it is going, who it was found to be from,
//! and the changes made so far. Reading goes through the changes: a plugin sees what earlier ones made of the request.

use crate::args;
use crate::body::{ParsedBody, RequestBody};
use crate::edits::UpstreamEdits;
use crate::lookup::Lookup;
use bytes::Bytes;
use compact_str::CompactString;
pub use model::entities::Consumer;
use net::http1::{Known, RequestHead};
use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use uuid::Uuid;

/// Header lines looked at: `lua_max_req_headers` of Kong.
const MAX_HEADERS: usize = 100;

/// A request while plugins run. One lives from routing to the end of the log phase.
pub struct RequestCx<'r> {
    pub head: &'r RequestHead,
    pub client: Client,
    pub scheme: Scheme,
    /// The client speaks HTTP/2; `head` is its request as HTTP/1.1 says it.
    pub http2: bool,
    /// Of the Host header: lower case, without port.
    pub host: &'r str,
    /// Of the listener, mapped by `port_maps`.
    pub port: u16,
    /// 32 hex digits.
    pub request_id: &'r str,
    /// None before routing.
    pub route: Option<EntityRef<'r>>,
    pub service: Option<EntityRef<'r>>,
    /// What the route's path regex captured.
    pub captures: &'r [Capture<'r>],
    /// The body as far as it was read; [`RequestCx::body_bytes`] is what plugins look at.
    pub body: RequestBody,
    pub lookup: &'r dyn Lookup,
    /// Set by authentication plugins.
    pub consumer: Option<Consumer>,
    /// Set by authentication plugins, not for the anonymous consumer.
    pub credential: Option<Credential>,
    pub upstream: UpstreamEdits,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Client {
    /// After real-IP processing.
    pub ip: IpAddr,
    pub port: u16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    Http,
    Https,
}

impl RequestCx<'_> {
    /// Whether the client makes a call over gRPC: HTTP/2, and a body of that type. It decides how the client is answered, so
    /// what plugins change for the upstream does not count.
    pub fn is_grpc(&self) -> bool {
        self.http2 && self.has_grpc_type()
    }

    /// Whether the client says that its body is gRPC's.
    pub fn has_grpc_type(&self) -> bool {
        let mut types = self.head.known(Known::ContentType);
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

/// A route or a service, for plugins that name it.
#[derive(Debug, Clone, Copy)]
pub struct EntityRef<'r> {
    pub id: Uuid,
    pub name: Option<&'r str>,
}

/// By its name, or by its id if it has none.
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
    /// From 1; 0 where it is told by its name.
    pub number: usize,
    pub value: &'r str,
}

/// How the consumer was recognised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credential {
    pub id: Uuid,
}

/// What is found under a name in headers, query or body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Field<'a> {
    Absent,
    /// There, but not as a text: a query argument without `=`, a JSON number.
    Other,
    Text(Cow<'a, [u8]>),
    /// More than once, or as a JSON list or object.
    Several,
}

impl<'a> Field<'a> {
    /// What several values of the same name come to.
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
    /// The first line of a header, changes included.
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        self.header_lines(name).next()
    }

    /// A header by a configured name: `_` in it also stands for `-`, as in Kong's header tables.
    pub fn header_field(&self, name: &str) -> Field<'_> {
        match self.header_field_exact(name) {
            Field::Absent if name.contains('_') => {
                let dashed: CompactString = name.chars().map(dash).collect();
                // The lines borrow from the request, not from the name.
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
        let looked_at = match edits.drops(name) {
            true => 0,
            false => MAX_HEADERS,
        };
        let read = self.head.header_values_among(looked_at, name);
        read.chain(edits.values(name))
    }

    /// The header lines, changes included.
    pub fn header_pairs(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let edits = &self.upstream.headers;
        let read = self.head.headers().take(MAX_HEADERS);
        read.filter(|(name, _)| !edits.drops(name))
            .chain(edits.added())
    }

    /// The query string, changes included.
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

    /// The whole body, changes included; none when it was not read into memory or was too large for that.
    pub fn body_bytes(&self) -> Option<&Bytes> {
        match (&self.upstream.body, &self.body) {
            (Some(changed), _) => Some(changed),
            (None, RequestBody::Whole(bytes)) => Some(bytes),
            (None, RequestBody::Unread | RequestBody::TooLarge) => None,
        }
    }

    /// The body taken apart as its Content-Type says; none when it cannot be.
    pub fn parse_body(&self) -> Option<ParsedBody> {
        let body = self.body_bytes()?;
        ParsedBody::parse(self.header("content-type")?, body)
    }

    /// Takes every argument of this name out of the query that goes upstream.
    pub fn remove_query_arg(&mut self, name: &str) {
        let query = args::without(self.query().as_bytes(), name.as_bytes());
        self.upstream.query = Some(query);
    }

    /// Takes a header by a configured name out of what goes upstream, under the spellings that
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
