//! The parts of the data plane together, in memory.

mod fixture;
mod plan;
mod respond;
