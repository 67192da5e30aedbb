//! The request as the router receives it, and the fields that expressions see in it.

use crate::host::{self, Host};
use crate::query::Arguments;
use crate::segments::Segments;
use crate::{Flavor, Options};
use expr::{AddressField, Fields, NumberField, TextField};
use std::cell::{Cell, Ref, RefCell};
use std::net::{IpAddr, SocketAddr};
use std::ops::ControlFlow;

/// A request to find a route for.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// The method as sent.
    pub method: &'a str,
    /// The path as sent, up to the `?`.
    pub path: &'a [u8],
    /// The Host header as sent, or its substitute.
    pub host: Option<&'a [u8]>,
    /// The scheme of the connection; forwarding headers are ignored.
    pub scheme: Scheme,
    /// The server name of the TLS handshake.
    pub sni: Option<&'a str>,
    /// The query as sent, after the `?`.
    pub query: Option<&'a [u8]>,
    /// The client address, as reported by a trusted proxy if there is one. The port is 0 if the proxy does not report
    /// it.
    pub source: Option<SocketAddr>,
    /// The address that the client connected to. If it is `None`, [`HeaderSource::destination`] is called.
    pub destination: Option<IpAddr>,
    /// The port of the listener, as clients see it.
    pub port: u16,
    pub headers: &'a dyn HeaderSource,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    Http,
    Https,
}

/// Gives access to the headers of a request.
pub trait HeaderSource {
    /// Calls `visit` with name and value of each header line, in order. Names may be in any case.
    fn each(&self, visit: &mut dyn FnMut(&[u8], &[u8]));

    /// Returns the address that the client connected to. This is a method because finding it out may cost a system
    /// call, so it is called only for routes that compare the address.
    fn destination(&self) -> Option<IpAddr> {
        None
    }
}

impl<N: AsRef<[u8]>, V: AsRef<[u8]>> HeaderSource for Vec<(N, V)> {
    fn each(&self, visit: &mut dyn FnMut(&[u8], &[u8])) {
        for (name, value) in self {
            visit(name.as_ref(), value.as_ref());
        }
    }
}

impl Scheme {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    fn default_port(self) -> i64 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

/// Parts of a request that are parsed when the first route needs them. The memory is reused from request to request.
#[derive(Default)]
pub(crate) struct Parts {
    segments: Lazy<Segments>,
    arguments: Lazy<Arguments>,
}

#[derive(Default)]
struct Lazy<T> {
    is_read: Cell<bool>,
    part: RefCell<T>,
}

impl<T> Lazy<T> {
    fn get(&self, read: impl FnOnce(&mut T)) -> Ref<'_, T> {
        if !self.is_read.replace(true) {
            read(&mut self.part.borrow_mut());
        }
        self.part.borrow()
    }
}

impl Parts {
    /// Marks all parts as not parsed. Must be called between requests.
    pub(crate) fn forget(&mut self) {
        self.segments.is_read.set(false);
        self.arguments.is_read.set(false);
    }
}

/// A request as the expressions of one flavor see it.
pub(crate) struct View<'a> {
    request: &'a Request<'a>,
    flavor: Flavor,
    max_headers: usize,
    max_arguments: usize,
    parts: &'a Parts,
    path: &'a [u8],
    host: Option<&'a [u8]>,
    wildcard_host: Option<&'a [u8]>,
    port: i64,
}

impl<'a> View<'a> {
    /// `path` is the normalized path. `parts` must not contain data of another request.
    pub(crate) fn new(
        request: &'a Request<'a>,
        path: &'a [u8],
        parts: &'a Parts,
        options: &Options,
    ) -> Self {
        let mut view = Self {
            request,
            flavor: options.flavor,
            max_headers: options.max_headers,
            max_arguments: options.max_arguments,
            parts,
            path,
            host: None,
            wildcard_host: None,
            port: match options.flavor {
                Flavor::Traditional => request.scheme.default_port(),
                Flavor::TraditionalCompatible | Flavor::Expressions => i64::from(request.port),
            },
        };
        if let Some(sent) = request.host {
            view.read_host(sent);
        }
        view
    }

