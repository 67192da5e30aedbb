//! What touches the network: the HTTP/1.1 core (which itself does no I/O), listeners, TLS on both sides, connection pools,
//! name resolution and timers. Nothing here knows of routes, plugins or Kong's error bodies.

pub mod http1;
