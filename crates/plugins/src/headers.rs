//! What several plugins check in headers of configurations.

use plugin::BuildError;

/// Whether a text is a header name (a token of RFC 9110, section 5.6.2).
pub(crate) fn is_name(text: &str) -> bool {
    !text.is_empty() && http::HeaderName::from_bytes(text.as_bytes()).is_ok()
}

/// Refuses a text that is no header name. Written into a message, it would make the message malformed, or add lines to it.
pub(crate) fn check_name(field: &'static str, name: Option<&str>) -> Result<(), BuildError> {
    match name {
        Some(name) if !is_name(name) => Err(BuildError::field(field, "it is no header name")),
        _ => Ok(()),
    }
}

/// Whether a header says how long its message is or how the connection goes on. A plugin that set it could make two
/// programs read the same bytes differently.
pub(crate) fn is_framing(name: &str) -> bool {
    const FRAMING: [&str; 7] = [
        "connection",
        "content-length",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ];
    FRAMING.iter().any(|one| name.eq_ignore_ascii_case(one))
}
