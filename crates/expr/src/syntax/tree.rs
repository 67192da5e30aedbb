//! The tree of a parsed text: predicates as they were written, with their positions.

use crate::block::Block;
use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;

/// A text that matches the grammar. Two values are equal if they contain the same terms in the same order, regardless
/// of blanks, redundant parentheses and the spelling of literals. The printed form parses to an equal value.
#[derive(Debug, Clone)]
pub struct Parsed {
    /// The text, for errors of later steps.
    pub(super) text: Arc<str>,
    pub(super) root: Node,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Node {
    /// At least two parts, none of which is `All`.
    All(Vec<Node>),
    /// At least two parts, none of which is `Any`.
    Any(Vec<Node>),
    Not(Box<Node>),
    Test(Box<Test>),
}

/// A predicate and the positions of its parts.
#[derive(Debug, Clone)]
pub(super) struct Test {
    pub(super) predicate: Predicate,
    /// The position of the functions and the field together.
    pub(super) left: Span,
    pub(super) field: Span,
    pub(super) operator: Span,
    pub(super) literal: Span,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Predicate {
    /// The functions around the field, outermost first.
    pub(super) functions: Vec<Function>,
    pub(super) field: Box<str>,
    pub(super) operator: Operator,
    pub(super) literal: Literal,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Function {
    Lower,
    Any,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operator {
    Equal,
    NotEqual,
    Matches,
    StartsWith,
    EndsWith,
    GreaterOrEqual,
    Greater,
    LessOrEqual,
    Less,
    In,
    NotIn,
    Contains,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Literal {
    Text(Box<str>),
    Number(i64),
    Address(IpAddr),
    Block(Block),
}

/// A range of bytes in the text, which is never longer than [`super::MAX_LENGTH`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    start: u32,
    end: u32,
}

impl Parsed {
    /// The name and position of every field, in the order of the text.
    pub fn names(&self) -> Vec<(&str, Range<usize>)> {
        let mut names = Vec::new();
        self.root.each_test(&mut |test| {
            names.push((&*test.predicate.field, test.field.range()));
        });
        names
    }
}

impl PartialEq for Parsed {
    fn eq(&self, other: &Self) -> bool {
        self.root == other.root
    }
}

impl Node {
    pub(super) fn each_test<'n>(&'n self, visit: &mut dyn FnMut(&'n Test)) {
        match self {
            Self::All(parts) | Self::Any(parts) => {
                parts.iter().for_each(|part| part.each_test(visit));
            }
            Self::Not(part) => part.each_test(visit),
            Self::Test(test) => visit(test),
        }
    }
}

impl PartialEq for Test {
    fn eq(&self, other: &Self) -> bool {
        self.predicate == other.predicate
    }
}

impl Function {
    pub(super) const ALL: [Self; 2] = [Self::Lower, Self::Any];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Lower => "lower",
            Self::Any => "any",
        }
    }
}

impl Operator {
    /// All operators, in the order in which the parser tries them. An operator that begins with another one, such as
    /// `>=` with `>`, comes first.
    pub(super) const ALL: [Self; 12] = [
        Self::Equal,
        Self::NotEqual,
        Self::Matches,
        Self::StartsWith,
        Self::EndsWith,
        Self::GreaterOrEqual,
        Self::Greater,
        Self::LessOrEqual,
        Self::Less,
        Self::In,
        Self::NotIn,
        Self::Contains,
    ];

    pub(super) fn symbol(self) -> &'static str {
        match self {
            Self::Equal => "==",
            Self::NotEqual => "!=",
            Self::Matches => "~",
            Self::StartsWith => "^=",
            Self::EndsWith => "=^",
            Self::GreaterOrEqual => ">=",
            Self::Greater => ">",
            Self::LessOrEqual => "<=",
            Self::Less => "<",
            Self::In => "in",
            Self::NotIn => "not in",
            Self::Contains => "contains",
        }
    }
}

impl Span {
    pub(super) fn new(range: Range<usize>) -> Self {
        // Every position fits in 32 bits, because longer texts are refused before they are parsed.
        let narrow = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        Self {
            start: narrow(range.start),
            end: narrow(range.end),
        }
    }

    pub(super) fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}
