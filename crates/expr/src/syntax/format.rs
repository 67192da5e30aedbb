//! Formats an expression over several lines.

use super::tree::{Node, Parsed};
use std::fmt::{self, Write};

/// Indentation of the parts of a group relative to its parentheses.
const INDENT: usize = 4;

impl Parsed {
    /// Formats the expression in lines of at most `width` characters. Lines are broken only between predicates, so a
    /// long predicate may exceed the width. A group that fits in one line is written in one line. Otherwise each of its
    /// parts begins a new line, with the operator in front. Formatting the result again with the same width does not
    /// change it.
    pub fn format(&self, width: usize) -> String {
        let mut layout = Layout {
            width,
            text: String::new(),
        };
        layout.block(&self.root, 0);
        layout.text
    }
}

struct Layout {
    width: usize,
    text: String,
}

impl Layout {
    /// Writes the whole expression or the inside of parentheses.
    fn block(&mut self, node: &Node, indent: usize) {
        let (parts, operator) = match node {
            _ if self.fits(node, indent, Parentheses::Without) => return,
            Node::All(parts) => (parts, "&& "),
            Node::Any(parts) => (parts, "|| "),
            Node::Not(_) | Node::Test(_) => return self.part(node, indent, ""),
        };
        for (number, part) in parts.iter().enumerate() {
            if number == 0 {
                self.part(part, indent, "");
            } else {
                self.new_line(indent);
                self.part(part, indent, operator);
            }
        }
    }

    /// Writes one part of a group at the beginning of a line.
    fn part(&mut self, node: &Node, indent: usize, operator: &str) {
        self.text.push_str(operator);
        if self.fits(node, indent + operator.len(), Parentheses::AroundGroups) {
            return;
        }
        let (open, inner) = match node {
            Node::All(_) | Node::Any(_) => ("(", node),
            Node::Not(inner) => ("!(", &**inner),
            Node::Test(test) => return self.text.push_str(&test.predicate.to_string()),
        };
        self.text.push_str(open);
        self.new_line(indent + INDENT);
        self.block(inner, indent + INDENT);
        self.new_line(indent);
        self.text.push(')');
    }

    fn new_line(&mut self, indent: usize) {
        self.text.push('\n');
        self.text.extend(std::iter::repeat_n(' ', indent));
    }

    /// Writes the node if it fits in the line.
    fn fits(&mut self, node: &Node, column: usize, parentheses: Parentheses) -> bool {
        let before = self.text.len();
        let mut line = Line {
            text: &mut self.text,
            room: self.width.saturating_sub(column),
        };
        let written = match parentheses {
            Parentheses::AroundGroups if node.is_group() => write!(line, "({node})"),
            _ => write!(line, "{node}"),
        };
        if written.is_err() {
            self.text.truncate(before);
        }
        written.is_ok()
    }
}

#[derive(Clone, Copy)]
enum Parentheses {
    AroundGroups,
    Without,
}

/// A writer that fails at the end of the line, so that a node that does not fit costs no more than the available room.
struct Line<'l> {
    text: &'l mut String,
    room: usize,
}

impl Write for Line<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let length = text.chars().count();
        self.room = self.room.checked_sub(length).ok_or(fmt::Error)?;
        self.text.push_str(text);
        Ok(())
    }
}
