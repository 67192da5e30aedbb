//! Tests of the data plane's parts together, in memory and without connections.

mod fixture;
mod incremental;
mod lifetimes;
mod plan;
mod rebuilds;
mod respond;
mod snapshot;
mod streams;
mod world;
