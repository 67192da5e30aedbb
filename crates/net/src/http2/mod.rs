//! HTTP/2 on both sides, translated for the HTTP/1.1 engine. A client's stream ([`ClientStream`]) is read as the
//! HTTP/1.1 text of its request and accepts the text of the response. A stream to an upstream ([`UpstreamStream`])
//! accepts the text of the request and is read as the text of the response. The `h2` crate implements the protocol (RFC
//! 9113, RFC 7541); this module adds the checks that `h2` leaves to its user.
//!
//! This module does not interpret requests. The engine parses their text as strictly as the text of an HTTP/1.1 client.

mod chunks;
mod client_stream;
mod dial;
mod link;
mod links;
mod receiving;
mod sending;
mod server;
#[cfg(test)]
mod tests;
mod text;
mod upstream_stream;
mod wire;

pub use client_stream::ClientStream;
pub use dial::{Dial, DialFailure, Dialed, Dialer};
pub use h2::Reason;
pub use link::{Driver, Link};
pub use links::{Found, LinkKey, LinkSettings, Links, Wanted};
pub use server::{Ended, Server, ServerSettings};
pub use upstream_stream::UpstreamStream;

use std::io::{self, ErrorKind};

/// First bytes of a client with prior knowledge of HTTP/2 (RFC 9113 section 3.4).
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Name of the protocol in the TLS handshake.
pub const ALPN: &[u8] = b"h2";

/// Maximum bytes of a stream that `h2` buffers until they are written to the connection.
const SEND_BUFFER: usize = 128 * 1024;

/// Converts an error of a stream to the I/O error that a connection would report. [`ErrorKind::ConnectionRefused`]
/// means that the other side did not process the request (RFC 9113 section 8.7), so that any request can be sent again.
fn to_io(error: h2::Error) -> io::Error {
    let unprocessed = match error.reason() {
        Some(h2::Reason::REFUSED_STREAM) => error.is_remote(),
        Some(h2::Reason::NO_ERROR) => error.is_go_away() && error.is_remote(),
        _ => false,
    };
    if unprocessed {
        return io::Error::new(ErrorKind::ConnectionRefused, error);
    }
    if error.is_io() {
        return error
            .into_io()
            .unwrap_or_else(|| ErrorKind::ConnectionReset.into());
    }
    io::Error::new(ErrorKind::ConnectionReset, error)
}

/// Why a stream to an upstream failed, as reported by HTTP/2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamFailure {
    /// The upstream did not process the request.
    Unprocessed,
    /// The upstream reset this stream and serves others on the same connection.
    Reset,
    /// The upstream ended the whole connection with an error, which any request on it may have caused.
    Goaway,
    /// The upstream violated the protocol.
    Nonsense,
}

/// Returns the failure that HTTP/2 reported. Returns `None` if the TCP or TLS connection failed without such a report.
pub fn stream_failure(error: &io::Error) -> Option<StreamFailure> {
    if error.kind() == ErrorKind::ConnectionRefused {
        return Some(StreamFailure::Unprocessed);
    }
    let cause = error.get_ref()?;
    if cause.is::<Refused>() {
        return Some(StreamFailure::Goaway);
    }
    let cause = cause.downcast_ref::<h2::Error>()?;
    match cause.is_remote() {
        true if cause.is_go_away() => Some(StreamFailure::Goaway),
        true if cause.is_reset() => Some(StreamFailure::Reset),
        false if cause.is_library() => Some(StreamFailure::Nonsense),
        _ => None,
    }
}

/// The upstream ended the connection with an error (`GOAWAY`), and this stream with it.
#[derive(Debug, thiserror::Error)]
#[error("the upstream ended the connection with an error (GOAWAY)")]
struct Refused;

/// Whether the error itself holds HTTP/2's reason for the failure of a stream.
fn has_cause(error: &io::Error) -> bool {
    error.kind() == ErrorKind::ConnectionRefused
        || error.get_ref().is_some_and(|cause| cause.is::<h2::Error>())
}

/// HTTP/2 cannot express the request: its authority or its path is invalid, or it upgrades to another protocol.
#[derive(Debug, thiserror::Error)]
#[error("the request cannot be expressed in HTTP/2")]
struct Unsayable;

/// Whether a request was not sent because HTTP/2 cannot express it.
pub fn is_unsayable(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|cause| cause.is::<Unsayable>())
}

/// Returns the reason of the reset if the stream was reset.
pub fn reset_reason(error: &io::Error) -> Option<Reason> {
    let cause = error.get_ref()?.downcast_ref::<h2::Error>()?;
    cause.reason().filter(|_| cause.is_reset())
}
