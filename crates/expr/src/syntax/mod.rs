//! The text form of expressions. A text is read in three steps, and each step returns a type of its own:
//!
//! 1. [`parse`] returns [`Parsed`], which can be printed and formatted.
//! 2. [`Parsed::check`] resolves fields and types and returns [`Typed`].
//! 3. [`Typed::compile`] compiles the regexes and returns the executable [`Expression`].
//!
//! [`read`] performs all three steps.
//!
//! The language, including its precedence, is that of Kong's expression router (atc-router 1.6): `||` binds tighter
//! than `&&`. Every refused text gets an [`Error`] with a position in the text. Nesting and length are limited. No
//! text can therefore exhaust the stack or use much memory while it is read or evaluated.

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

/// Maximum length of a text in bytes, enough for ten thousand hosts in one expression.
pub const MAX_LENGTH: usize = 1 << 20;

/// Maximum nesting depth of groups and negations. A chain of one operator is a single level, however long it is.
pub const MAX_DEPTH: usize = 256;

/// The kind of traffic of a route, which determines the available fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Subsystem {
    /// `http`, `https`, `grpc`, `grpcs`.
    Http,
    /// `tcp`, `tls`, `tls_passthrough`, `udp`.
    Stream,
}

/// Parses a text and checks only the grammar. Names and types are not checked yet.
pub fn parse(text: &str) -> Result<Parsed, Error> {
    parser::parse(text)
}

/// Parses, checks and compiles a text. `regexes` compiles each pattern or returns it from a cache.
pub fn read(
    text: &str,
    subsystem: Subsystem,
    regexes: &mut dyn FnMut(&str) -> Result<Regex, RegexError>,
) -> Result<Expression, Error> {
    parse(text)?.check(subsystem)?.compile(regexes)
}
