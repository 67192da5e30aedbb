//! The parts of the data plane together, in memory.

mod fixture;
mod key_auth;
mod other_plugins;
mod plan;
mod respond;
mod snapshot;
mod streams;
