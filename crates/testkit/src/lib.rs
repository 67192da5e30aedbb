//! Support for tests of the whole program: the real binary on free ports, upstreams that echo or misbehave, and a plain
//! HTTP client that sends exactly the bytes it is given. All functions block and need no async runtime, so that a test
//! reads from top to bottom.
//!
//! The crate also has real and adversarial rule sets for routers ([`rules`]), an allocator that counts allocations
//! ([`memory`]), tests of how cost grows with the input ([`cost`]), and random numbers ([`random`]).
//!
//! For development only: every failure panics.

#![deny(unsafe_code)]

pub mod backend;
pub mod cost;
pub mod dns;
pub mod echo;
pub mod gateway;
pub mod http;
pub mod memory;
mod message;
pub mod otlp;
pub mod random;
pub mod recorder;
pub mod redis;
pub mod rules;
pub mod sink;
pub mod slapd;
pub mod upstream;

pub use backend::Backend;
pub use dns::NameServer;
pub use echo::Echo;
pub use gateway::{Gateway, Launch};
pub use http::{Client, HttpResponse, get, request};
pub use redis::{Redis, RedisCluster, RedisSentinel};
pub use sink::Sink;
pub use slapd::Slapd;
pub use upstream::Scripted;
