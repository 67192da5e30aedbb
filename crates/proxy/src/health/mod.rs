//! Whether an upstream's addresses can be used: Kong's state machine, what requests and probes tell it, and the probes.
//!
//! Not here: choosing among the addresses ([`crate::balance`]), which only asks whether one is available.

mod checks;
mod probe;
pub mod prober;
mod state;

pub use checks::{Checks, Limits, Outcome, StatusSet};
pub use probe::Probing;
pub use state::{Event, Health, State};
