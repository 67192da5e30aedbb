//! Parses a text into its tree. The parser stores open groups in a list and not on the call stack, so that deep nesting
//! is refused before it can exhaust the stack.

use super::error::{Error, ErrorKind, Expected, Hint};
use super::scan::Scanner;
use super::tree::{Function, Node, Parsed, Predicate, Span, Test};
use super::{MAX_DEPTH, MAX_LENGTH};

pub(super) fn parse(text: &str) -> Result<Parsed, Error> {
    if text.len() > MAX_LENGTH {
        return Err(Error::new(ErrorKind::TooLong, text, 0..0));
    }
    let mut parser = Parser {
        scanner: Scanner::new(text),
        open: Vec::new(),
        operands: Operands::default(),
    };
    let root = parser.run()?;
    let text = text.into();
    Ok(Parsed { text, root })
}

struct Parser<'t> {
    scanner: Scanner<'t>,
    /// The groups that are not closed yet, innermost last.
    open: Vec<Group>,
    /// The operands of the innermost group.
    operands: Operands,
}

/// A group that is not closed yet.
struct Group {
    start: usize,
    is_negated: bool,
    /// The operands before this group in the enclosing one.
    before: Operands,
}

/// The operands of a group that have been read so far.
#[derive(Default)]
struct Operands {
    /// The complete operands of `&&`.
    conjuncts: List,
    /// The operands of `||` that form the next operand of `&&`, because `||` binds tighter.
    disjuncts: List,
}

#[derive(Default)]
struct List {
    parts: Vec<Node>,
    /// Number of levels of the deepest part.
    depth: usize,
}

/// A node and its number of levels. A predicate has 0 levels.
struct Measured {
    node: Node,
    depth: usize,
}

