//! grpc-web, which is not implemented yet.

pub(crate) mod source;
