//! The data plane: the snapshot of the configuration that workers read, the plugin chain ("plan") of each route, the
//! processing of requests, and the responses that the gateway produces itself. This crate does not depend on the store
//! or the Admin API.

#![forbid(unsafe_code)]

pub mod access_log;
pub mod balance;
mod forward;
mod forward_response;
pub mod health;
pub mod plugins;
pub mod protocols;
mod redirect;
pub mod respond;
pub mod session;
pub mod snapshot;
pub mod upstream;
