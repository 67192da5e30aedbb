//! A test oracle for the router. It creates random routes and requests of every flavor and finds the correct decisions
//! in slow ways that use no index and share no code with the router. The tests here, the fuzz target and `cargo xtask
//! soak router` compare the router with it.
//!
//! [`World`] contains the words that both routes and requests consist of, so that they often match. [`Judge`] checks
//! the candidates of a router one by one in order. [`Naive`] and [`Traditional`] decide from the routes alone, without
//! the candidates that the router has compiled. [`decide_alike`] combines all of this into one test case.
//!
//! "The reference" is a description of Kong's routing algorithms that is not part of this repository. Section numbers
//! in comments refer to it.
//!
//! For development only.

#![forbid(unsafe_code)]

mod cases;
mod changes;
mod engine;
mod expressions;
mod facts;
mod judge;
mod naive;
mod pattern;
mod print;
mod random;
mod requests;
mod routes;
mod streams;
mod term;
mod traditional;
mod world;

pub use cases::{Size, Tally, all_options, decide_alike, numbered, router};
pub use changes::{Changes, Course, Kept};
pub use engine::Engines;
pub use expressions::read_alike;
pub use judge::{Decision, Judge};
pub use naive::Naive;
pub use random::Random;
pub use requests::Sample;
pub use routes::Drawn;
pub use streams::streams_alike;
pub use traditional::Traditional;
pub use world::World;
