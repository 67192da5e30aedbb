//! Health checks of upstreams' addresses: Kong's state machine, its input from requests and probes, and the probes
//! themselves.
//!
//! The load balancer ([`crate::balance`]) chooses among the addresses. It only uses whether each is available.

mod checks;
mod probe;
pub mod prober;
mod state;

pub use checks::{Checks, Limits, Outcome, StatusSet};
pub use probe::Probing;
pub use state::{Health, HealthEvent, HealthState};
