//! The Admin API over a store in a temporary directory, without sockets.

#![allow(unreachable_pub)]

mod compare;
mod entities;
mod fake;
mod transport;
mod vectors;
