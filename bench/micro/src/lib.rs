//! The operations that performance is made of, each small enough to be measured alone: as time by criterion
//! (`benches/micro.rs`), as instructions by callgrind (the program `micro`).
//!
//! An operation is set up once and then run any number of times. What a run uses up is prepared before it, and what it
//! makes is dropped after it; neither is measured.

#![forbid(unsafe_code)]

mod fixtures;
mod heads;
mod history;
mod operation;
mod plans;
mod requests;
mod routing;
pub mod rules;
mod snapshots;
mod storage;

// The program is no library, and nothing depends on it; these parts of it are measured from their own source.
#[allow(dead_code, reason = "not all of it is measured")]
#[path = "../../../crates/gateway/src/control/config.rs"]
mod config;
#[allow(dead_code, reason = "not all of it is measured")]
#[path = "../../../crates/gateway/src/lookup/mod.rs"]
mod lookup;

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

/// Operations whose setting up takes minutes under callgrind: only for who names them.
pub fn long_operations() -> Vec<Operation> {
    history::operations()
}

/// Operations that show how the router's cost grows: to be timed, and counted for who names them.
pub fn scaling_operations() -> Vec<Operation> {
    routing::scaling()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_operation_has_a_name_of_its_own() {
        let mut operations = operations();
        operations.extend(long_operations());
        operations.extend(scaling_operations());
        let names: BTreeSet<&str> = operations.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names.len(), operations.len());
    }

    #[test]
    fn operations_run_more_than_once() {
        // Those that are run seldom are large: too much for a build that is not optimised.
        let all = operations().into_iter().chain(long_operations());
        let small = all.filter(|one| one.count > 1);
        for operation in small.filter(|one| !one.name.ends_with("/100000")) {
            let mut work = operation.set_up();
            for _ in 0..3 {
                work.prepare();
                work.run();
            }
        }
    }
}
