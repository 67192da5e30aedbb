//! HTTP/2 on both sides, as a translation in front of and behind the HTTP/1.1 engine: a stream of a client ([`Served`]) is
//! read as the HTTP/1.1 text of its request and takes the text of the answer; a stream to an upstream ([`Called`]) is the
//! mirror image. The `h2` crate does the protocol (RFC 9113, RFC 7541); what it leaves to its user is checked here.
//!
//! Not here: what a request means. The engine reads the text that is made here as strictly as any other.

mod called;
mod chunks;
mod dial;
mod link;
mod links;
mod receiving;
mod sending;
mod served;
mod server;
#[cfg(test)]
mod tests;
mod text;
mod wire;

pub use called::Called;
pub use dial::{Dial, DialFailure, Dialed, Dialer};
pub use h2::Reason;
pub use link::{Driver, Link};
pub use links::{Found, LinkKey, LinkSettings, Links, Wanted};
pub use served::Served;
pub use server::{Ended, Server, ServerSettings};

use std::io::{self, ErrorKind};

/// What a client with prior knowledge begins with (RFC 9113 section 3.4).
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The name of the protocol in the TLS handshake.
pub const ALPN: &[u8] = b"h2";

/// What may wait in a stream for its turn on the connection.
const SEND_BUFFER: usize = 128 * 1024;

/// A stream's error as the engine knows those of connections. [`ErrorKind::ConnectionRefused`]: the other side says that it
/// has not looked at the request (RFC 9113 section 8.7), which can be sent again whatever it is.
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

/// How a stream to an upstream failed, as far as HTTP/2 says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamFailure {
    /// The upstream says that it has not looked at the request.
    Unprocessed,
    /// The upstream has given up this request, and serves others on the same connection.
    Reset,
    /// The upstream has ended the whole connection with an error, which any request on it may have caused.
    Goaway,
    /// The upstream does not keep to the protocol.
    Nonsense,
}

/// What HTTP/2 says about a failure; nothing where only the connection below it has failed.
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

/// The upstream has ended a connection with an error (`GOAWAY`), and so this stream.
#[derive(Debug, thiserror::Error)]
#[error("the upstream refuses the connection")]
struct Refused;

/// Whether HTTP/2 says itself why a stream failed.
fn has_cause(error: &io::Error) -> bool {
    error.kind() == ErrorKind::ConnectionRefused
        || error.get_ref().is_some_and(|cause| cause.is::<h2::Error>())
}

/// HTTP/2 has no form for a request: its authority or its path is none, or it asks for another protocol.
#[derive(Debug, thiserror::Error)]
#[error("the request cannot be said in HTTP/2")]
struct Unsayable;

/// Whether a request was not sent since HTTP/2 has no form for it.
pub fn is_unsayable(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|cause| cause.is::<Unsayable>())
}

/// Why the other side gave a stream up, if it did.
pub fn reset_reason(error: &io::Error) -> Option<Reason> {
    let cause = error.get_ref()?.downcast_ref::<h2::Error>()?;
    cause.reason().filter(|_| cause.is_reset())
}