    fn read_host(&mut self, sent: &'a [u8]) {
        let port = match self.flavor {
            Flavor::Traditional => {
                let host = Host::parse(sent);
                self.host = Some(host.name);
                self.wildcard_host = host.wildcard_name();
                host.port
            }
            Flavor::TraditionalCompatible | Flavor::Expressions => {
                let (name, port) = host::split(sent);
                self.host = Some(name);
                port
            }
        };
        self.port = port.unwrap_or(self.port);
    }

    /// Whether a header line has the name that a route uses, which is in lower case. Outside `traditional`, routes use
    /// header names in which `_` replaces `-`, as in Kong.
    fn is_named(&self, sent: &[u8], name: &[u8]) -> bool {
        let spelt = |byte: u8| match (self.flavor, byte) {
            (Flavor::TraditionalCompatible | Flavor::Expressions, b'-') => b'_',
            _ => byte.to_ascii_lowercase(),
        };
        let pairs = || sent.iter().zip(name);
        sent.len() == name.len() && pairs().all(|(&byte, &wanted)| spelt(byte) == wanted)
    }

    fn segments(&self) -> Ref<'_, Segments> {
        let segments = &self.parts.segments;
        segments.get(|segments| segments.read(self.path))
    }

    fn arguments(&self) -> Ref<'_, Arguments> {
        let query = self.request.query.unwrap_or(b"");
        let arguments = &self.parts.arguments;
        arguments.get(|arguments| arguments.read(query, self.max_arguments))
    }

    fn headers(&self, name: &str, visit: &mut dyn FnMut(&[u8]) -> ControlFlow<()>) {
        let mut left = self.max_headers;
        self.request.headers.each(&mut |sent, value| {
            if left == 0 {
                return;
            }
            left -= 1;
            if self.is_named(sent, name.as_bytes()) && visit(value).is_break() {
                left = 0;
            }
        });
    }
}

impl Fields for View<'_> {
    fn text(&self, field: &TextField) -> Option<&[u8]> {
        match field {
            TextField::Path => Some(self.path),
            TextField::Host => self.host,
            TextField::SentHost => self.request.host,
            TextField::WildcardHost => self.wildcard_host,
            TextField::Method => Some(self.request.method.as_bytes()),
            TextField::Protocol => Some(self.request.scheme.name().as_bytes()),
            TextField::Sni => self.request.sni.map(str::as_bytes),
            TextField::Segments { first, last } => self.segments().joined(self.path, *first, *last),
            TextField::Header(_) | TextField::Query(_) => None,
        }
    }

    fn number(&self, field: NumberField) -> Option<i64> {
        match field {
            NumberField::DestinationPort => Some(self.port),
            NumberField::SourcePort => {
                let port = self.request.source.map(|source| source.port());
                port.filter(|&port| port != 0).map(i64::from)
            }
            NumberField::SegmentCount => i64::try_from(self.segments().count()).ok(),
        }
    }

    fn address(&self, field: AddressField) -> Option<IpAddr> {
        let address = match field {
            AddressField::Source => self.request.source.map(|source| source.ip()),
            AddressField::Destination => {
                let known = self.request.destination;
                known.or_else(|| self.request.headers.destination())
            }
        };
        address.map(|address| address.to_canonical())
    }

    fn texts(&self, field: &TextField, visit: &mut dyn FnMut(&[u8]) -> ControlFlow<()>) {
        match field {
            TextField::Header(name) => self.headers(name, visit),
            TextField::Query(name) => {
                let arguments = self.arguments();
                // Whether the visitor stopped early does not matter.
                let _ = arguments.values(name.as_bytes()).try_for_each(visit);
            }
            _ => {}
        }
    }
}
