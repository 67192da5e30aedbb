//! HTTP/1.1 without I/O: bytes in, heads and body framing out. What two implementations could read differently is refused
//! here (RFC 9112 and, where that leaves room, the stricter reading), so that nothing ambiguous is ever forwarded.

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
pub use chunked::{BadChunk, Chunked};
pub use field::{Field, Known, list_contains};
pub use head::Line;
pub use request::{BadRequest, RequestHead};
pub use response::{BadResponse, ResponseHead};

/// How much of a head is accepted. The defaults are those of the web server that Kong runs on: four buffers of 8 KiB.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The longest request line or header line.
    pub line: usize,
    /// The whole head.
    pub head: usize,
    /// How many header lines it has: at most [`u16::MAX`].
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

/// The default of [`Limits::lines`]. The sizes alone would let thousands of lines pass, each of which costs every later phase
/// a little.
pub const MAX_HEADERS: usize = 1000;

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    Http10,
    #[default]
    Http11,
}
