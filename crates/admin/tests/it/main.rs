//! The Admin API over a store in a temporary directory, without sockets.

#![allow(clippy::unwrap_used, reason = "helpers of tests panic like tests")]

mod certificates;
mod changes;
mod compare;
mod config;
mod entities;
mod events;
mod fake;
mod metrics;
mod openapi;
mod paging;
mod revisions;
mod server;
mod status;
mod transfer;
mod transport;
mod vectors;
