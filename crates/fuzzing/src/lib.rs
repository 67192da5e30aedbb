//! The checks of the fuzz targets in `fuzz/` as plain functions, so that a test on the stable toolchain can run them on
//! the committed corpora and on mutations of them. Each function panics if an invariant does not hold.
//!
//! For development only.

#![forbid(unsafe_code)]

mod authorization;
mod body;
mod chunked;
mod codec;
mod connection;
mod document;
mod events;
mod expression;
mod head;
mod hmac_header;
mod ldap_answer;
mod lua;
mod oauth2;
mod oauth2_request;
mod opening;
mod router;
mod schema;
mod session;
mod template;
mod token;
mod trace_context;
mod uri;

/// A target: its name and its check.
pub type Target = (&'static str, fn(&[u8]));

/// Every target. Its name is also the name of its file in `fuzz/fuzz_targets` and of its directory in `fuzz/corpus`.
pub const TARGETS: [Target; 25] = [
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
    ("lua", lua),
    ("token", token),
    ("session", session),
    ("hmac_header", hmac_header),
    ("oauth2", oauth2),
    ("oauth2_request", oauth2_request),
    ("authorization", authorization),
    ("ldap_answer", ldap_answer),
    ("trace_context", trace_context),
    ("template", template),
];

pub use self::lua::lua;
pub use authorization::authorization;
pub use body::body;
pub use chunked::chunked_body;
pub use codec::codec;
pub use connection::{connection, http2};
pub use document::document;
pub use events::events;
pub use expression::expression;
pub use head::{request_head, response_head};
pub use hmac_header::hmac_header;
pub use ldap_answer::ldap_answer;
pub use oauth2::oauth2;
pub use oauth2_request::oauth2_request;
pub use opening::{client_hello, proxy_header};
pub use router::router;
pub use schema::schema;
pub use session::session;
pub use template::template;
pub use token::token;
pub use trace_context::trace_context;
pub use uri::uri;

/// Maximum number of prefixes of an input that a check tries.
const MAX_CUTS: usize = 300;

/// Returns prefixes of the bytes, as if the rest had not arrived yet. Short input gives all its prefixes, long input
/// only some.
fn beginnings(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let step = bytes.len() / MAX_CUTS + 1;
    (0..bytes.len()).step_by(step).map(|end| &bytes[..end])
}
