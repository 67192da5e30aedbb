//! The parts of the data plane together, in memory.

mod fixture;
mod incremental;
mod key_auth;
mod other_plugins;
mod plan;
mod rebuilds;
mod respond;
mod snapshot;
mod streams;
mod world;
