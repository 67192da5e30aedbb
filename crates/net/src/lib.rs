//! Network code: the HTTP/1.1 core (which itself does no I/O), HTTP/2, listeners, TLS on both sides, connection pools,
//! name resolution and timers. This crate does not depend on routes, plugins or Kong's error bodies.

#![forbid(unsafe_code)]

pub mod client_hello;
pub mod deadline;
pub mod dns;
pub mod gate;
pub mod http1;
pub mod http2;
pub mod id;
pub mod listen;
#[cfg(feature = "memory")]
pub mod memory;
pub mod outgoing;
pub mod peek;
pub mod pool;
pub mod proxy_protocol;
pub mod stream;
pub mod tls;
pub mod turns;
pub mod udp;
