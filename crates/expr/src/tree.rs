//! The tree of an expression, and the constructors that keep it small.

use crate::block::Block;
use crate::field::{AddressField, NumberField, TextField};
use crate::pattern::Regex;
use std::net::IpAddr;

/// A condition on a request: a predicate or a combination of expressions.
#[derive(Debug, Clone)]
pub enum Expression {
    /// True when every part is true. Parts are evaluated in order, up to the first that is false.
    All(Box<[Expression]>),
    /// True when at least one part is true. Parts are evaluated in order, up to the first that is true.
    Any(Box<[Expression]>),
    Not(Box<Expression>),
    Text(Box<TextPredicate>),
    Number(NumberPredicate),
    Address(AddressPredicate),
}

/// A test of a text field.
#[derive(Debug, Clone)]
pub struct TextPredicate {
    pub field: TextField,
    pub quantifier: Quantifier,
    pub transform: Transform,
    pub test: TextTest,
}

/// Whether all values of a field must pass or one is enough. A field without a value never passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quantifier {
    All,
    /// `any(…)`
    Any,
}

/// Conversion of a value before it is tested. The literal is not converted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Transform {
    None,
    /// `lower(…)`: converts every Unicode letter to lower case.
    Lower,
    /// Converts only ASCII letters to lower case, as the `traditional` flavor does.
    LowerAscii,
}

#[derive(Debug, Clone)]
pub enum TextTest {
    /// `==`
    Equals(Box<str>),
    /// `!=`
    Differs(Box<str>),
    /// `^=`
    StartsWith(Box<str>),
    /// `=^`
    EndsWith(Box<str>),
    /// `contains`
    Contains(Box<str>),
    /// `~`: the regex matches anywhere in the value.
    Matches(Regex),
}

/// A test of a number field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NumberPredicate {
    pub field: NumberField,
    pub comparison: Comparison,
    pub value: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// A test of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressPredicate {
    pub field: AddressField,
    pub test: AddressTest,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressTest {
    /// `==`
    Equals(IpAddr),
    /// `!=`
    Differs(IpAddr),
    /// `in`
    In(Block),
    /// `not in`
    NotIn(Block),
}

impl Expression {
    /// Returns an expression that is true when every part is true. A single part is returned unchanged.
    pub fn all(parts: Vec<Expression>) -> Self {
        single(parts).unwrap_or_else(|parts| Self::All(parts.into_boxed_slice()))
    }

    /// Returns an expression that is true when at least one part is true. A single part is returned unchanged.
    pub fn any(parts: Vec<Expression>) -> Self {
        single(parts).unwrap_or_else(|parts| Self::Any(parts.into_boxed_slice()))
    }

    /// Returns a test that all values of the field must pass, without conversion of the values.
    pub fn text(field: TextField, test: TextTest) -> Self {
        TextPredicate {
            field,
            quantifier: Quantifier::All,
            transform: Transform::None,
            test,
        }
        .into()
    }

    pub fn number(field: NumberField, comparison: Comparison, value: i64) -> Self {
        Self::Number(NumberPredicate {
            field,
            comparison,
            value,
        })
    }

    pub fn address(field: AddressField, test: AddressTest) -> Self {
        Self::Address(AddressPredicate { field, test })
    }

    /// Calls `visit` with every text predicate, in order.
    pub fn each_text<'e>(&'e self, visit: &mut dyn FnMut(&'e TextPredicate)) {
        match self {
            Self::All(parts) | Self::Any(parts) => {
                parts.iter().for_each(|part| part.each_text(visit));
            }
            Self::Not(part) => part.each_text(visit),
            Self::Text(predicate) => visit(predicate),
            Self::Number(_) | Self::Address(_) => {}
        }
    }
}

impl From<TextPredicate> for Expression {
    fn from(predicate: TextPredicate) -> Self {
        Self::Text(Box::new(predicate))
    }
}

impl Comparison {
    pub fn holds(self, left: i64, right: i64) -> bool {
        match self {
            Self::Equal => left == right,
            Self::NotEqual => left != right,
            Self::Less => left < right,
            Self::LessOrEqual => left <= right,
            Self::Greater => left > right,
            Self::GreaterOrEqual => left >= right,
        }
    }
}

impl AddressTest {
    pub fn holds(self, address: IpAddr) -> bool {
        match self {
            Self::Equals(wanted) => address == wanted,
            Self::Differs(other) => address != other,
            Self::In(block) => block.contains(address),
            Self::NotIn(block) => !block.contains(address),
        }
    }
}

fn single(mut parts: Vec<Expression>) -> Result<Expression, Vec<Expression>> {
    match parts.pop() {
        Some(only) if parts.is_empty() => Ok(only),
        Some(last) => {
            parts.push(last);
            Err(parts)
        }
        None => Err(parts),
    }
}
