//! Builds an immutable index from routes and finds the route that applies to a request.
//!
//! Each route becomes one or more candidates. A candidate has an expression ([`expr`]) and a position in the order of
//! all candidates. An index over host, path and method finds the few candidates that a request could match, best first;
//! the first one whose expression is true wins. The router flavors differ only in how they create candidates from a
//! route.
//!
//! This crate does no I/O. It ends at the match and the upstream path. Semantics are those of Kong Gateway 3.9.1,
//! including its defects unless [`Calculation::Strict`] is set.

#![forbid(unsafe_code)]

mod bucket;
mod candidate;
mod compatible;
mod conflicts;
mod ends;
mod explain;
mod expressions;
mod host;
mod index;
mod keys;
mod label;
mod priority;
mod query;
mod range;
mod rank;
mod request;
mod router;
mod segments;
mod stream;
mod table;
mod traditional;
mod tree;
mod upstream;
mod work;

pub use candidate::{Problem, RouteError, RouteIndex};
pub use conflicts::{Conflicts, Never, Reason, Search, StreamWitness, Tie, Witness};
pub use explain::{Explained, Explanation, StreamExplanation, Tried, Verdict, Wanted};
pub use expr::{Block, Group};
pub use request::{HeaderSource, Request, Scheme};
pub use router::{Match, Options, Router, Scratch};
pub use stream::{StreamRequest, StreamRouter};
pub use work::{MAX_STEPS, TOO_COSTLY, TooCostly};

/// The router flavor, which decides how routes are matched (`router_flavor`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavor {
    Traditional,
    TraditionalCompatible,
    /// Like [`Self::TraditionalCompatible`], but a route may have an expression and a priority instead of classic
    /// fields.
    Expressions,
}

/// The order of candidates in all flavors except [`Flavor::Traditional`] (`route_match_calculation`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Calculation {
    /// The order that Kong 3.9.1 really uses, including its shifts in 32 bits.
    Original,
    /// The order that Kong's documentation describes.
    Strict,
}

#[cfg(test)]
mod tests;
