//! What the fuzz targets in `fuzz/` do with their input, as plain functions, so that a test on the stable toolchain can put the
//! committed corpora (and changes of them) to the same invariants. Each panics when one does not hold.
//!
//! For development only.

#![forbid(unsafe_code)]

mod body;
mod chunked;
mod codec;
mod connection;
mod document;
mod events;
mod expression;
mod head;
mod opening;
mod router;
mod schema;
mod uri;

/// A target: its name, and what it does with its input.
pub type Target = (&'static str, fn(&[u8]));

/// Every target; the name is that of its file in `fuzz/fuzz_targets` and of its folder in `fuzz/corpus`.
pub const TARGETS: [Target; 15] = [
    ("request_head", request_head),
    ("response_head", response_head),
    ("chunked_body", chunked_body),
    ("uri", uri),
    ("proxy_header", proxy_header),
    ("client_hello", client_hello),
    ("connection", connection),
    ("http2", http2),
    ("events", events),
    ("router", router),
    ("expression", expression),
    ("document", document),
    ("schema", schema),
    ("codec", codec),
    ("body", body),
];

pub use body::body;
pub use chunked::chunked_body;
pub use codec::codec;
pub use connection::{connection, http2};
pub use document::document;
pub use events::events;
pub use expression::expression;
pub use head::{request_head, response_head};
pub use opening::{client_hello, proxy_header};
pub use router::router;
pub use schema::schema;
pub use uri::uri;

/// Input past this is cut off where a check looks at every beginning of it.
const MOST_CUTS: usize = 300;

/// The beginnings of some bytes at which a connection may have stopped so far: all of short ones, some of long ones.
fn beginnings(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let step = bytes.len() / MOST_CUTS + 1;
    (0..bytes.len()).step_by(step).map(|end| &bytes[..end])
}
