//! Writes trees in a random spelling that the grammar allows: with and without blanks, redundant parentheses, nested
//! groups, numbers in other radices, escapes.

use super::super::tree::{Literal, Node, Operator, Predicate};

pub(super) fn spell(node: &Node, seed: u64) -> String {
    let mut writer = Writer {
        text: String::new(),
        state: seed | 1,
    };
    writer.blanks();
    writer.node(node, Around::Nothing);
    writer.blanks();
    writer.text
}

struct Writer {
    text: String,
    state: u64,
}

#[derive(Clone, Copy, PartialEq)]
enum Around {
    Nothing,
    And,
    Or,
}

impl Writer {
    fn one_in(&mut self, number: u64) -> bool {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state.is_multiple_of(number)
    }

    fn blanks(&mut self) {
        while self.one_in(3) {
            let blank = match (self.one_in(2), self.one_in(2)) {
                (true, true) => ' ',
                (true, false) => '\t',
                (false, true) => '\r',
                (false, false) => '\n',
            };
            self.text.push(blank);
        }
    }

    fn node(&mut self, node: &Node, around: Around) {
        let needs = match node {
            Node::All(_) => around == Around::Or,
            // `||` binds tighter than `&&`, so it needs no parentheses.
            Node::Any(_) | Node::Not(_) | Node::Test(_) => false,
        };
        if needs || self.one_in(5) {
            return self.parenthesised(node);
        }
        match node {
            Node::All(parts) => self.parts(parts, "&&", Around::And),
            Node::Any(parts) => self.parts(parts, "||", Around::Or),
            Node::Not(part) => {
                self.text.push('!');
                self.blanks();
                self.parenthesised(part);
            }
            Node::Test(test) => self.predicate(&test.predicate),
        }
    }

    fn parenthesised(&mut self, node: &Node) {
        self.text.push('(');
        self.blanks();
        self.node(node, Around::Nothing);
        self.blanks();
        self.text.push(')');
    }

    /// Writes the parts of a group. Sometimes splits them into two nested groups, which the parser merges again.
    fn parts(&mut self, parts: &[Node], operator: &str, around: Around) {
        let half = parts.len() / 2;
        if parts.len() > 3 && self.one_in(3) {
            self.group(&parts[..half], operator, around);
            self.between(operator);
            return self.group(&parts[half..], operator, around);
        }
        for (number, part) in parts.iter().enumerate() {
            if number > 0 {
                self.between(operator);
            }
            self.node(part, around);
        }
    }

    fn group(&mut self, parts: &[Node], operator: &str, around: Around) {
        self.text.push('(');
        self.parts(parts, operator, around);
        self.text.push(')');
    }

    fn between(&mut self, operator: &str) {
        self.blanks();
        self.text.push_str(operator);
        self.blanks();
    }

    fn predicate(&mut self, predicate: &Predicate) {
        for function in &predicate.functions {
            self.text.push_str(function.name());
            self.blanks();
            self.text.push('(');
            self.blanks();
        }
        self.text.push_str(&predicate.field);
        for _ in &predicate.functions {
            self.blanks();
            self.text.push(')');
        }
        let symbol = predicate.operator.symbol();
        // An operator that is a word, such as `in`, needs a blank after a field name.
        if symbol.starts_with(|first: char| first.is_ascii_alphabetic()) {
            self.text.push(' ');
        }
        self.blanks();
        if predicate.operator == Operator::NotIn {
            self.text.push_str("not ");
            self.blanks();
            self.text.push_str("in");
        } else {
            self.text.push_str(symbol);
        }
        self.blanks();
        self.literal(&predicate.literal);
    }

    fn literal(&mut self, literal: &Literal) {
        match literal {
            Literal::Text(text) if !text.contains("\"#") && self.one_in(2) => {
                self.text.push_str(&format!("r#\"{text}\"#"));
            }
            Literal::Text(text) => {
                self.text.push('"');
                text.chars().for_each(|character| self.escaped(character));
                self.text.push('"');
            }
            Literal::Number(number) => {
                let sign = if *number < 0 { "-" } else { "" };
                let size = number.unsigned_abs();
                let digits = match (self.one_in(2), self.one_in(2)) {
                    (true, true) => format!("0x{size:x}"),
                    (true, false) => format!("0{size:o}"),
                    _ => size.to_string(),
                };
                self.text.push_str(sign);
                self.text.push_str(&digits);
            }
            literal => {
                let text = Predicate {
                    functions: Vec::new(),
                    field: "x".into(),
                    operator: Operator::In,
                    literal: literal.clone(),
                }
                .to_string();
                let text = text.strip_prefix("x in ").unwrap();
                let upper = self.one_in(2);
                let text = if upper {
                    text.to_uppercase()
                } else {
                    text.to_owned()
                };
                self.text.push_str(&text);
            }
        }
    }

    fn escaped(&mut self, character: char) {
        let escape = match character {
            '"' | '\\' => character,
            '\n' if self.one_in(2) => 'n',
            '\r' if self.one_in(2) => 'r',
            '\t' if self.one_in(2) => 't',
            character => return self.text.push(character),
        };
        self.text.push('\\');
        self.text.push(escape);
    }
}
