//! Limits that hold: a node takes a slice of a limit from Redis ahead of use.

mod lease;
mod ledger;
mod message;
#[cfg(test)]
mod tests;
