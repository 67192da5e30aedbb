//! The data plane: the snapshot of the configuration that workers read, the plan of plugins of each route, the life of a
//! request, and the answers that the gateway produces itself. Nothing here knows the store or the Admin API.

#![forbid(unsafe_code)]

pub mod access_log;
pub mod balance;
mod forward;
mod forward_response;
pub mod health;
pub mod plan;
pub mod protocols;
pub mod respond;
pub mod session;
pub mod snapshot;
pub mod upstream;
