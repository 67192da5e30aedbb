//! proxy-cache, which is not implemented yet.

pub(crate) mod source;
