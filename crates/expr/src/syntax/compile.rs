//! Compiles a checked expression to the executable one. Double negations are removed and groups in a group of the same
//! kind are inlined, because neither changes a result.

use super::check::{Typed, TypedNode, TypedTest, TypedText};
use super::error::{Error, ErrorKind};
use crate::pattern::{Regex, RegexError};
use crate::tree::{Expression, TextPredicate, TextTest};

impl Typed {
    /// Compiles the expression. Calls `regexes` to compile each pattern, in the order of the text.
    pub fn compile(
        &self,
        regexes: &mut dyn FnMut(&str) -> Result<Regex, RegexError>,
    ) -> Result<Expression, Error> {
        let text = &self.text;
        Compiler { text, regexes }.node(&self.root)
    }
}

struct Compiler<'c> {
    text: &'c str,
    regexes: &'c mut dyn FnMut(&str) -> Result<Regex, RegexError>,
}

impl Compiler<'_> {
    fn node(&mut self, node: &TypedNode) -> Result<Expression, Error> {
        Ok(match node {
            TypedNode::All(nodes) => {
                let parts = self.parts(nodes, |part| match part {
                    Expression::All(parts) => Ok(parts),
                    other => Err(other),
                });
                Expression::all(parts?)
            }
            TypedNode::Any(nodes) => {
                let parts = self.parts(nodes, |part| match part {
                    Expression::Any(parts) => Ok(parts),
                    other => Err(other),
                });
                Expression::any(parts?)
            }
            TypedNode::Not(node) => match self.node(node)? {
                Expression::Not(part) => *part,
                part => Expression::Not(Box::new(part)),
            },
            TypedNode::Text(text) => self.text(text)?.into(),
            TypedNode::Number(predicate) => Expression::Number(*predicate),
            TypedNode::Address(predicate) => Expression::Address(*predicate),
        })
    }

    /// Compiles the parts of a group. `open` returns the parts of a nested group of the same kind, which are inlined.
    fn parts(
        &mut self,
        nodes: &[TypedNode],
        open: impl Fn(Expression) -> Result<Box<[Expression]>, Expression>,
    ) -> Result<Vec<Expression>, Error> {
        let mut parts = Vec::with_capacity(nodes.len());
        for node in nodes {
            match open(self.node(node)?) {
                Ok(inner) => parts.extend(inner),
                Err(part) => parts.push(part),
            }
        }
        Ok(parts)
    }

    fn text(&mut self, text: &TypedText) -> Result<TextPredicate, Error> {
        let test = match &text.test {
            TypedTest::Plain(test) => test.clone(),
            TypedTest::Regex { pattern, literal } => {
                let regex = (self.regexes)(pattern).map_err(|error| {
                    let kind = ErrorKind::Regex(error.to_string().into());
                    Error::new(kind, self.text, literal.range())
                })?;
                TextTest::Matches(regex)
            }
        };
        Ok(TextPredicate {
            field: text.field.clone(),
            quantifier: text.quantifier,
            transform: text.transform,
            test,
        })
    }
}
