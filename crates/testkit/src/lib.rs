//! What tests of the whole program stand on: the real binary on free ports, upstreams that echo or misbehave, and a plain
//! HTTP client that sends exactly the bytes it is told to. Blocking and without a runtime, so that a test reads top-down. And rule sets for
//! routers, real and hostile ([`rules`]), an allocator that counts ([`memory`]),
//! tests of what input costs ([`cost`]), and random numbers ([`random`]).
//!
//! For development only: a failure panics, with what was expected.

#![deny(unsafe_code)]

pub mod backend;
pub mod cost;
pub mod dns;
pub mod echo;
pub mod gateway;
pub mod http;
pub mod memory;
mod message;
pub mod random;
pub mod rules;
pub mod upstream;

pub use backend::Backend;
pub use dns::NameServer;
pub use echo::Echo;
pub use gateway::{Gateway, Launch};
pub use http::{Answer, Client, get, request};
pub use upstream::Scripted;
