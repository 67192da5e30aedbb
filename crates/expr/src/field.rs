//! The fields of a request that an expression can test, and the interface that supplies their values.

use std::net::IpAddr;
use std::ops::ControlFlow;

/// A field whose values are texts. The values are bytes, because a request may contain invalid UTF-8.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum TextField {
    /// `net.protocol`: `http` or `https` for requests, `tcp`, `udp` or `tls` for streams.
    Protocol,
    /// `tls.sni`.
    Sni,
    /// `http.method`.
    Method,
    /// `http.host`: the host without its port.
    Host,
    /// The Host header as it was sent. Only the `traditional` flavor compares it. The expression language has no such
    /// field.
    SentHost,
    /// The host without its port, if it can match a wildcard of the `traditional` flavor. A host that contains a colon
    /// cannot. The expression language has no such field.
    WildcardHost,
    /// `http.path`: the normalised path.
    Path,
    /// `http.path.segments.<first>_<last>`: these segments of the normalised path with the slashes between them,
    /// counted from 0. If both numbers are equal, it is `http.path.segments.<first>`.
    Segments { first: u32, last: u32 },
    /// `http.headers.<name>`, which may have several values. The code that builds the expression and the code that
    /// implements [`Fields`] must agree on the spelling of the name.
    Header(Box<str>),
    /// `http.queries.<name>`: the decoded query arguments of this name. There may be several.
    Query(Box<str>),
}

/// A field whose value is an integer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NumberField {
    /// `net.src.port`.
    SourcePort,
    /// `net.dst.port`.
    DestinationPort,
    /// `http.path.segments.len`: the number of path segments. A slash at the end adds none.
    SegmentCount,
}

/// A field whose value is an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AddressField {
    /// `net.src.ip`: the address of the client, after trusted hops.
    Source,
    /// `net.dst.ip`: the address of the listener.
    Destination,
}

impl TextField {
    /// Whether a request may have several values of this field.
    pub fn has_several_values(&self) -> bool {
        matches!(self, Self::Header(_) | Self::Query(_))
    }
}

/// Supplies the values of one request's fields.
pub trait Fields {
    /// The value of a field that has at most one value. This is never called for a field that may have several values.
    fn text(&self, field: &TextField) -> Option<&[u8]>;

    /// Calls `visit` with each value of a field that may have several values, in order, until `visit` returns `Break`.
    fn texts(&self, field: &TextField, visit: &mut dyn FnMut(&[u8]) -> ControlFlow<()>);

    fn number(&self, field: NumberField) -> Option<i64>;

    /// The value of an address field. IPv4 addresses are returned as such, not as mapped IPv6 addresses.
    fn address(&self, field: AddressField) -> Option<IpAddr>;
}
