//! HTTP/1.1 without I/O: bytes in, heads and body framing out. Messages that two implementations could understand
//! differently are refused, so that nothing ambiguous is forwarded. Where RFC 9112 allows a choice, the stricter one
//! applies.

mod body;
mod chunked;
mod field;
mod head;
mod request;
mod response;
mod scan;
#[cfg(test)]
mod tests;

pub use body::{Body, Framing};
pub(crate) use chunked::MAX_TRAILERS;
pub use chunked::{BadChunk, Chunked};
pub use field::{Field, KnownHeader, is_same_name, list_contains};
pub use head::Line;
pub use request::{BadRequest, RequestHead};
pub use response::{BadResponse, ResponseHead};

/// Limits for a head. The defaults are nginx's: four buffers of 8 KiB.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Maximum length of the request line, and of each header line of a request. For responses only `head` limits a
    /// line.
    pub line: usize,
    /// Maximum size of the whole head.
    pub head: usize,
    /// Maximum number of header lines, at most [`u16::MAX`].
    pub lines: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            line: 8 * 1024,
            head: 32 * 1024,
            lines: MAX_HEADERS,
        }
    }
}

/// Default of [`Limits::lines`]. The size limits alone would allow thousands of lines, and every later phase spends
/// time on each line.
pub const MAX_HEADERS: usize = 1000;

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    Http10,
    #[default]
    Http11,
}
