//! Declarative configurations: recorded responses of Kong 3.9.1, all forms of errors, changes of a second load,
//! additions to the existing configuration, exports, bad input.

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
