//! The text form of expressions, in three steps that each have a type: [`parse`] makes a text [`Parsed`], which can be
//! printed and laid out; [`Parsed::check`] resolves fields and types and makes it [`Typed`]; [`Typed::compile`] compiles
//! regexes and makes the [`Expression`] that runs. [`read`] is all three.
//!
//! The language is that of Kong's expression router (atc-router 1.6), its precedence included: `||` binds tighter than
//! `&&`. Every text that is refused gets an [`Error`] that points into it. Nesting and length have limits, so that no
//! text can exhaust the stack or much memory, here or where the expression is put to requests.

mod check;
mod compile;
mod error;
mod excerpt;
mod format;
mod names;
mod parser;
mod print;
mod scan;
#[cfg(test)]
mod tests;
mod tree;

pub use check::Typed;
pub use error::{Error, ErrorKind, Expected, Hint, Type};
pub use tree::Parsed;

use crate::pattern::{Regex, RegexError};
use crate::tree::Expression;

/// How long a text may be, in bytes. Enough for ten thousand hosts in one expression.
pub const MAX_LENGTH: usize = 1 << 20;

/// How deep groups and negations may be nested. Chains of one operator are one level, however long.
pub const MAX_DEPTH: usize = 256;

/// What a route serves, and with it which fields there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Subsystem {
    /// `http`, `https`, `grpc`, `grpcs`.
    Http,
    /// `tcp`, `tls`, `tls_passthrough`, `udp`.
    Stream,
}

/// The tree of a text that is an expression by its grammar; names and types were not looked at yet.
pub fn parse(text: &str) -> Result<Parsed, Error> {
    parser::parse(text)
}

/// The expression that a text stands for. `regexes` compiles each pattern, or has it already.
pub fn read(
    text: &str,
    subsystem: Subsystem,
    regexes: &mut dyn FnMut(&str) -> Result<Regex, RegexError>,
) -> Result<Expression, Error> {
    parse(text)?.check(subsystem)?.compile(regexes)
}
