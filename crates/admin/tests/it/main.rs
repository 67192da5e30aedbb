//! Tests of the Admin API with a store in a temporary directory. Only `server` and `events` use sockets.

#![allow(clippy::unwrap_used, reason = "helpers of tests panic like tests")]

mod certificates;
mod changes;
mod compare;
mod config;
mod entities;
mod events;
mod extensions;
mod fake;
mod metrics;
mod oauth2_tokens;
mod openapi;
mod paging;
mod revisions;
mod server;
mod status;
mod transfer;
mod transport;
mod vectors;
