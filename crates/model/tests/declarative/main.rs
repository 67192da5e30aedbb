//! Declarative configurations: what Kong 3.9.1 answered, every form of error, what a second load changes, adding to what exists,
//! exports, lines in a text, bad input.

mod cost;
mod doubts;
mod errors;
mod hostile;
mod merge;
mod numbers;
mod places;
mod recorded;
mod reload;
mod running;
mod transfer;
