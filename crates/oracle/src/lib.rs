//! What the router must answer, found without any index: random routes and requests of every flavour, and slow ways to
//! decide them that share no code with the fast one. The tests here, the fuzz target and `cargo xtask soak router` put
//! the router to it.
//!
//! [`World`] is what routes and requests are made of, so that they meet. [`Judge`] holds the candidates of one router and
//! asks each in order; [`Naive`] and [`Traditional`] go from the routes alone, by the reference and not by what the
//! router compiled.
//! [`decide_alike`] makes a case of all that.
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
pub use judge::{Answer, Judge};
pub use naive::Naive;
pub use random::Random;
pub use requests::Sample;
pub use routes::Drawn;
pub use streams::streams_alike;
pub use traditional::Traditional;
pub use world::World;
