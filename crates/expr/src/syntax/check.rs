//! Checks that fields exist and that operators fit their types. The checks have the same order as in Kong, so that Kong
//! and this crate report the same error first.

use super::Subsystem;
use super::error::{Error, ErrorKind, Type};
use super::names::{self, Field};
use super::tree::{Function, Literal, Node, Operator, Parsed, Predicate, Span, Test};
use crate::field::TextField;
use crate::tree::{
    AddressPredicate, AddressTest, Comparison, NumberPredicate, Quantifier, TextTest, Transform,
};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

/// An expression whose fields exist and whose operators fit the fields. Only its regexes are not checked yet.
#[derive(Debug, Clone)]
pub struct Typed {
    pub(super) text: Arc<str>,
    pub(super) root: TypedNode,
    fields: BTreeSet<Box<str>>,
}

#[derive(Debug, Clone)]
pub(super) enum TypedNode {
    All(Vec<TypedNode>),
    Any(Vec<TypedNode>),
    Not(Box<TypedNode>),
    Text(Box<TypedText>),
    Number(NumberPredicate),
    Address(AddressPredicate),
}

#[derive(Debug, Clone)]
pub(super) struct TypedText {
    pub(super) field: TextField,
    pub(super) quantifier: Quantifier,
    pub(super) transform: Transform,
    pub(super) test: TypedTest,
}

#[derive(Debug, Clone)]
pub(super) enum TypedTest {
    Plain(TextTest),
    Regex { pattern: Box<str>, literal: Span },
}

impl Parsed {
    /// Resolves every field name for routes of this subsystem and checks the types.
    pub fn check(&self, subsystem: Subsystem) -> Result<Typed, Error> {
        let mut checker = Checker {
            text: &self.text,
            subsystem,
            fields: BTreeSet::new(),
        };
        let root = checker.node(&self.root)?;
        Ok(Typed {
            text: self.text.clone(),
            root,
            fields: checker.fields,
        })
    }
}

impl Typed {
    /// The distinct names of the fields used, as written, sorted.
    pub fn fields(&self) -> impl Iterator<Item = &str> {
        self.fields.iter().map(AsRef::as_ref)
    }
}

struct Checker<'p> {
    text: &'p str,
    subsystem: Subsystem,
    fields: BTreeSet<Box<str>>,
}

impl Checker<'_> {
    fn node(&mut self, node: &Node) -> Result<TypedNode, Error> {
        Ok(match node {
            Node::All(parts) => TypedNode::All(self.nodes(parts)?),
            Node::Any(parts) => TypedNode::Any(self.nodes(parts)?),
            Node::Not(part) => TypedNode::Not(Box::new(self.node(part)?)),
            Node::Test(test) => {
                let wrong = |(kind, range)| Error::new(kind, self.text, range);
                let typed = typed(test, self.subsystem).map_err(wrong)?;
                self.fields.insert(test.predicate.field.clone());
                typed
            }
        })
    }

    fn nodes(&mut self, nodes: &[Node]) -> Result<Vec<TypedNode>, Error> {
        nodes.iter().map(|node| self.node(node)).collect()
    }
}

type Wrong = (ErrorKind, Range<usize>);

fn typed(test: &Test, subsystem: Subsystem) -> Result<TypedNode, Wrong> {
    let predicate = &test.predicate;
    let field = names::resolve(&predicate.field, subsystem);
    let field = field.map_err(|kind| (kind, test.field.range()))?;
    same_types(test, field.of_type())?;
    let is_lower = predicate.functions.contains(&Function::Lower);
    match (field, &predicate.literal) {
        (Field::Text(field), Literal::Text(value)) => text(test, field, value),
        (field, _) if is_lower && field.of_type() != Type::String => {
            let kind = ErrorKind::LowerOfOther(field.of_type());
            Err((kind, test.left.range()))
        }
        (Field::Number(field), &Literal::Number(value)) => {
            let comparison = comparison(predicate.operator);
            let comparison = comparison.ok_or_else(|| misfit(test))?;
            Ok(TypedNode::Number(NumberPredicate {
                field,
                comparison,
                value,
            }))
        }
        (Field::Address(field), _) => {
            let test = address_test(predicate).ok_or_else(|| misfit(test))?;
            Ok(TypedNode::Address(AddressPredicate { field, test }))
        }
        _ => Err(misfit(test)),
    }
}

