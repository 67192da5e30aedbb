//! Tests of declarative configurations: the recorded responses of Kong 3.9.1, all forms of errors, the changes of a
//! second load, additions to the existing configuration, exports, and adversarial input.

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
