//! What can be asked of a request, and how the asker gets it.

use std::net::IpAddr;
use std::ops::ControlFlow;

/// A field whose values are texts, as bytes: a request need not be UTF-8.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum TextField {
    /// `net.protocol`: `http` or `https`; of streams `tcp`, `udp` or `tls`.
    Protocol,
    /// `tls.sni`.
    Sni,
    /// `http.method`.
    Method,
    /// `http.host`: without its port.
    Host,
    /// The Host header as it was sent. Not in the expression language: the `traditional` flavour compares it.
    SentHost,
    /// The host without its port, if it can match a wildcard of the `traditional` flavour: it cannot with a colon in it.
    /// Not in the expression language.
    WildcardHost,
    /// `http.path`: normalised.
    Path,
    /// `http.path.segments.<first>_<last>`: that many segments of the normalised path with the slashes between them. With
    /// both the same it is `http.path.segments.<first>`. Counted from 0.
    Segments { first: u32, last: u32 },
    /// `http.headers.<name>`, which may have several values. How the name is spelt is between whoever builds the
    /// expression and whoever implements [`Fields`].
    Header(Box<str>),
    /// `http.queries.<name>`, decoded, which may have several values.
    Query(Box<str>),
}

/// A field whose value is an integer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NumberField {
    /// `net.src.port`.
    SourcePort,
    /// `net.dst.port`.
    DestinationPort,
    /// `http.path.segments.len`: a slash at the end adds none.
    SegmentCount,
}

/// A field whose value is an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AddressField {
    /// `net.src.ip`: of the client, after trusted hops.
    Source,
    /// `net.dst.ip`: of the listener.
    Destination,
}

impl TextField {
    /// Whether a request may have several values of it.
    pub fn has_several_values(&self) -> bool {
        matches!(self, Self::Header(_) | Self::Query(_))
    }
}

/// The values of one request.
pub trait Fields {
    /// The value of a field that has at most one; never asked for one that may have several.
    fn text(&self, field: &TextField) -> Option<&[u8]>;

    /// Shows each value of a field that may have several, in order, until told to stop.
    fn texts(&self, field: &TextField, visit: &mut dyn FnMut(&[u8]) -> ControlFlow<()>);

    fn number(&self, field: NumberField) -> Option<i64>;

    /// IPv4 addresses in their own form, not as IPv6.
    fn address(&self, field: AddressField) -> Option<IpAddr>;
}
