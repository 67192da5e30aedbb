//! rate-limiting, which is not implemented yet.

mod checks;
pub(crate) mod source;
