//! Finds the literal prefix of a PCRE pattern that `regex-syntax` cannot analyse (see `plain`), so that an index can
//! use the prefix. Every text that the regex matches begins with the prefix. The prefix may be shorter than possible.
//! It is empty if the pattern is not anchored at the start of the text.

use fancy_regex::Expr;

pub(crate) fn of_pcre(pattern: &str) -> Vec<u8> {
    let mut prefix = Prefix::default();
    if let Ok(tree) = Expr::parse_tree(pattern) {
        prefix.follow(&tree.expr);
    }
    prefix.bytes
}

#[derive(Default)]
struct Prefix {
    anchored: bool,
    bytes: Vec<u8>,
}

impl Prefix {
    /// Adds the literal of this part. Returns whether the next part may extend the prefix. Assertions and look-around
    /// are skipped because they only narrow the match.
    fn follow(&mut self, part: &Expr) -> bool {
        match part {
            Expr::Empty | Expr::LookAround(..) => true,
            Expr::Assertion(assertion) => {
                self.anchored |= *assertion == fancy_regex::Assertion::StartText;
                true
            }
            // Beyond ASCII, an escape such as `\xE9` means one byte, but the parser returns a character of two bytes.
            Expr::Literal { val, casei: false } if val.is_ascii() => self.push(val.as_bytes()),
            Expr::Group(group) => self.follow(group),
            Expr::AtomicGroup(group) => self.follow(group),
            Expr::Concat(parts) => parts.iter().all(|part| self.follow(part)),
            Expr::Repeat { child, lo, hi, .. } => *lo > 0 && self.follow(child) && *hi == 1,
            _ => false,
        }
    }

    fn push(&mut self, literal: &[u8]) -> bool {
        if self.anchored {
            self.bytes.extend_from_slice(literal);
        }
        self.anchored
    }
}
