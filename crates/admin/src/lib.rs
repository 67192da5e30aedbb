//! Kong's Admin API over HTTP. Only this crate knows its URLs.
//!
//! Reads use the newest revision of the store and never wait. Every change of the configuration is a
//! [`control::Proposal`] that the program carries out by implementing [`Control`].

#![forbid(unsafe_code)]

mod access;
mod audit;
mod auth;
mod body;
mod budget;
mod changes;
mod config;
pub mod control;
mod endpoints;
mod entities;
pub mod events;
pub mod explain;
mod extensions;
mod health;
mod infer;
mod metrics;
mod node;
mod openapi;
mod pace;
mod paging;
mod peer;
mod profiles;
mod proposal;
mod receive;
mod reload;
mod render;
mod request;
mod respond;
mod revisions;
mod router;
mod schemas;
mod server;
mod shown;
mod state;
mod status;
mod stream;
mod tags;
pub mod time;
pub mod token_transfer;
pub mod tokens;
pub mod transfer;
mod transport;

pub use axum::Router;
pub use body::fields;
pub use control::Control;
pub use endpoints::Extensions;
pub use metrics::write_all as write_metrics;
pub use peer::Connection;
pub use respond::Failure;
pub use revisions::{read as read_history, roll_back};
pub use router::{router, status_router};
pub use server::{Limits, Listener, serve};
