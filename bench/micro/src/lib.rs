//! The operations that performance is made of, each small enough to be measured alone: as time by criterion
//! (`benches/micro.rs`), as instructions by callgrind (the program `micro`).
//!
//! An operation is set up once and then run any number of times. What a run uses up is prepared before it, and what it
//! makes is dropped after it; neither is measured.

#![forbid(unsafe_code)]

mod fixtures;
mod heads;
mod operation;
mod plans;
mod requests;
mod routing;
mod snapshots;
mod storage;

// The program is no library, and nothing depends on it; these parts of it are measured from their own source.
#[path = "../../../crates/gateway/src/control/config.rs"]
mod config;
#[path = "../../../crates/gateway/src/lookup/mod.rs"]
mod lookup;
#[path = "../../../crates/gateway/src/control/mirror.rs"]
mod mirror;

pub use operation::{Operation, TOGGLES, Work, run_counted};

/// Every operation, by area.
pub fn operations() -> Vec<Operation> {
    [
        routing::operations(),
        plans::operations(),
        snapshots::operations(),
        heads::operations(),
        storage::operations(),
        requests::operations(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
