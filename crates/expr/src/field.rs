//! What can be asked of a request, and how the asker gets it.

use std::ops::ControlFlow;

/// A field whose values are texts, as bytes: a request need not be UTF-8.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum TextField {
    /// `net.protocol`: `http` or `https`.
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
    /// `http.headers.<name>`, which may have several values. How the name is spelt is between whoever builds the
    /// expression and whoever implements [`Fields`].
    Header(Box<str>),
}

/// A field whose value is an integer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NumberField {
    /// `net.dst.port`.
    DestinationPort,
}

/// The values of one request.
pub trait Fields {
    /// The value of a field that has at most one; never asked for a header.
    fn text(&self, field: &TextField) -> Option<&[u8]>;

    fn number(&self, field: NumberField) -> Option<i64>;

    /// Shows each value of a header, in order, until told to stop.
    fn header(&self, name: &str, visit: &mut dyn FnMut(&[u8]) -> ControlFlow<()>);
}
