//! Expressions in a tree type that is independent of the router. The evaluation is slow and follows the reference.

use crate::engine::Engines;
use crate::facts::Facts;
use expr::{
    AddressField, AddressTest, Block, Comparison, Expression, NumberField, Quantifier, TextField,
    TextTest, Transform,
};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::Range;

#[derive(Debug, Clone)]
pub(crate) enum Term {
    And(Vec<Term>),
    Or(Vec<Term>),
    Not(Box<Term>),
    Text(TextField, Taken, Operator, String),
    Number(NumberField, Comparison, i64),
    Address(AddressField, AddressOperator),
}

/// The quantifier and the transformation with which the values of a field are compared.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Taken {
    pub(crate) any: bool,
    pub(crate) lower: Lower,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lower {
    No,
    Ascii,
    Unicode,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operator {
    Equal,
    Differs,
    Matches,
    StartsWith,
    EndsWith,
    Contains,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum AddressOperator {
    Equal(IpAddr),
    Differs(IpAddr),
    In(Block),
    NotIn(Block),
}

/// The results of an evaluation other than true or false.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Trail {
    /// The part of the path that the last successful predicate on it matched.
    pub(crate) located: Option<Range<usize>>,
    /// Captured texts. The keys are the numbers of groups, as text, and the names of groups.
    pub(crate) captures: BTreeMap<String, Vec<u8>>,
}

impl Taken {
    pub(crate) const AS_IT_IS: Self = Self {
        any: false,
        lower: Lower::No,
    };
}

impl Term {
    pub(crate) fn text(field: TextField, operator: Operator, literal: &str) -> Self {
        Self::Text(field, Taken::AS_IT_IS, operator, literal.to_owned())
    }

    /// Converts a compiled expression.
    pub(crate) fn of(expression: &Expression) -> Self {
        let all = |parts: &[Expression]| parts.iter().map(Self::of).collect();
        match expression {
            Expression::All(parts) => Self::And(all(parts)),
            Expression::Any(parts) => Self::Or(all(parts)),
            Expression::Not(part) => Self::Not(Box::new(Self::of(part))),
            Expression::Number(test) => Self::Number(test.field, test.comparison, test.value),
            Expression::Address(test) => Self::Address(
                test.field,
                match test.test {
                    AddressTest::Equals(address) => AddressOperator::Equal(address),
                    AddressTest::Differs(address) => AddressOperator::Differs(address),
                    AddressTest::In(block) => AddressOperator::In(block),
                    AddressTest::NotIn(block) => AddressOperator::NotIn(block),
                },
            ),
            Expression::Text(test) => {
                let taken = Taken {
                    any: test.quantifier == Quantifier::Any,
                    lower: match test.transform {
                        Transform::None => Lower::No,
                        Transform::Lower => Lower::Unicode,
                        Transform::LowerAscii => Lower::Ascii,
                    },
                };
                let (operator, literal) = match &test.test {
                    TextTest::Equals(text) => (Operator::Equal, &**text),
                    TextTest::Differs(text) => (Operator::Differs, &**text),
                    TextTest::StartsWith(text) => (Operator::StartsWith, &**text),
                    TextTest::EndsWith(text) => (Operator::EndsWith, &**text),
                    TextTest::Contains(text) => (Operator::Contains, &**text),
                    TextTest::Matches(regex) => (Operator::Matches, regex.pattern()),
                };
                Self::Text(test.field.clone(), taken, operator, literal.to_owned())
            }
        }
    }

    pub(crate) fn holds(&self, facts: &Facts, engines: &mut Engines, trail: &mut Trail) -> bool {
        match self {
            Self::And(parts) => parts.iter().all(|part| part.holds(facts, engines, trail)),
            Self::Or(parts) => parts.iter().any(|part| part.holds(facts, engines, trail)),
            Self::Not(part) => !part.holds(facts, engines, trail),
            Self::Number(field, comparison, literal) => facts
                .number(*field)
                .is_some_and(|value| compare(*comparison, value, *literal)),
            Self::Address(field, operator) => facts
                .address(*field)
                .is_some_and(|address| operator.holds(address)),
            Self::Text(field, taken, operator, literal) => {
                let values = facts.texts(field);
                let is_path = *field == TextField::Path;
                let mut test = |value: &Vec<u8>| {
                    let value = taken.lower.apply(value);
                    operator.holds(&value, literal, is_path, engines, trail)
                };
                if taken.any {
                    values.iter().any(&mut test)
                } else {
                    !values.is_empty() && values.iter().all(&mut test)
                }
            }
        }
    }
}

fn compare(comparison: Comparison, value: i64, literal: i64) -> bool {
    match comparison {
        Comparison::Equal => value == literal,
        Comparison::NotEqual => value != literal,
        Comparison::Less => value < literal,
        Comparison::LessOrEqual => value <= literal,
        Comparison::Greater => value > literal,
        Comparison::GreaterOrEqual => value >= literal,
    }
}

impl Operator {
    fn holds(
        self,
        value: &[u8],
        literal: &str,
        is_path: bool,
        engines: &mut Engines,
        trail: &mut Trail,
    ) -> bool {
        let text = literal.as_bytes();
        let located = match self {
            Self::Matches => return matches(value, literal, is_path, engines, trail),
            Self::Contains => {
                return text.is_empty() || value.windows(text.len()).any(|w| w == text);
            }
            Self::Differs => return value != text,
            Self::Equal => (value == text).then_some(0..text.len()),
            Self::StartsWith => value.starts_with(text).then_some(0..text.len()),
            Self::EndsWith => {
                let found = value.ends_with(text);
                found.then(|| value.len() - text.len()..value.len())
            }
        };
        if is_path && located.is_some() {
            trail.located.clone_from(&located);
        }
        located.is_some()
    }
}

fn matches(
    value: &[u8],
    pattern: &str,
    is_path: bool,
    engines: &mut Engines,
    trail: &mut Trail,
) -> bool {
    let Some(found) = engines.search(pattern, value) else {
        return false;
    };
    if is_path {
        trail.located = Some(found.range);
    }
    if is_path || !engines.are_of_paths_only() {
        trail.captures.extend(found.groups);
    }
    true
}

impl AddressOperator {
    fn holds(self, address: IpAddr) -> bool {
        match self {
            Self::Equal(literal) => address == literal,
            Self::Differs(literal) => address != literal,
            Self::In(block) => is_in(address, block),
            Self::NotIn(block) => !is_in(address, block),
        }
    }
}

/// Whether the block contains the address. Compares bit by bit, to share no code with the router.
fn is_in(address: IpAddr, block: Block) -> bool {
    let octets = |address| match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    let (address, start) = (octets(address), octets(block.address()));
    let bit = |octets: &[u8], at: usize| octets[at / 8] >> (7 - at % 8) & 1;
    address.len() == start.len()
        && (0..usize::from(block.bits())).all(|at| bit(&address, at) == bit(&start, at))
}

impl Lower {
    fn apply(self, value: &[u8]) -> Vec<u8> {
        match (self, std::str::from_utf8(value)) {
            (Self::No, _) => value.to_vec(),
            (Self::Unicode, Ok(text)) => text.to_lowercase().into_bytes(),
            // Only the valid UTF-8 parts are lowered.
            (Self::Unicode, Err(_)) => {
                let mut lowered = Vec::new();
                for chunk in value.utf8_chunks() {
                    lowered.extend(chunk.valid().to_lowercase().into_bytes());
                    lowered.extend(chunk.invalid());
                }
                lowered
            }
            (Self::Ascii, _) => value.to_ascii_lowercase(),
        }
    }
}
