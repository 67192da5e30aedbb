//! What touches the network: the HTTP/1.1 core (which itself does no I/O), listeners, TLS on both sides, connection pools,
//! name resolution and timers. Nothing here knows of routes, plugins or Kong's error bodies.

#![forbid(unsafe_code)]

pub mod deadline;
pub mod http1;
pub mod id;
pub mod listen;
pub mod outgoing;
pub mod pool;
pub mod resolve;
pub mod stream;
pub mod tls;
