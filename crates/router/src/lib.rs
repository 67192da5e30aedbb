//! From routes to an immutable index; from a request to the route that applies.
//!
//! Each route becomes one or more candidates: an expression ([`expr`]) and a place in the order of all. An index over
//! host, path and method yields the few candidates that a request could reach, best first, and the first whose
//! expression is true wins. Flavours differ in how they make candidates of a route, and in nothing else.
//!
//! No I/O, and nothing of what happens after the match but the upstream path. Semantics are those of Kong Gateway 3.9.1,
//! its defects included unless [`Calculation::Strict`] is asked for.

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
pub use work::{MOST_STEPS, TOO_COSTLY, TooCostly};

/// The semantics that routes are matched by: `router_flavor`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavor {
    Traditional,
    TraditionalCompatible,
    /// As [`Self::TraditionalCompatible`], and routes may be an expression and a priority instead.
    Expressions,
}

/// How the flavours but [`Flavor::Traditional`] order candidates: `route_match_calculation`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Calculation {
    /// Candidates are ordered as Kong 3.9.1 really orders them, a shift in 32 bits included.
    Original,
    /// Candidates are ordered as Kong's documentation says.
    Strict,
}

#[cfg(test)]
mod tests;
