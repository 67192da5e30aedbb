//! Declarative configurations: what Kong 3.9.1 answered, every form of error, what a second load changes, bad input.

mod errors;
mod hostile;
mod recorded;
mod reload;
mod running;