impl Parser<'_> {
    fn run(&mut self) -> Result<Node, Error> {
        loop {
            self.operand()?;
            if self.behind_operand()? {
                let operands = std::mem::take(&mut self.operands);
                let whole = self.limited(operands.finish(), 0)?;
                return Ok(whole.node);
            }
        }
    }

    /// Opens groups up to the next predicate and reads that predicate.
    fn operand(&mut self) -> Result<(), Error> {
        loop {
            self.scanner.skip_blanks();
            let start = self.scanner.at;
            let is_negated = self.scanner.take("!");
            self.scanner.skip_blanks();
            if self.scanner.take("(") {
                self.open(start, is_negated)?;
                continue;
            }
            if is_negated {
                self.scanner.at = start;
                let hint = Some(Hint::NotNeedsParentheses);
                return Err(self.scanner.expected(Expected::Term, hint));
            }
            let test = self.predicate()?;
            self.operands.push(Measured {
                node: Node::Test(Box::new(test)),
                depth: 0,
            });
            return Ok(());
        }
    }

    fn open(&mut self, start: usize, is_negated: bool) -> Result<(), Error> {
        if self.open.len() == MAX_DEPTH {
            let span = start..self.scanner.at;
            return Err(self.scanner.error(ErrorKind::TooDeep, span));
        }
        self.open.push(Group {
            start,
            is_negated,
            before: std::mem::take(&mut self.operands),
        });
        Ok(())
    }

    /// Closes groups up to the next logical operator or the end of the text. Returns whether it reached the end.
    fn behind_operand(&mut self) -> Result<bool, Error> {
        loop {
            self.scanner.skip_blanks();
            if self.scanner.take("&&") {
                self.operands.next_conjunct();
                return Ok(false);
            }
            if self.scanner.take("||") {
                return Ok(false);
            }
            if self.scanner.is_at(")") && !self.open.is_empty() {
                self.scanner.at += 1;
                self.close()?;
                continue;
            }
            if self.scanner.rest().is_empty() && self.open.is_empty() {
                return Ok(true);
            }
            return Err(self.no_continuation());
        }
    }

    fn close(&mut self) -> Result<(), Error> {
        let Some(group) = self.open.pop() else {
            return Ok(());
        };
        let inner = std::mem::replace(&mut self.operands, group.before);
        let mut inner = self.limited(inner.finish(), group.start)?;
        if group.is_negated {
            inner = Measured {
                node: Node::Not(Box::new(inner.node)),
                depth: inner.depth + 1,
            };
        }
        let inner = self.limited(inner, group.start)?;
        self.operands.push(inner);
        Ok(())
    }

    /// Refuses a node that is too deep. Counting open parentheses is not enough, because `||` within `&&` is a level
    /// without parentheses.
    fn limited(&self, node: Measured, start: usize) -> Result<Measured, Error> {
        if node.depth > MAX_DEPTH {
            let span = start..self.scanner.at;
            return Err(self.scanner.error(ErrorKind::TooDeep, span));
        }
        Ok(node)
    }

    fn no_continuation(&self) -> Error {
        let (expected, unclosed) = match self.open.last() {
            None => (Expected::LogicalOrEnd, None),
            Some(group) => {
                let open = group.start + usize::from(group.is_negated);
                let (line, column) = self.scanner.position(open);
                let hint = Hint::Unclosed { line, column };
                (Expected::LogicalOrClose, Some(hint))
            }
        };
        let hint = match self.scanner.rest().as_bytes() {
            [] => unclosed,
            [b')', ..] => Some(Hint::ClosesNone),
            [b'0'..=b'9' | b'x', ..] => Some(Hint::Octal),
            _ => Some(Hint::LogicalOperators),
        };
        self.scanner.expected(expected, hint)
    }

    fn predicate(&mut self) -> Result<Test, Error> {
        let left = self.scanner.at;
        let (functions, field, name) = self.left()?;
        let left = self.scanner.span_from(left);
        self.scanner.skip_blanks();
        let (operator, operator_span) = self.scanner.operator()?;
        self.scanner.skip_blanks();
        let (literal, literal_span) = self.scanner.literal()?;
        Ok(Test {
            predicate: Predicate {
                functions,
                field: name,
                operator,
                literal,
            },
            left,
            field,
            operator: operator_span,
            literal: literal_span,
        })
    }

    /// Reads a field and the functions around it.
    fn left(&mut self) -> Result<(Vec<Function>, Span, Box<str>), Error> {
        let mut functions = Vec::new();
        loop {
            let start = self.scanner.at;
            let Some(name) = self.scanner.name() else {
                return Err(self.no_name(functions.is_empty()));
            };
            let span = start..self.scanner.at;
            self.scanner.skip_blanks();
            if self.scanner.take("(") {
                let function = Function::ALL.into_iter().find(|known| known.name() == name);
                let unknown = || {
                    self.scanner
                        .error(ErrorKind::UnknownFunction(name.into()), span)
                };
                functions.push(function.ok_or_else(unknown)?);
                self.scanner.skip_blanks();
                continue;
            }
            for _ in &functions {
                self.scanner.skip_blanks();
                if !self.scanner.take(")") {
                    let hint = Some(Hint::Functions);
                    return Err(self.scanner.expected(Expected::Close, hint));
                }
            }
            return Ok((functions, Span::new(span), name.into()));
        }
    }

    fn no_name(&self, is_term: bool) -> Error {
        if !is_term {
            let hint = Some(Hint::Functions);
            return self.scanner.expected(Expected::Field, hint);
        }
        let hint = match self.scanner.rest().as_bytes().first() {
            Some(b'"' | b'\'' | b'0'..=b'9') => Hint::LiteralOnTheLeft,
            _ => Hint::Predicate,
        };
        self.scanner.expected(Expected::Term, Some(hint))
    }
}

impl Operands {
    fn push(&mut self, operand: Measured) {
        match operand.node {
            Node::Any(parts) => self.disjuncts.extend(parts, operand.depth),
            _ => self.disjuncts.push(operand),
        }
    }

    fn next_conjunct(&mut self) {
        let disjunction = std::mem::take(&mut self.disjuncts).join(Node::Any);
        match disjunction.node {
            Node::All(parts) => self.conjuncts.extend(parts, disjunction.depth),
            _ => self.conjuncts.push(disjunction),
        }
    }

    fn finish(mut self) -> Measured {
        self.next_conjunct();
        self.conjuncts.join(Node::All)
    }
}

impl List {
    fn push(&mut self, part: Measured) {
        self.parts.push(part.node);
        self.depth = self.depth.max(part.depth);
    }

    /// Adds the parts of a nested group of the same kind. `depth` includes the level of that group, which disappears.
    fn extend(&mut self, mut parts: Vec<Node>, depth: usize) {
        if self.parts.is_empty() {
            self.parts = parts;
        } else {
            self.parts.append(&mut parts);
        }
        self.depth = self.depth.max(depth - 1);
    }

    /// Joins the parts. There is at least one part, because an operand precedes each operator and the end.
    fn join(mut self, join: impl FnOnce(Vec<Node>) -> Node) -> Measured {
        let depth = self.depth;
        if self.parts.len() == 1
            && let Some(node) = self.parts.pop()
        {
            return Measured { node, depth };
        }
        Measured {
            node: join(self.parts),
            depth: depth + 1,
        }
    }
}
