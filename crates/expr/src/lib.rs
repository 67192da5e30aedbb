//! Predicates over a request, compiled: what routes of every flavour become, and what decides whether one applies.
//!
//! An [`Expression`] is typed when it is built (a field decides which tests can be put to it), regexes are compiled, and
//! evaluation allocates nothing. Semantics are those of Kong's expression router: a predicate on a field without a value
//! is false whatever its test, and of several values all must pass unless one is enough ([`Quantifier`]).
//!
//! Their text form, the language of Kong's `expressions` flavour, is in [`syntax`].
//!
//! Not here: how expressions are indexed (`router`), and where field values come from ([`Fields`] is implemented by the
//! caller).

#![forbid(unsafe_code)]

mod block;
mod bounds;
mod engine;
mod evaluate;
mod field;
mod former;
mod literals;
mod pattern;
mod plain;
mod prefix;
mod reasons;
mod starts;
mod steps;
pub mod syntax;
#[cfg(test)]
mod testing;
mod tree;

pub use block::{BadBlock, Block};
pub use bounds::TooComplex;
pub use evaluate::{NoObserver, Observer};
pub use field::{AddressField, Fields, NumberField, TextField};
pub use former::modernized;
pub use pattern::{Dialect, Group, Regex, RegexError, check_pcre};
pub use reasons::{Distance, Reason};
pub use steps::{ByteSet, Class, Step, Steps};
pub use syntax::{Error, Parsed, Subsystem, Typed, parse, read};
pub use tree::{
    AddressPredicate, AddressTest, Comparison, Expression, NumberPredicate, Quantifier,
    TextPredicate, TextTest, Transform,
};