/// Checks that field and literal have the same type. `in` and `not in` are exempt, because their literal is a block.
/// For `~`, this checks only that the literal is a text.
fn same_types(test: &Test, field: Type) -> Result<(), Wrong> {
    let literal = type_of(&test.predicate.literal);
    let operator = test.predicate.operator;
    if operator == Operator::Matches && literal != Type::String {
        return Err((ErrorKind::RegexOfOther, test.literal.range()));
    }
    let is_spared = matches!(operator, Operator::Matches | Operator::In | Operator::NotIn);
    if is_spared || field == literal {
        return Ok(());
    }
    let kind = ErrorKind::TypeMismatch { field, literal };
    Err((kind, test.left.range().start..test.literal.range().end))
}

fn text(test: &Test, field: TextField, value: &str) -> Result<TypedNode, Wrong> {
    let test_of_text = match test.predicate.operator {
        Operator::Equal => TypedTest::Plain(TextTest::Equals(value.into())),
        Operator::NotEqual => TypedTest::Plain(TextTest::Differs(value.into())),
        Operator::StartsWith => TypedTest::Plain(TextTest::StartsWith(value.into())),
        Operator::EndsWith => TypedTest::Plain(TextTest::EndsWith(value.into())),
        Operator::Contains => TypedTest::Plain(TextTest::Contains(value.into())),
        Operator::Matches => TypedTest::Regex {
            pattern: value.into(),
            literal: test.literal,
        },
        _ => return Err(misfit(test)),
    };
    let functions = &test.predicate.functions;
    // If a field has one value, `any` makes no difference.
    let is_any = functions.contains(&Function::Any) && field.has_several_values();
    Ok(TypedNode::Text(Box::new(TypedText {
        field,
        quantifier: if is_any {
            Quantifier::Any
        } else {
            Quantifier::All
        },
        transform: if functions.contains(&Function::Lower) {
            Transform::Lower
        } else {
            Transform::None
        },
        test: test_of_text,
    })))
}

fn comparison(operator: Operator) -> Option<Comparison> {
    Some(match operator {
        Operator::Equal => Comparison::Equal,
        Operator::NotEqual => Comparison::NotEqual,
        Operator::Less => Comparison::Less,
        Operator::LessOrEqual => Comparison::LessOrEqual,
        Operator::Greater => Comparison::Greater,
        Operator::GreaterOrEqual => Comparison::GreaterOrEqual,
        _ => return None,
    })
}

fn address_test(predicate: &Predicate) -> Option<AddressTest> {
    match (predicate.operator, &predicate.literal) {
        (Operator::Equal, &Literal::Address(address)) => Some(AddressTest::Equals(address)),
        (Operator::NotEqual, &Literal::Address(address)) => Some(AddressTest::Differs(address)),
        (Operator::In, &Literal::Block(block)) => Some(AddressTest::In(block)),
        (Operator::NotIn, &Literal::Block(block)) => Some(AddressTest::NotIn(block)),
        _ => None,
    }
}

fn type_of(literal: &Literal) -> Type {
    match literal {
        Literal::Text(_) => Type::String,
        Literal::Number(_) => Type::Int,
        Literal::Address(_) => Type::IpAddr,
        Literal::Block(_) => Type::IpCidr,
    }
}

/// The error for an operator that the type of the field does not support.
fn misfit(test: &Test) -> Wrong {
    let kind = match test.predicate.operator {
        Operator::Equal | Operator::NotEqual | Operator::Matches => ErrorKind::RegexOfOther,
        Operator::StartsWith | Operator::EndsWith => ErrorKind::AffixOfOther,
        Operator::Contains => ErrorKind::ContainsOfOther,
        Operator::In | Operator::NotIn => ErrorKind::InOfOther,
        Operator::Greater | Operator::GreaterOrEqual | Operator::Less | Operator::LessOrEqual => {
            ErrorKind::OrderOfOther
        }
    };
    (kind, test.operator.range())
}
