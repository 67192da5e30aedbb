//! Compares the router with recorded decisions of Kong, and with its own decisions without the index.

mod conflicts;
mod explain;
mod expressions;
mod fixtures;
mod index;
mod stream;
mod stream_conflicts;
mod upstream;
mod vectors;
mod whole;
