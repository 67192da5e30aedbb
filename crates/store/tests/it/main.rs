//! Tests of the store's public interface, on real files.
#![allow(
    clippy::unwrap_used,
    reason = "a failed step of a test is a failed test"
)]

mod support;

mod commits;
mod created;
mod damage;
mod endure;
mod follow;
mod growth;
mod history;
mod join;
mod kill;
mod listing;
mod owned;
mod random;
mod readers;
