//! The operations that determine the gateway's performance, each small enough to be measured alone: Criterion measures
//! their time (`benches/micro.rs`), callgrind counts their instructions (the program `micro`).
//!
//! An operation is set up once and then runs any number of times. Input that a run consumes is prepared before the run,
//! and its results are dropped after it. Neither is measured.

#![forbid(unsafe_code)]

mod chains;
mod fixtures;
mod functions;
mod heads;
mod history;
mod limits;
mod logs;
mod operation;
mod phases;
mod plans;
mod requests;
mod routing;
pub mod rules;
mod snapshots;
mod storage;
mod traces;

// The gateway's binary is not a library that could be a dependency, so these modules are included by path.
#[allow(dead_code, reason = "not all of it is measured")]
#[path = "../../../crates/gateway/src/control/config.rs"]
mod config;
#[allow(dead_code, reason = "not all of it is measured")]
#[path = "../../../crates/gateway/src/entities/mod.rs"]
mod entities;

pub use operation::{Operation, TOGGLES, Work, run_counted};

/// Returns the operations that are counted and timed by default.
pub fn operations() -> Vec<Operation> {
    [
        routing::operations(),
        plans::operations(),
        phases::operations(),
        limits::operations(),
        logs::operations(),
        snapshots::operations(),
        heads::operations(),
        storage::operations(),
        requests::operations(),
        chains::operations(),
        traces::operations(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Returns operations whose set-up takes minutes under callgrind. They are counted only if they are named.
pub fn long_operations() -> Vec<Operation> {
    history::operations()
}

/// Returns operations that show how the router's cost grows, those that show the share of each plugin in a chain
/// and of traces, and those of Lua, whose count depends on what LuaJIT decides to compile. They are timed, and counted only if they are
/// named.
pub fn scaling_operations() -> Vec<Operation> {
    let mut operations = routing::scaling();
    operations.extend(logs::scaling());
    operations.extend(chains::shares());
    operations.extend(traces::whole(chains::keys));
    operations.extend(functions::operations());
    operations
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
        // Operations with a count of 1 are too large for a build without optimisation.
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
