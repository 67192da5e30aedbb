//! One header line of a head, as offsets into the head's buffer, and the names that the gateway itself acts on.

/// A header that means something to a proxy. Everything else is [`Known::Other`] and passes untouched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
    Other,
    Connection,
    ContentLength,
    ContentType,
    Date,
    Expect,
    Host,
    KeepAlive,
    Proxy,
    ProxyConnection,
    Server,
    Te,
    Trailer,
    TransferEncoding,
    Upgrade,
    Via,
    XForwardedFor,
    XForwardedHost,
    XForwardedPath,
    XForwardedPort,
    XForwardedPrefix,
    XForwardedProto,
    XKongRequestId,
    XRealIp,
}

impl Known {
    /// Finds the name by its length first: most names differ from every known one there, so most cost one comparison.
    #[inline]
    pub fn classify(name: &[u8]) -> Self {
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        match name.len() {
            2 if is("te") => Self::Te,
            3 if is("via") => Self::Via,
            4 if is("host") => Self::Host,
            4 if is("date") => Self::Date,
            5 if is("proxy") => Self::Proxy,
            6 if is("server") => Self::Server,
            6 if is("expect") => Self::Expect,
            7 if is("upgrade") => Self::Upgrade,
            7 if is("trailer") => Self::Trailer,
            9 if is("x-real-ip") => Self::XRealIp,
            10 if is("connection") => Self::Connection,
            10 if is("keep-alive") => Self::KeepAlive,
            12 if is("content-type") => Self::ContentType,
            14 if is("content-length") => Self::ContentLength,
            15 if is("x-forwarded-for") => Self::XForwardedFor,
            16 => classify_16(name),
            17 if is("transfer-encoding") => Self::TransferEncoding,
            17 if is("x-forwarded-proto") => Self::XForwardedProto,
            17 if is("x-kong-request-id") => Self::XKongRequestId,
            18 if is("x-forwarded-prefix") => Self::XForwardedPrefix,
            _ => Self::Other,
        }
    }
}

fn classify_16(name: &[u8]) -> Known {
    let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
    if is("x-forwarded-host") {
        Known::XForwardedHost
    } else if is("x-forwarded-port") {
        Known::XForwardedPort
    } else if is("x-forwarded-path") {
        Known::XForwardedPath
    } else if is("proxy-connection") {
        Known::ProxyConnection
    } else {
        Known::Other
    }
}

/// Where a header line lies in the buffer of its head.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    pub(super) name_start: u32,
    pub(super) value_start: u32,
    pub(super) value_len: u32,
    pub(super) name_len: u16,
    pub(super) known: Known,
}

/// Whether a comma-separated header value holds a token, compared without case.
pub fn list_contains(value: &[u8], token: &[u8]) -> bool {
    value
        .split(|&byte| byte == b',')
        .any(|item| item.trim_ascii().eq_ignore_ascii_case(token))
}
