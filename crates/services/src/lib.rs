//! The services of a node that plugins use: an HTTP client, an LDAP client, a Redis client, queues, receivers of lines,
//! metrics, timers on workers, background tasks, shared state, shared dictionaries and the clock.
//!
//! The gateway creates the services once per process, and they live as long as the process: configurations come and go
//! without them. Nothing here makes a worker of the data plane wait. What talks to the network runs on the thread of
//! [`background`], and the data plane only touches counters and short critical sections.
//!
//! This crate does not depend on plugins, routes or entities.

#![forbid(unsafe_code)]

pub mod background;
pub mod clock;
pub mod dict;
pub mod egress;
pub mod http;
pub mod ldap;
pub mod log_lines;
pub mod metrics;
pub mod queue;
pub mod redis;
pub mod shared;
pub mod sinks;
pub mod workers;

pub use background::Background;
pub use clock::Clock;
pub use dict::Dicts;
pub use metrics::Metrics;
pub use queue::Queues;
pub use shared::Shared;
pub use sinks::Sinks;
pub use workers::Workers;
