//! Compiled predicates over a request. Routes of every flavor are turned into such expressions, which decide whether a
//! route applies.
//!
//! The types make an [`Expression`] with a wrong test impossible: each type of field allows only its own tests. Regexes
//! are compiled when the expression is built, so that evaluation allocates almost nothing. The semantics are those of
//! Kong's expression router. A predicate on a field without a value is false, whatever its test. If a field has several
//! values, all of them must pass, unless the predicate accepts any ([`Quantifier`]).
//!
//! [`syntax`] contains the text form of expressions, the language of Kong's `expressions` flavor.
//!
//! This crate does not index expressions (see `router`) and does not extract field values: callers implement
//! [`Fields`].

#![forbid(unsafe_code)]

mod block;
mod bounds;
mod engine;
mod evaluate;
mod field;
mod former;
mod literals;
mod nearest;
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
pub use nearest::nearest;
pub use pattern::{Dialect, Group, Regex, RegexError, TooManySteps, check_pcre};
pub use reasons::{Distance, Reason};
pub use steps::{ByteSet, Class, Step, Steps};
pub use syntax::{Error, Parsed, Subsystem, Typed, parse, read};
pub use tree::{
    AddressPredicate, AddressTest, Comparison, Expression, NumberPredicate, Quantifier,
    TextPredicate, TextTest, Transform,
};
