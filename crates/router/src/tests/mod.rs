//! The router against recorded decisions of Kong, and against itself without its index.

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
